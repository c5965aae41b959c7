// The last look at a result, before it is put in its place.
#ifndef RESHARD_CHECKPOINT_JOB_COMPARE_RESULT_H_
#define RESHARD_CHECKPOINT_JOB_COMPARE_RESULT_H_

#include <functional>
#include <string>

#include "absl/status/status.h"
#include "checkpoint/job/conversion.h"

namespace reshard {

// Internal: what is in `directory` differs from the source.
absl::Status CompareResult(const Conversion& conversion, const std::string& directory,
                           const std::function<void(const ConvertProgress&)>& progress);

}  // namespace reshard

#endif  // RESHARD_CHECKPOINT_JOB_COMPARE_RESULT_H_
