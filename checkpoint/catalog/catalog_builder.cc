#include "checkpoint/catalog/catalog_builder.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/hash/hash.h"
#include "absl/strings/str_cat.h"
#include "checkpoint/catalog/catalog_lookup.h"
#include "checkpoint/io/files.h"
#include "checkpoint/io/show.h"
#include "checkpoint/stores/url.h"
#include "reshard/layout/checked.h"
#include "status/macros.h"

namespace reshard::catalog {
namespace {

// No framework has tensors of more.
constexpr size_t kMostDimensions = 64;

// What the views of a catalog point into: many short texts and shapes, few allocations.
class Arena {
 public:
  std::string_view Keep(std::string_view text) {
    if (text.empty()) return {};
    char* const at = Take(text.size(), 1);
    std::memcpy(at, text.data(), text.size());
    return {at, text.size()};
  }
  absl::Span<const int64_t> Keep(absl::Span<const int64_t> numbers) {
    if (numbers.empty()) return {};
    char* const at = Take(numbers.size() * sizeof(int64_t), alignof(int64_t));
    std::memcpy(at, numbers.data(), numbers.size() * sizeof(int64_t));
    return {reinterpret_cast<const int64_t*>(at), numbers.size()};
  }

 private:
  static constexpr size_t kBlock = size_t{64} << 10;

  char* Take(size_t bytes, size_t alignment) {
    used_ = (used_ + alignment - 1) / alignment * alignment;
    if (blocks_.empty() || used_ + bytes > capacity_) {
      capacity_ = std::max(kBlock, bytes);
      blocks_.push_back(std::make_unique<char[]>(capacity_));
      used_ = 0;
    }
    char* const at = blocks_.back().get() + used_;
    used_ += bytes;
    return at;
  }

  std::vector<std::unique_ptr<char[]>> blocks_;
  size_t used_ = 0;
  size_t capacity_ = 0;
};

// Refuses links on the way from the directory to a file of it.
absl::Status CheckParents(const std::string& root, const std::string& path) {
  if (stores::IsUrl(root)) return absl::OkStatus();  // servers have none
  for (size_t slash = path.find('/'); slash != std::string::npos; slash = path.find('/', slash + 1)) {
    const std::string parent = io::JoinPath(root, path.substr(0, slash));
    ASSIGN_OR_RETURN(const io::FileKind kind, io::KindOf(parent));
    if (kind == io::FileKind::kLink) return absl::DataLossError(absl::StrCat(parent, " is a symbolic link"));
  }
  return absl::OkStatus();
}

}  // namespace

struct CatalogBuilder::State {
  // Chunks that were added in one go: a tensor has several of them when its name came again.
  struct Run {
    int64_t tensor = 0;
    int64_t first_chunk = 0;
    int64_t num_chunks = 0;
    int64_t first_box = 0;
  };

  const FormatTraits* format = nullptr;
  std::string root;
  std::shared_ptr<Arena> arena = std::make_shared<Arena>();
  std::vector<Catalog::File> files;
  absl::flat_hash_map<std::string, int32_t> file_index;
  absl::flat_hash_set<int32_t> opened;  // files that need not be looked at
  std::vector<Catalog::Tensor> tensors;
  std::vector<Catalog::ByteItem> byte_items;
  std::vector<Catalog::FileRange> places;
  std::vector<std::shared_ptr<const StoredElements>> elements;  // of all places, or none
  std::vector<int64_t> boxes;
  std::vector<Run> runs;
  bool again = false;  // some name came more than once
  std::vector<Catalog::Attribute> attributes;
  std::vector<Catalog::RankLocal> rank_local;
  std::string incomplete;
  bool has_index = false;
  std::vector<std::pair<std::string, std::string>> notes;
  std::shared_ptr<CatalogLookup> lookup = std::make_shared<CatalogLookup>();
  std::string_view last_dtype;  // kept already: nearly all tensors share one

