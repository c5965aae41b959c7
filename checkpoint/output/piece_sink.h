// Where the bytes of a result go.
#ifndef RESHARD_CHECKPOINT_OUTPUT_PIECE_SINK_H_
#define RESHARD_CHECKPOINT_OUTPUT_PIECE_SINK_H_

#include <cstdint>
#include <string_view>

#include "absl/status/status.h"

namespace reshard::output {

class PieceSink {
 public:
  virtual ~PieceSink() = default;
  // Writes bytes of a file of the plan, from byte `at` on.
  virtual absl::Status WriteAt(int32_t file, int64_t at, std::string_view data) = 0;
};

}  // namespace reshard::output

#endif  // RESHARD_CHECKPOINT_OUTPUT_PIECE_SINK_H_
