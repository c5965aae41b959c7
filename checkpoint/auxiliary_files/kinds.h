// What the name of a file beside a checkpoint says of it. `path` is relative to the checkpoint's directory.
#ifndef RESHARD_CHECKPOINT_AUXILIARY_FILES_KINDS_H_
#define RESHARD_CHECKPOINT_AUXILIARY_FILES_KINDS_H_

#include <string_view>

namespace reshard::auxiliary_files {

// Whether a framework looks for it beside a checkpoint: beside every checkpoint or, if `beside_dcp`, beside distributed
// checkpoints.
bool IsLookedFor(std::string_view path, bool beside_dcp);

// Whether a framework looks for files below that directory, which ends with '/'.
bool IsLookedInto(std::string_view directory);

// Whether it has tensors, or says where tensors are, in any format; or is written by this library.
bool HasTensors(std::string_view path);

// Whether loading it may run what is in it: pickles, Python source.
bool MayRun(std::string_view path);

}  // namespace reshard::auxiliary_files

#endif  // RESHARD_CHECKPOINT_AUXILIARY_FILES_KINDS_H_
