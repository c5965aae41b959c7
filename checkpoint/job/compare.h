// The comparison behind VerifyCheckpoints, for sources that are open.
#ifndef RESHARD_CHECKPOINT_JOB_COMPARE_H_
#define RESHARD_CHECKPOINT_JOB_COMPARE_H_

#include <functional>

#include "absl/status/statusor.h"
#include "checkpoint/job/source.h"
#include "reshard/checkpoint/verify.h"

namespace reshard {

absl::StatusOr<VerifyReport> CompareSources(Source& a, Source& b, int threads,
                                            const std::function<void(const ConvertProgress&)>& progress);

}  // namespace reshard

#endif  // RESHARD_CHECKPOINT_JOB_COMPARE_H_
