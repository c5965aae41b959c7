// One line of a batch: {"id":1,"mesh":"{X:2}","from":"[<X>4]","to":"[4]","dtype":"f32","to_mesh":null}
#ifndef RESHARD_TOOLS_RESHARD_BATCH_LINE_H_
#define RESHARD_TOOLS_RESHARD_BATCH_LINE_H_

#include <string>

#include "absl/status/status.h"
#include "reshard/layout/dtype.h"
#include "tools/reshard/problem.h"

namespace reshard::tool {

struct BatchLine {
  std::string id = "null";  // as JSON text; "null" also if the line has none or is not JSON
  std::string name;         // the id if it is a string, else empty
  absl::Status status;      // why the line does not have a valid problem
  ProblemText text;
  DType dtype = DType::kBF16;

  // Everything that decides the answer, except for the options, which are the same for all lines.
  std::string Key() const;
};

bool IsBlank(const std::string& line);
BatchLine ReadBatchLine(const std::string& line, const ProblemText& defaults, DType dtype);

}  // namespace reshard::tool

#endif  // RESHARD_TOOLS_RESHARD_BATCH_LINE_H_
