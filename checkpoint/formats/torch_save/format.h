// What the readers of torch.save's files share.
#ifndef RESHARD_CHECKPOINT_FORMATS_TORCH_SAVE_FORMAT_H_
#define RESHARD_CHECKPOINT_FORMATS_TORCH_SAVE_FORMAT_H_

#include <string_view>

#include "checkpoint/catalog/format_traits.h"
#include "reshard/checkpoint/catalog.h"

namespace reshard::torch_save {

inline constexpr catalog::FormatTraits kFormat = {
    .format = CheckpointFormat::kTorchSave,
    .name = "torch_save",
    .may_be_links = true,
    .is_header = [](std::string_view name) { return name.ends_with(".index.json"); },
};

// The same, in a file for each rank.
inline constexpr catalog::FormatTraits kFormatOfRanks = {
    .format = CheckpointFormat::kTorchSave,
    .name = "torch_save",
    .may_be_links = true,
    .replicas_come_again = true,
    .is_header = [](std::string_view) { return false; },
};

}  // namespace reshard::torch_save

#endif  // RESHARD_CHECKPOINT_FORMATS_TORCH_SAVE_FORMAT_H_
