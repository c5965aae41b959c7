// What the live processes that share a stage (staged_directory.h) agree on. Only to be used while holding STAGE/lock.
#ifndef RESHARD_CHECKPOINT_IO_STAGE_TERMS_H_
#define RESHARD_CHECKPOINT_IO_STAGE_TERMS_H_

#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace reshard::io {

// Whether a living process holds one of the workers' locks in `stage`, other than the one called `own`.
absl::StatusOr<bool> OthersLive(const std::string& stage, const std::string& own);

// Makes STAGE/terms `terms`, a line or none, for as long as the lock `own` is held. FailedPrecondition: it has other
// terms, by which other processes live.
absl::Status AgreeOnTerms(const std::string& stage, const std::string& own, std::string_view terms);

}  // namespace reshard::io

#endif  // RESHARD_CHECKPOINT_IO_STAGE_TERMS_H_
