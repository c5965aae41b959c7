// Attaches to errors the kind that KindOf (reshard/checkpoint/error.h) returns.
#ifndef RESHARD_CHECKPOINT_IO_ERROR_KIND_H_
#define RESHARD_CHECKPOINT_IO_ERROR_KIND_H_

#include "absl/status/status.h"
#include "reshard/checkpoint/error.h"

namespace reshard::io {

absl::Status WithKind(absl::Status status, CheckpointError kind);

// Marks an error of the system that no call reported: another process is in the way, or a file is not what this one
// left. Errors of calls (see SystemError in files.h) have their kind.
absl::Status FromSystem(absl::Status status);

}  // namespace reshard::io

#endif  // RESHARD_CHECKPOINT_IO_ERROR_KIND_H_
