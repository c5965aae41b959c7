#include "reshard/checkpoint/catalog.h"

#include <cassert>
#include <limits>
#include <string>

#include "absl/strings/str_cat.h"
#include "checkpoint/catalog/catalog_lookup.h"
#include "checkpoint/catalog/cover.h"
#include "checkpoint/catalog/format_traits.h"
#include "checkpoint/io/show.h"
#include "reshard/layout/checked.h"

namespace reshard {

CheckpointFormat Catalog::format() const { return traits_ == nullptr ? CheckpointFormat::kDcp : traits_->format; }

std::string Catalog::Attribute::Label() const {
  return is_opaque_value() ? absl::StrCat(name, " (", kind, ")") : absl::StrCat("attribute ", name);
}

std::string_view Catalog::NameInFiles(std::string_view name) const {
  if (lookup_ == nullptr) return name;
  const auto found = lookup_->names_in_files.find(name);
  return found == lookup_->names_in_files.end() ? name : found->second;
}

const Catalog::Tensor* Catalog::FindTensor(std::string_view name) const {
  if (lookup_ == nullptr) return nullptr;
  const auto found = lookup_->items.find(name);
  return found == lookup_->items.end() || found->second < 0 ? nullptr : &tensors_[found->second];
}

const Catalog::ByteItem* Catalog::FindByteItem(std::string_view name) const {
  if (lookup_ == nullptr) return nullptr;
  const auto found = lookup_->items.find(name);
  if (found == lookup_->items.end() || found->second >= 0) return nullptr;
  return &byte_items_[-1 - found->second];
}

const std::vector<Catalog::PathStep>* Catalog::PathOf(std::string_view name) const {
  if (lookup_ == nullptr) return nullptr;
  const auto found = lookup_->paths.find(name);
  return found == lookup_->paths.end() ? nullptr : &found->second;
}

Catalog::Chunk Catalog::chunk(const Tensor& tensor, int64_t index) const {
  assert(index >= 0 && index < tensor.num_chunks);
  const size_t rank = tensor.shape.size();
  const int64_t* const box = boxes_.data() + tensor.first_box + index * static_cast<int64_t>(2 * rank);
  return {{box, rank}, {box + rank, rank}, places_[tensor.first_chunk + index]};
}

const catalog::StoredElements* Catalog::StoredAs(const Tensor& tensor, int64_t index) const {
  return elements_.empty() ? nullptr : elements_[tensor.first_chunk + index].get();
}

int64_t Catalog::BytesOf(const Tensor& tensor) const {
  if (tensor.dtype || traits().chunks_are_archives) return tensor.bytes;
  int64_t bytes = 0;
  for (int64_t i = 0; i < tensor.num_chunks; ++i) {
    bytes = CheckedAdd(bytes, chunk(tensor, i).place.length).value_or(std::numeric_limits<int64_t>::max());
  }
  return bytes;
}

absl::Status Catalog::CheckCover(const Tensor& tensor) const {
  const int64_t width = static_cast<int64_t>(2 * tensor.shape.size());
  const absl::Span<const int64_t> boxes(boxes_.data() + tensor.first_box,
                                        static_cast<size_t>(width * tensor.num_chunks));
  const std::optional<catalog::CoverFault> fault = catalog::FindCoverFault(tensor.shape, boxes, tensor.num_chunks);
  if (!fault) return absl::OkStatus();
  return absl::DataLossError(
      absl::StrCat("tensor ", io::Shown(tensor.name), ": element ", io::Shown(fault->index),
                   fault->twice ? " is in more than one chunk" : " is in no chunk; the checkpoint has a hole"));
}

}  // namespace reshard