  absl::Status FindFiles();
  absl::Status CheckPlace(std::string_view name, const Catalog::FileRange& place) const;
  void JoinRuns();
};

CatalogBuilder::CatalogBuilder(const FormatTraits& format, std::string root) : state_(std::make_shared<State>()) {
  state_->format = &format;
  state_->root = std::move(root);
}

absl::StatusOr<int32_t> CatalogBuilder::AddFile(std::string_view path) {
  const std::string text(path);
  if (const auto found = state_->file_index.find(text); found != state_->file_index.end()) return found->second;
  RETURN_IF_ERROR(io::CheckRelativePath(path));
  const auto index = static_cast<int32_t>(state_->files.size());
  state_->files.push_back({text});
  state_->file_index.emplace(text, index);
  return index;
}

void CatalogBuilder::SetOpened(int32_t index, const io::ReadFile& opened) {
  Catalog::File& file = state_->files[index];
  file.bytes = opened.bytes();
  file.modified = opened.modified();
  state_->opened.insert(index);
}

int32_t CatalogBuilder::AddContent(std::string path) {
  const auto index = static_cast<int32_t>(state_->files.size());
  state_->files.push_back({std::move(path), 0, 0, std::make_shared<const std::string>()});
  return index;
}

void CatalogBuilder::SetContent(int32_t index, std::string bytes) {
  Catalog::File& file = state_->files[index];
  file.bytes = static_cast<int64_t>(bytes.size());
  file.content = std::make_shared<const std::string>(std::move(bytes));
}

absl::Status CatalogBuilder::AddTensor(std::string_view name, std::string_view stored_dtype, std::optional<DType> dtype,
                                       absl::Span<const int64_t> shape, bool requires_grad) {
  State& state = *state_;
  const auto bad = [&](const auto&... why) {
    return absl::DataLossError(absl::StrCat("tensor ", io::Shown(name), ": ", why...));
  };
  if (shape.size() > kMostDimensions) return bad(shape.size(), " dimensions");
  // A 0 among the sizes makes the tensor empty, not the others harmless: strides are products of them.
  std::optional<int64_t> product = dtype ? SizeOf(*dtype) : 1;
  bool empty = false;
  for (const int64_t size : shape) {
    if (size < 0) return bad("a negative size in ", io::Shown(shape));
    empty |= size == 0;
    if (product) product = CheckedMul(*product, std::max<int64_t>(size, 1));
  }
  if (!product) return bad("the bytes of ", io::Shown(shape), " overflow");

  const auto found = state.lookup->items.find(name);
  if (found != state.lookup->items.end()) {
    if (found->second < 0) return bad("the name is that of a byte item");
    const Catalog::Tensor& before = state.tensors[found->second];
    if (before.stored_dtype != stored_dtype || before.shape != shape) {
      return bad("is ", io::Shown(before.stored_dtype), " of ", io::Shown(before.shape), " in one place and ",
                 io::Shown(stored_dtype), " of ", io::Shown(shape), " in another");
    }
    state.again = true;
    state.runs.push_back(
        {found->second, static_cast<int64_t>(state.places.size()), 0, static_cast<int64_t>(state.boxes.size())});
    return absl::OkStatus();
  }

  const auto index = static_cast<int64_t>(state.tensors.size());
  Catalog::Tensor tensor;
  tensor.name = tensor.stored_name = state.arena->Keep(name);
  if (state.last_dtype != stored_dtype) state.last_dtype = state.arena->Keep(stored_dtype);
  tensor.stored_dtype = state.last_dtype;
  tensor.dtype = dtype;
  tensor.shape = state.arena->Keep(shape);
  tensor.bytes = empty || !dtype ? 0 : *product;
  tensor.requires_grad = requires_grad;
  state.lookup->items.emplace(tensor.name, index);
  state.tensors.push_back(tensor);
  state.runs.push_back({index, static_cast<int64_t>(state.places.size()), 0, static_cast<int64_t>(state.boxes.size())});
  return absl::OkStatus();
}

void CatalogBuilder::ReserveChunks(size_t chunks, size_t numbers) {
  State& state = *state_;
  state.places.reserve(state.places.size() + chunks);
  state.boxes.reserve(state.boxes.size() + numbers);
}

absl::Status CatalogBuilder::AddChunk(absl::Span<const int64_t> offset, absl::Span<const int64_t> size,
                                      const Catalog::FileRange& place) {
  State& state = *state_;
  if (state.runs.empty()) return absl::InternalError("AddChunk before AddTensor");
  const Catalog::Tensor& tensor = state.tensors[state.runs.back().tensor];
  bool inside = offset.size() == tensor.shape.size() && size.size() == tensor.shape.size();
  for (size_t d = 0; inside && d < offset.size(); ++d) {
    inside = offset[d] >= 0 && size[d] >= 0 && offset[d] <= tensor.shape[d] && size[d] <= tensor.shape[d] - offset[d];
  }
  if (!inside) {
    return absl::DataLossError(absl::StrCat("tensor ", io::Shown(tensor.name), ": a chunk at ", io::Shown(offset),
                                            " of size ", io::Shown(size), " is not part of ", io::Shown(tensor.shape)));
  }
  state.places.push_back(place);
  state.boxes.insert(state.boxes.end(), offset.begin(), offset.end());
  state.boxes.insert(state.boxes.end(), size.begin(), size.end());
  ++state.runs.back().num_chunks;
  return absl::OkStatus();
}

absl::Status CatalogBuilder::AddChunk(absl::Span<const int64_t> offset, int32_t file, StoredElements elements) {
  State& state = *state_;
  int64_t last = 0;  // every element is within the record, so nothing overflows
  bool empty = false;
  for (size_t d = 0; d < elements.shape.size(); ++d) {
    empty |= elements.shape[d] == 0;
    last += (elements.shape[d] - 1) * elements.strides[d];
  }
  const int64_t bytes = empty ? 0 : (last + 1) * SizeOf(elements.dtype);
  RETURN_IF_ERROR(AddChunk(offset, elements.shape, {file, elements.first_at, bytes}));
  state.elements.resize(state.places.size() - 1);
  state.elements.push_back(std::make_shared<const StoredElements>(std::move(elements)));
  return absl::OkStatus();
}

absl::Status CatalogBuilder::AddByteItem(std::string_view name, const Catalog::FileRange& place) {
  const auto found = state_->lookup->items.find(name);
  if (found != state_->lookup->items.end()) {
    if (found->second < 0 && state_->format->replicas_come_again) return absl::OkStatus();
    return absl::DataLossError(absl::StrCat("the name ", io::Shown(name), " appears twice"));
  }
  const std::string_view kept = state_->arena->Keep(name);
  state_->lookup->items.emplace(kept, -1 - static_cast<int64_t>(state_->byte_items.size()));
  state_->byte_items.push_back({kept, place});
  return absl::OkStatus();
}

// NOLINTNEXTLINE(performance-unnecessary-value-param): it is moved from, through a template
void CatalogBuilder::AddPath(std::string_view name, std::vector<Catalog::PathStep> path) {
  if (state_->lookup->paths.contains(name)) return;
  state_->lookup->paths.emplace(state_->arena->Keep(name), std::move(path));
}

void CatalogBuilder::AddAttribute(Catalog::Attribute attribute) {
  const auto same = [&](const Catalog::Attribute& other) { return other.name == attribute.name; };
  if (std::any_of(state_->attributes.begin(), state_->attributes.end(), same)) return;
  state_->attributes.push_back(std::move(attribute));
}

absl::Status CatalogBuilder::MakeRankLocal(std::string_view name, std::string_view rank_name) {
  CatalogLookup& lookup = *state_->lookup;
  const auto found = lookup.items.find(name);
  if (found == lookup.items.end()) return absl::InternalError("a name that was not added");
  const int64_t number = found->second;
  const std::string_view kept = state_->arena->Keep(rank_name);
  if (!lookup.items.emplace(kept, number).second) {
    return absl::DataLossError(absl::StrCat("the name ", io::Shown(rank_name), " appears twice"));
  }
  if (number >= 0) {
    Catalog::Tensor& tensor = state_->tensors[number];
    tensor.name = tensor.stored_name = kept;
  } else {
    state_->byte_items[-1 - number].name = kept;
  }
  lookup.items.erase(name);
  lookup.paths.erase(name);
  SetRankLocal(name, kept);
  return absl::OkStatus();
}

void CatalogBuilder::SetRankLocal(std::string_view name, std::string_view rank_name) {
  state_->lookup->names_in_files.emplace(state_->arena->Keep(rank_name), state_->arena->Keep(name));
}

void CatalogBuilder::AddRankLocal(Catalog::RankLocal rank_local) {
  state_->rank_local.push_back(std::move(rank_local));
}

void CatalogBuilder::SetIncomplete(std::string why) { state_->incomplete = std::move(why); }

void CatalogBuilder::SetHasIndex() { state_->has_index = true; }

void CatalogBuilder::AddNote(std::string_view key, std::string_view value) {
  state_->notes.emplace_back(std::string(key), std::string(value));
}

absl::Status CatalogBuilder::State::FindFiles() {
  const bool links = format->may_be_links;
  std::vector<std::string> names;
  std::vector<Catalog::File*> asked;
  for (size_t i = 0; i < files.size(); ++i) {
    Catalog::File& file = files[i];
    if (file.content != nullptr) continue;
    if (!links) RETURN_IF_ERROR(CheckParents(root, file.path));
    if (opened.contains(static_cast<int32_t>(i))) continue;
    names.push_back(file.path);
    asked.push_back(&file);
  }
  const std::vector<absl::StatusOr<io::FileFacts>> facts = io::LookAt(root, names, links);
  for (size_t i = 0; i < asked.size(); ++i) {
    const absl::StatusOr<io::FileFacts>& found = facts[i];
    if (absl::IsNotFound(found.status())) {
      return absl::DataLossError(absl::StrCat("the file ", io::Shown(names[i]), " is missing"));
    }
    if (!found.ok()) return found.status();
    asked[i]->bytes = found->bytes;
    asked[i]->modified = found->modified;
  }
  return absl::OkStatus();
}

absl::Status CatalogBuilder::State::CheckPlace(std::string_view name, const Catalog::FileRange& place) const {
  if (place.file < 0 || place.file >= static_cast<int64_t>(files.size())) {
    return absl::InternalError("a place in a file that was not added");
  }
  const Catalog::File& file = files[place.file];
  if (place.at >= 0 && place.length >= 0 && place.length <= file.bytes && place.at <= file.bytes - place.length) {
    return absl::OkStatus();
  }
  return absl::DataLossError(absl::StrCat(io::Shown(name), " is at bytes ", place.at, " + ", place.length, " of ",
                                          io::Shown(file.path), ", which has ", file.bytes));
}

// Puts the chunks of each tensor side by side, without those that it has already.
void CatalogBuilder::State::JoinRuns() {
  std::stable_sort(runs.begin(), runs.end(), [](const Run& a, const Run& b) { return a.tensor < b.tensor; });
  std::vector<Catalog::FileRange> joined_places;
  std::vector<std::shared_ptr<const StoredElements>> joined_elements;
  std::vector<int64_t> joined_boxes;
  std::vector<Run> joined;
  joined_places.reserve(places.size());
  joined_boxes.reserve(boxes.size());
  if (!elements.empty()) elements.resize(places.size());
  absl::flat_hash_set<std::vector<int64_t>> seen;
  for (size_t first = 0, last = 0; first < runs.size(); first = last) {
    while (last < runs.size() && runs[last].tensor == runs[first].tensor) ++last;
    Run all = {runs[first].tensor, static_cast<int64_t>(joined_places.size()), 0,
               static_cast<int64_t>(joined_boxes.size())};
    const size_t width = 2 * tensors[all.tensor].shape.size();
    seen.clear();
    for (size_t r = first; r < last; ++r) {
      for (int64_t i = 0; i < runs[r].num_chunks; ++i) {
        const Catalog::FileRange& place = places[runs[r].first_chunk + i];
        const auto box = boxes.begin() + runs[r].first_box + i * static_cast<int64_t>(width);
        std::vector<int64_t> key(box, box + static_cast<int64_t>(width));
        if (!format->replicas_come_again) key.insert(key.end(), {place.file, place.at, place.length});
        if (last - first > 1 && !seen.insert(std::move(key)).second) continue;
        joined_places.push_back(place);
        if (!elements.empty()) {
          joined_elements.push_back(std::move(elements[runs[r].first_chunk + i]));
        }
        joined_boxes.insert(joined_boxes.end(), box, box + static_cast<int64_t>(width));
        ++all.num_chunks;
      }
    }
    joined.push_back(all);
  }
  places = std::move(joined_places);
  elements = std::move(joined_elements);
  boxes = std::move(joined_boxes);
  runs = std::move(joined);
}

absl::StatusOr<Catalog> CatalogBuilder::Build() && {
  State& state = *state_;
  RETURN_IF_ERROR(state.FindFiles());
  if (state.again) state.JoinRuns();

  for (const State::Run& run : state.runs) {  // one per tensor, in their order
    Catalog::Tensor& tensor = state.tensors[run.tensor];
    tensor.first_chunk = run.first_chunk;
    tensor.num_chunks = run.num_chunks;
    tensor.first_box = run.first_box;
    for (int64_t i = 0; i < run.num_chunks; ++i) {
      const Catalog::FileRange& place = state.places[run.first_chunk + i];
      RETURN_IF_ERROR(state.CheckPlace(tensor.name, place));
    }
  }
  for (const Catalog::ByteItem& item : state.byte_items) {
    RETURN_IF_ERROR(state.CheckPlace(item.name, item.place));
  }
  return Take();
}

Catalog CatalogBuilder::BuildUnstored() && { return Take(); }

Catalog CatalogBuilder::Take() {
  State& state = *state_;
  Catalog catalog;
  catalog.traits_ = state.format;
  catalog.root_ = std::move(state.root);
  catalog.files_ = std::move(state.files);
  catalog.tensors_ = std::move(state.tensors);
  catalog.byte_items_ = std::move(state.byte_items);
  catalog.places_ = std::move(state.places);
  if (!state.elements.empty()) state.elements.resize(catalog.places_.size());
  catalog.elements_ = std::move(state.elements);
  catalog.boxes_ = std::move(state.boxes);
  catalog.names_ = std::move(state.arena);
  catalog.attributes_ = std::move(state.attributes);
  catalog.rank_local_ = std::move(state.rank_local);
  catalog.incomplete_ = std::move(state.incomplete);
  catalog.has_index_ = state.has_index;
  catalog.notes_ = std::move(state.notes);
  catalog.lookup_ = std::move(state.lookup);
  return catalog;
}

}  // namespace reshard::catalog
