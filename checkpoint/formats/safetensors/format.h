// What readers and writers of safetensors share.
#ifndef RESHARD_CHECKPOINT_FORMATS_SAFETENSORS_FORMAT_H_
#define RESHARD_CHECKPOINT_FORMATS_SAFETENSORS_FORMAT_H_

#include <string_view>

#include "checkpoint/catalog/format_traits.h"
#include "reshard/checkpoint/catalog.h"

namespace reshard::safetensors {

inline constexpr catalog::FormatTraits kFormat = {
    .format = CheckpointFormat::kSafetensors,
    .name = "safetensors",
    .may_be_links = true,
    .files_begin_with_header = true,
    .is_header = [](std::string_view name) { return name.ends_with(".index.json"); },
    .completes = [](std::string_view name) { return name.ends_with(".index.json"); },
};

}  // namespace reshard::safetensors

#endif  // RESHARD_CHECKPOINT_FORMATS_SAFETENSORS_FORMAT_H_
