// What is in a checkpoint of Orbax that this library has written: arrays of Zarr 2 that are not compressed, and a
// listing of them, by which it is read again. Those of other programs are read through tensorstore
// (python/reshard/sources/orbax.py).
#ifndef RESHARD_CHECKPOINT_FORMATS_ORBAX_FORMAT_H_
#define RESHARD_CHECKPOINT_FORMATS_ORBAX_FORMAT_H_

#include <string_view>

#include "checkpoint/catalog/format_traits.h"
#include "checkpoint/formats/listing/format.h"
#include "reshard/checkpoint/catalog.h"

namespace reshard::orbax {

inline constexpr std::string_view kTreeName = "_METADATA";
inline constexpr std::string_view kCheckpointName = "_CHECKPOINT_METADATA";
inline constexpr std::string_view kCommitName = "commit_success.txt";
inline constexpr std::string_view kArraySuffix = "/.zarray";

// Whether a file of that name, with or without its folders, is a header.
inline bool IsHeader(std::string_view name) {
  return name == listing::kFileName || name == kTreeName || name == kCheckpointName || name == kCommitName ||
         name == kArraySuffix.substr(1) || name.ends_with(kArraySuffix);
}

inline constexpr catalog::FormatTraits kFormat = {
    .format = CheckpointFormat::kOrbax,
    .name = "orbax",
    .is_header = IsHeader,
    .completes = [](std::string_view name) { return name == kCommitName; },
};

}  // namespace reshard::orbax

#endif  // RESHARD_CHECKPOINT_FORMATS_ORBAX_FORMAT_H_
