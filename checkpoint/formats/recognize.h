// Recognizes checkpoints of other kinds, and says what they are.
#ifndef RESHARD_CHECKPOINT_FORMATS_RECOGNIZE_H_
#define RESHARD_CHECKPOINT_FORMATS_RECOGNIZE_H_

#include <string>
#include <string_view>

#include "absl/status/status.h"

namespace reshard::formats {

// Says what is at a path at which no format has found a checkpoint, and what to do about it. Judges by names, in the
// directory and in those below it, and by the first bytes of a file; reads nothing beyond those.
// Unimplemented: a checkpoint of a kind that is not read (DeepSpeed, ...), or only by the Python package (Orbax, GGUF,
// ...). DataLoss: a save that did not finish. InvalidArgument: a directory of checkpoints, with the one that was saved
// last; a pipeline of diffusers, with its models. OK: nothing that is known, or nothing that could be looked at.
absl::Status Recognize(const std::string& path);

// The scheme of the store that reads what is at the path, judged in the same way: "orbax", "gguf", ... Empty where
// there is none.
std::string_view ReaderOf(const std::string& path);

}  // namespace reshard::formats

#endif  // RESHARD_CHECKPOINT_FORMATS_RECOGNIZE_H_
