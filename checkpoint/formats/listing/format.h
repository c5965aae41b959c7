// What readers of listings share.
#ifndef RESHARD_CHECKPOINT_FORMATS_LISTING_FORMAT_H_
#define RESHARD_CHECKPOINT_FORMATS_LISTING_FORMAT_H_

#include <string_view>

#include "checkpoint/catalog/format_traits.h"
#include "reshard/checkpoint/catalog.h"

namespace reshard::listing {

inline constexpr std::string_view kFileName = "reshard.listing.json";

inline constexpr catalog::FormatTraits kFormat = {
    .format = CheckpointFormat::kListing,
    .name = "listing",
    .may_be_links = true,
    .is_header = [](std::string_view name) { return name == kFileName; },
};

}  // namespace reshard::listing

#endif  // RESHARD_CHECKPOINT_FORMATS_LISTING_FORMAT_H_
