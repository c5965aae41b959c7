// What `reshard inspect` shows of a checkpoint, before it becomes text or JSON.
#ifndef RESHARD_TOOLS_RESHARD_CHECKPOINT_LISTING_H_
#define RESHARD_TOOLS_RESHARD_CHECKPOINT_LISTING_H_

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "reshard/checkpoint/catalog.h"
#include "reshard/checkpoint/recorded_layouts.h"
#include "reshard/checkpoint/side_files.h"

namespace reshard::tool {

// The tensors and byte items whose names match, in the order of the catalog, which they point into.
struct Listing {
  struct Totals {
    int64_t tensors = 0;
    int64_t chunks = 0;
    int64_t bytes = 0;       // of the elements of the tensors; 2^63 - 1 if the sum does not fit
    int64_t item_bytes = 0;  // of the byte items
    int64_t files = 0;       // of the checkpoint; with a pattern, those that the listed parts are in
  };
  const Catalog* catalog = nullptr;
  std::vector<const Catalog::Tensor*> tensors;
  std::vector<const Catalog::ByteItem*> byte_items;
  Totals totals;
  std::map<std::string, RecordedLayout> layouts;      // by the name of the tensor
  std::vector<const Catalog::Attribute*> attributes;  // of the whole checkpoint; without a pattern
  SideFiles beside;                                   // without a pattern
};

// `pattern` is as in layout rules; empty matches everything.
Listing List(const Catalog& catalog, std::string_view pattern);

// "bf16"; if this library has no such dtype, what the file calls it.
std::string_view DTypeText(const Catalog::Tensor& tensor);

// The layout recorded for the tensor, or null if there is none.
const RecordedLayout* LayoutOf(const Listing& listing, const Catalog::Tensor& tensor);

// The names as a tree, with one line per tensor, and the totals.
std::string ListingText(const Listing& listing, bool with_chunks);
// One object, schema reshard.inspect/1.
std::string ListingJson(const Listing& listing, bool with_chunks);

}  // namespace reshard::tool

#endif  // RESHARD_TOOLS_RESHARD_CHECKPOINT_LISTING_H_
