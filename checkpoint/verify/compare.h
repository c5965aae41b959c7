// The comparison behind VerifyCheckpoints, for sources that are already open.
#ifndef RESHARD_CHECKPOINT_VERIFY_COMPARE_H_
#define RESHARD_CHECKPOINT_VERIFY_COMPARE_H_

#include <functional>
#include <stop_token>

#include "absl/status/statusor.h"
#include "checkpoint/source/source.h"
#include "reshard/checkpoint/verify.h"

namespace reshard::verify {

absl::StatusOr<VerifyReport> CompareSources(source::Source& a, source::Source& b, int threads,
                                            const std::function<void(const ConvertProgress&)>& progress,
                                            const std::stop_token& stop);

}  // namespace reshard::verify

#endif  // RESHARD_CHECKPOINT_VERIFY_COMPARE_H_
