// Compares the result of a conversion with its source before it is committed.
#ifndef RESHARD_CHECKPOINT_CONVERT_COMPARE_RESULT_H_
#define RESHARD_CHECKPOINT_CONVERT_COMPARE_RESULT_H_

#include <functional>
#include <string>

#include "absl/status/status.h"
#include "checkpoint/convert/conversion.h"

namespace reshard::convert {

// Internal: what is in `directory` differs from the source.
absl::Status CompareResult(const Conversion& conversion, const std::string& directory,
                           const std::function<void(const ConvertProgress&)>& progress);

}  // namespace reshard::convert

#endif  // RESHARD_CHECKPOINT_CONVERT_COMPARE_RESULT_H_
