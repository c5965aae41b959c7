// Errors that say of which kind they are: what KindOf of convert.h finds again.
#ifndef RESHARD_CHECKPOINT_JOB_CONVERT_ERROR_H_
#define RESHARD_CHECKPOINT_JOB_CONVERT_ERROR_H_

#include "absl/status/status.h"
#include "reshard/checkpoint/convert.h"

namespace reshard {

absl::Status WithKind(absl::Status status, CheckpointError kind);

// Of the system's errors only a full disk looks like something else.
absl::Status FromSystem(absl::Status status);

}  // namespace reshard

#endif  // RESHARD_CHECKPOINT_JOB_CONVERT_ERROR_H_
