// The kinds of errors of everything that reads or writes checkpoints.
#ifndef RESHARD_CHECKPOINT_ERROR_H_
#define RESHARD_CHECKPOINT_ERROR_H_

#include "absl/status/status.h"

namespace reshard {

// Why an operation was refused or failed; decides the exit code of the command.
enum class CheckpointError {
  kInput,        // the source, the rules, or what they ask for
  kMemoryLimit,  // it does not fit in memory_limit
  kSystem,       // the operating system: files, disk space, something at the destination; a server
  kPeer,         // other workers did not finish
  kInternal,     // a bug in this library
};
// The kind of an error that reading, converting or comparing checkpoints returned. Requires !status.ok().
CheckpointError KindOf(const absl::Status& status);

}  // namespace reshard

#endif  // RESHARD_CHECKPOINT_ERROR_H_
