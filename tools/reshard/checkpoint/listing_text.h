// What `reshard inspect` prints of a checkpoint.
#ifndef RESHARD_TOOLS_RESHARD_CHECKPOINT_LISTING_TEXT_H_
#define RESHARD_TOOLS_RESHARD_CHECKPOINT_LISTING_TEXT_H_

#include <string>

#include "reshard/checkpoint/report.h"

namespace reshard::tool {

// The names as a tree, with one line per tensor, and the totals.
std::string ListingText(const Listing& listing, bool with_chunks);

}  // namespace reshard::tool

#endif  // RESHARD_TOOLS_RESHARD_CHECKPOINT_LISTING_TEXT_H_
