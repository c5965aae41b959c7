#include <algorithm>
#include <limits>
#include <set>
#include <vector>

#include "reshard/checkpoint/report.h"
#include "reshard/checkpoint/rules.h"
#include "reshard/layout/checked.h"

namespace reshard {
namespace {

// The bytes of each tensor fit in 64 bits, but the sum over tensors that a damaged file makes up may not.
int64_t Sum(int64_t a, int64_t b) { return CheckedAdd(a, b).value_or(std::numeric_limits<int64_t>::max()); }

}  // namespace

Listing List(const Catalog& catalog, std::string_view pattern) {
  Listing listing;
  listing.catalog = &catalog;
  const auto wanted = [&](std::string_view name) { return pattern.empty() || MatchesPattern(pattern, name); };
  std::vector<bool> in_use(catalog.files().size());  // where not all are
  const auto in_file = [&](const Catalog::FileRange& place) { in_use[place.file] = true; };
  for (const Catalog::Tensor& tensor : catalog.tensors()) {
    if (!wanted(tensor.name)) continue;
    listing.tensors.push_back(&tensor);
    listing.totals.chunks += tensor.num_chunks;
    listing.totals.bytes = Sum(listing.totals.bytes, catalog.BytesOf(tensor));
    for (int64_t i = 0; i < tensor.num_chunks && !pattern.empty(); ++i) in_file(catalog.chunk(tensor, i).place);
  }
  for (const Catalog::ByteItem& item : catalog.byte_items()) {
    if (!wanted(item.name)) continue;
    listing.byte_items.push_back(&item);
    listing.totals.item_bytes = Sum(listing.totals.item_bytes, item.place.length);
    in_file(item.place);
  }
  listing.totals.tensors = static_cast<int64_t>(listing.tensors.size());
  std::set<std::string_view> files;
  for (size_t i = 0; i < in_use.size(); ++i) {
    if (!in_use[i]) continue;
    // Bytes that were made of a file count as that file.
    const Catalog::File& file = catalog.files()[i];
    files.insert(
        std::string_view(file.path).substr(0, file.content == nullptr ? file.path.npos : file.path.rfind('#')));
  }
  const auto is_made = [](const Catalog::File& file) { return file.content != nullptr; };
  const auto made = std::count_if(catalog.files().begin(), catalog.files().end(), is_made);
  listing.totals.files = static_cast<int64_t>(pattern.empty() ? catalog.files().size() : files.size());
  if (!pattern.empty()) return listing;
  listing.totals.files -= made;
  for (const Catalog::Attribute& attribute : catalog.attributes()) listing.attributes.push_back(&attribute);
  return listing;
}

const RecordedLayout* LayoutOf(const Listing& listing, const Catalog::Tensor& tensor) {
  const auto found = listing.layouts.find(std::string(tensor.name));
  return found == listing.layouts.end() ? nullptr : &found->second;
}

}  // namespace reshard
