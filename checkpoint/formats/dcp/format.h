// What readers and writers of PyTorch's distributed checkpoints share.
#ifndef RESHARD_CHECKPOINT_FORMATS_DCP_FORMAT_H_
#define RESHARD_CHECKPOINT_FORMATS_DCP_FORMAT_H_

#include <string_view>

#include "checkpoint/catalog/format_traits.h"
#include "reshard/checkpoint/catalog.h"

namespace reshard::dcp {

// The file that says what is where.
inline constexpr std::string_view kMetadataName = ".metadata";

inline constexpr catalog::FormatTraits kFormat = {
    .format = CheckpointFormat::kDcp,
    .name = "dcp",
    .chunks_are_archives = true,
    .replicas_come_again = true,
    .is_header = [](std::string_view name) { return name.ends_with(kMetadataName); },
    .completes = [](std::string_view name) { return name == kMetadataName; },
};

}  // namespace reshard::dcp

#endif  // RESHARD_CHECKPOINT_FORMATS_DCP_FORMAT_H_
