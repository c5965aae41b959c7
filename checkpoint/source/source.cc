#include "checkpoint/source/source.h"

#include <libdeflate.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <map>
#include <mutex>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "checkpoint/catalog/format_traits.h"
#include "checkpoint/catalog/stored_elements.h"
#include "checkpoint/formats/torch_save/tensor_stream.h"
#include "checkpoint/formats/zip/reader.h"
#include "checkpoint/hash/hash.h"
#include "checkpoint/io/files.h"
#include "checkpoint/io/show.h"
#include "checkpoint/source/chunk_index.h"
#include "checkpoint/source/read_box.h"
#include "checkpoint/source/sidecar_match.h"
#include "checkpoint/views/node_hash.h"
#include "checkpoint/views/read_view.h"
#include "status/macros.h"

namespace reshard::source {
namespace {

constexpr int64_t kCheckedAtOnce = int64_t{256} << 10;
// Chunks whose streams are remembered; the others are looked into again.
constexpr size_t kStreamsKept = 4096;
constexpr size_t kFilesOpen = 256;

// Copies a dense box to its place in a larger dense one.
void PlaceBox(const char* from, absl::Span<const int64_t> size, absl::Span<const int64_t> at,
              absl::Span<const int64_t> whole, int64_t element, char* to) {
  // Dimensions behind `d` are whole: their elements are one run.
  size_t d = size.size();
  int64_t run = element;
  while (d > 0 && size[d - 1] == whole[d - 1]) run *= size[--d];
  if (d > 0) run *= size[--d];
  std::vector<int64_t> strides(whole.size());
  int64_t stride = element;
  for (size_t k = whole.size(); k-- > 0;) {
    strides[k] = stride;
    stride *= whole[k];
  }
  int64_t start = 0;
  for (size_t k = 0; k < at.size(); ++k) start += at[k] * strides[k];
  std::vector<int64_t> index(d, 0);
  for (;;) {
    int64_t offset = start;
    for (size_t k = 0; k < d; ++k) offset += index[k] * strides[k];
    std::memcpy(to + offset, from, static_cast<size_t>(run));
    from += run;
    size_t k = d;
    while (k-- > 0) {
      if (++index[k] < size[k]) break;
      index[k] = 0;
    }
    if (k == static_cast<size_t>(-1)) return;
  }
}

}  // namespace

struct Source::State {
  Catalog catalog;  // of what is stored
  std::optional<views::Applied> applied;
  ChunkChecks checks = ChunkChecks::kAll;
  std::optional<Sidecar> sidecar;
  HashedChunks hashed;                 // points into `sidecar`
  std::atomic<int64_t> bytes_read{0};  // counted by the files

  std::mutex mutex;
  std::map<int32_t, std::shared_ptr<io::ReadFile>> files;                                // guarded by mutex
  std::vector<std::shared_ptr<const ChunkIndex>> indices;                                // by tensor; guarded by mutex
  absl::flat_hash_map<int64_t, std::shared_ptr<const catalog::StoredElements>> streams;  // by chunk; guarded by mutex
  std::vector<int64_t> first_chunk;  // of every tensor, in `checked`

  // Which of `checked` is a chunk's: those of one record share it. Empty: each chunk has its own.
  std::vector<size_t> check_of;
  size_t CheckOf(size_t chunk) const { return check_of.empty() ? chunk : check_of[chunk]; }
  // Whether a chunk's checksum has been compared; one of the mutexes is held meanwhile.
  std::vector<std::atomic<char>> checked;
  std::vector<std::atomic<char>> items_checked;
  std::array<std::mutex, 64> checking;

  absl::StatusOr<std::shared_ptr<io::ReadFile>> File(int32_t index) {
    const std::lock_guard<std::mutex> lock(mutex);
    const auto found = files.find(index);
    if (found != files.end()) return found->second;
    const Catalog::File& entry = catalog.files()[static_cast<size_t>(index)];
    if (entry.content != nullptr)
      return files.emplace(index, io::ReadFile::OfBytes(entry.path, entry.content)).first->second;
    ASSIGN_OR_RETURN(
        std::unique_ptr<io::ReadFile> opened,
        io::ReadFile::Open(io::JoinPath(catalog.root(), entry.path), catalog.traits().may_be_links, &bytes_read));
    if (files.size() >= kFilesOpen) files.erase(files.begin());
    return files.emplace(index, std::move(opened)).first->second;
  }

  std::shared_ptr<const ChunkIndex> Index(int64_t tensor) {
    {
      const std::lock_guard<std::mutex> lock(mutex);
      if (indices[static_cast<size_t>(tensor)] != nullptr) return indices[static_cast<size_t>(tensor)];
    }
    auto made = std::make_shared<const ChunkIndex>(catalog, catalog.tensors()[static_cast<size_t>(tensor)]);
    const std::lock_guard<std::mutex> lock(mutex);
    return indices[static_cast<size_t>(tensor)] = std::move(made);
  }

  absl::StatusOr<std::shared_ptr<const catalog::StoredElements>> Stream(int64_t tensor, int64_t number,
                                                                        const io::ReadFile& file) {
    const Catalog::Tensor& entry = catalog.tensors()[static_cast<size_t>(tensor)];
    const Catalog::Chunk chunk = catalog.chunk(entry, number);
    if (const catalog::StoredElements* const known = catalog.StoredAs(entry, number)) {
      return std::shared_ptr<const catalog::StoredElements>(std::shared_ptr<const void>(), known);  // the catalog's
    }
    auto stream = std::make_shared<catalog::StoredElements>();
    if (!catalog.traits().chunks_are_archives) {
      stream->dtype = *entry.dtype;
      stream->shape.assign(chunk.size.begin(), chunk.size.end());
      stream->strides.assign(chunk.size.size(), 1);
      for (size_t d = chunk.size.size(); d-- > 1;) stream->strides[d - 1] = stream->strides[d] * chunk.size[d];
      stream->first_at = stream->record_at = chunk.place.at;
      stream->record_length = chunk.place.length;
      return stream;
    }
    const int64_t key = first_chunk[static_cast<size_t>(tensor)] + number;
    {
      const std::lock_guard<std::mutex> lock(mutex);
      const auto found = streams.find(key);
      if (found != streams.end()) return found->second;
    }
    ASSIGN_OR_RETURN(catalog::StoredElements looked,
                     torch_save::FindTensorStream(file, chunk.place, *entry.dtype, chunk.size));
    *stream = std::move(looked);
    const std::lock_guard<std::mutex> lock(mutex);
    if (streams.size() >= kStreamsKept) streams.clear();
    streams.emplace(key, stream);
    return stream;
  }

  // Bytes of a record, one part after the other, that the sidecar has a hash of.
  struct Part {
    int64_t length = 0;
    const hash::ContentHash* hash = nullptr;
  };

  // Empty when the sidecar does not know all of them. It has hashes of this library's own chunks, whose record is the
  // elements: of an archive as a whole, of elements alone piece by piece.
  std::vector<Part> PartsOf(std::string_view path, const Catalog::Place& place,
                            const catalog::StoredElements& stream) const {
    std::vector<Part> parts;
    const bool whole = catalog.traits().chunks_are_archives;
    for (int64_t at = 0; at < stream.record_length || (parts.empty() && whole);) {
      const auto found = hashed.find(std::pair(path, place.at + at));
      if (found == hashed.end()) return {};
      const int64_t length = whole ? stream.record_length : found->second->length;
      if (!whole && (length <= 0 || length > stream.record_length - at)) return {};
      parts.push_back({length, &found->second->hash});
      at += length;
      if (whole) break;
    }
    return parts;
  }

  // Reads all of a chunk, once, and compares what is known of it.
  absl::Status Check(int64_t tensor, int64_t number, const io::ReadFile& file, const catalog::StoredElements& stream) {
    const size_t key = CheckOf(static_cast<size_t>(first_chunk[static_cast<size_t>(tensor)] + number));
    if (checked[key].load(std::memory_order_acquire) != 0) return absl::OkStatus();
    const Catalog::Tensor& entry = catalog.tensors()[static_cast<size_t>(tensor)];
    const Catalog::Chunk chunk = catalog.chunk(entry, number);
    const std::string& path = catalog.files()[static_cast<size_t>(chunk.place.file)].path;
    const bool has_crc = stream.record_crc32.has_value();
    const std::vector<Part> parts = PartsOf(path, chunk.place, stream);
    if (!has_crc && parts.empty()) return absl::OkStatus();
    const std::lock_guard<std::mutex> lock(checking[key % checking.size()]);
    if (checked[key].load(std::memory_order_acquire) != 0) return absl::OkStatus();
    uint32_t crc = 0;
    bool bad_hash = false;
    std::string buffer;
    int64_t at = 0;
    const auto take = [&](int64_t end, hash::ContentHasher* hasher) -> absl::Status {
      while (at < end) {
        buffer.resize(static_cast<size_t>(std::min(kCheckedAtOnce, end - at)));
        RETURN_IF_ERROR(file.ReadAt(stream.record_at + at, absl::MakeSpan(buffer)));
        at += static_cast<int64_t>(buffer.size());
        if (has_crc) crc = libdeflate_crc32(crc, buffer.data(), buffer.size());
        if (hasher != nullptr) hasher->Add(buffer);
      }
      return absl::OkStatus();
    };
    absl::Status taken;
    for (const Part& part : parts) {
      hash::ContentHasher hasher;
      taken = take(at + part.length, &hasher);
      if (!taken.ok()) return taken;
      bad_hash |= hasher.Finish() != *part.hash;
    }
    taken = take(stream.record_length, nullptr);
    if (!taken.ok()) return taken;
    const bool bad_crc = has_crc && crc != *stream.record_crc32;
    if (bad_crc || bad_hash) {
      return absl::DataLossError(absl::StrCat(
          "tensor ", io::Shown(entry.name), " is damaged: the ", stream.record_length, " bytes at ", stream.record_at,
          " of ", path, " do not have the ", bad_crc ? "CRC-32 of their archive" : "hash of the sidecar"));
    }
    checked[key].store(1, std::memory_order_release);
    return absl::OkStatus();
  }

  // Reads all of a byte item, once, and compares what is known of it: the hash of the sidecar, or the checksums inside,
  // where it is an archive, as PyTorch writes them.
  absl::Status CheckItem(size_t index, const io::ReadFile& file) {
    if (items_checked[index].load(std::memory_order_acquire) != 0) return absl::OkStatus();
    const std::lock_guard<std::mutex> lock(checking[index % checking.size()]);
    if (items_checked[index].load(std::memory_order_acquire) != 0) return absl::OkStatus();
    const Catalog::ByteItem& item = catalog.byte_items()[index];
    const std::string_view path = catalog.files()[static_cast<size_t>(item.place.file)].path;
    const auto found = hashed.find(std::pair(path, item.place.at));
    absl::Status status;
    if (found != hashed.end()) {
      hash::ContentHasher hasher;
      std::string part;
      for (int64_t at = 0; at < item.place.length; at += kCheckedAtOnce) {
        part.resize(static_cast<size_t>(std::min(kCheckedAtOnce, item.place.length - at)));
        status = file.ReadAt(item.place.at + at, absl::MakeSpan(part));
        if (!status.ok()) return status;
        hasher.Add(part);
      }
      if (hasher.Finish() != found->second->hash)
        status = absl::DataLossError("it does not have the hash of the sidecar");
    } else {
      status = CheckArchive(file, item.place);
    }
    if (absl::IsDataLoss(status)) {
      return absl::DataLossError(absl::StrCat("item ", io::Shown(item.name), " is damaged: ", status.message()));
    }
    if (status.ok()) items_checked[index].store(1, std::memory_order_release);
    return status;
  }

  absl::Status CheckArchive(const io::ReadFile& file, const Catalog::Place& place) {
    const absl::StatusOr<zip::ZipArchive> archive = zip::ZipArchive::Open(file, place.at, place.length);
    if (archive.ok()) return archive->CheckPayloads();
    if (!absl::IsDataLoss(archive.status())) return absl::OkStatus();  // an archive of another kind
    // Whoever extends PyTorch may store any bytes. What begins as an archive should end as one.
    constexpr std::string_view kMark = "PK\x03\x04";
    std::string begin(static_cast<size_t>(std::min<int64_t>(place.length, kMark.size())), '\0');
    RETURN_IF_ERROR(file.ReadAt(place.at, absl::MakeSpan(begin)));
    return begin == kMark ? archive.status() : absl::OkStatus();
  }

  absl::Status FindSidecar(const CatalogLimits& limits) {
    absl::StatusOr<std::optional<Sidecar>> found = ReadSidecar(catalog, limits);
    absl::Status status = found.status();
    if (found.ok()) {
      sidecar = *std::move(found);
      if (!sidecar) return absl::OkStatus();
      absl::StatusOr<HashedChunks> matched = MatchSidecar(*sidecar, catalog, limits);
      status = matched.status();
      if (matched.ok()) hashed = *std::move(matched);
    }
    if (!absl::IsDataLoss(status)) return status;
    return absl::DataLossError(absl::StrCat(status.message(), "; to read on without it: --ignore-sidecar"));
  }
};

absl::StatusOr<std::unique_ptr<Source>> Source::Open(const std::string& path, const SourceOptions& options) {
  auto state = std::make_unique<State>();
  ASSIGN_OR_RETURN(Catalog catalog, ReadCatalog(path, options.limits));
  ASSIGN_OR_RETURN(state->catalog, Select(std::move(catalog), options.recipe.selection));
  state->checks = options.checks;
  int64_t chunks = 0;
  absl::flat_hash_map<std::pair<int32_t, int64_t>, size_t> record_check;
  for (const Catalog::Tensor& tensor : state->catalog.tensors()) {
    RETURN_IF_ERROR(state->catalog.CheckCover(tensor));
    state->first_chunk.push_back(chunks);
    for (int64_t i = 0; i < tensor.num_chunks; ++i) {
      const catalog::StoredElements* const known = state->catalog.StoredAs(tensor, i);
      if (known == nullptr) break;  // then it is so for all chunks
      const std::pair record(state->catalog.chunk(tensor, i).place.file, known->record_at);
      state->check_of.push_back(record_check.try_emplace(record, static_cast<size_t>(chunks + i)).first->second);
    }
    chunks += tensor.num_chunks;
  }
  state->checked = std::vector<std::atomic<char>>(static_cast<size_t>(chunks));
  state->items_checked = std::vector<std::atomic<char>>(state->catalog.byte_items().size());
  state->indices.resize(state->catalog.tensors().size());
  if (!options.recipe.only_selects()) {
    ASSIGN_OR_RETURN(state->applied, views::Apply(options.recipe, state->catalog));
    if (state->checks == ChunkChecks::kBegun) state->checks = ChunkChecks::kAll;
  }
  if (!options.ignore_sidecar) {
    RETURN_IF_ERROR(state->FindSidecar(options.limits));
  }
  return std::unique_ptr<Source>(new Source(std::move(state)));
}

Source::Source(std::unique_ptr<State> state) : state_(std::move(state)) {}
Source::~Source() = default;

const Catalog& Source::catalog() const { return state_->applied ? state_->applied->catalog : state_->catalog; }
const Catalog& Source::stored() const { return state_->catalog; }
const std::vector<views::View>* Source::views() const { return state_->applied ? &state_->applied->views : nullptr; }
const std::optional<Sidecar>& Source::sidecar() const { return state_->sidecar; }
void Source::AddViews(hash::Digest* digest) const {
  if (views() == nullptr) return;
  for (const views::View& view : *views()) {
    digest->Add(view.stored);
    if (view.node) views::AddTo(*view.node, digest);
  }
}

int64_t Source::bytes_read() const { return state_->bytes_read; }

absl::Status Source::Read(int64_t tensor, absl::Span<const int64_t> offset, absl::Span<const int64_t> size,
                          absl::Span<char> out) {
  if (!state_->applied) return ReadStored(tensor, offset, size, out);
  const views::View& view = state_->applied->views[static_cast<size_t>(tensor)];
  if (!view.node) return ReadStored(view.stored, offset, size, out);
  return views::ReadView(
      *view.node, offset, size,
      [&](int64_t stored, absl::Span<const int64_t> from, absl::Span<const int64_t> extent, absl::Span<char> into) {
        return ReadStored(stored, from, extent, into);
      },
      out);
}

absl::Status Source::ReadStored(int64_t tensor, absl::Span<const int64_t> offset, absl::Span<const int64_t> size,
                                absl::Span<char> out) {
  State& state = *state_;
  const Catalog::Tensor& entry = state.catalog.tensors()[static_cast<size_t>(tensor)];
  const int64_t element = SizeOf(*entry.dtype);
  const size_t rank = offset.size();
  std::string part;
  for (const int64_t number : state.Index(tensor)->Overlapping(offset, size)) {
    const Catalog::Chunk chunk = state.catalog.chunk(entry, number);
    const absl::StatusOr<std::shared_ptr<io::ReadFile>> file = state.File(chunk.place.file);
    if (!file.ok()) return file.status();
    ASSIGN_OR_RETURN(const std::shared_ptr<const catalog::StoredElements> stream, state.Stream(tensor, number, **file));
    std::vector<int64_t> within(rank);
    std::vector<int64_t> common(rank);
    std::vector<int64_t> at(rank);
    int64_t bytes = element;
    bool begun = true;
    for (size_t d = 0; d < rank; ++d) {
      const int64_t begin = std::max(offset[d], chunk.offset[d]);
      const int64_t end = std::min(offset[d] + size[d], chunk.offset[d] + chunk.size[d]);
      within[d] = begin - chunk.offset[d];
      at[d] = begin - offset[d];
      common[d] = end - begin;
      bytes *= common[d];
      begun = begun && within[d] == 0;
    }
    absl::Status status;
    if (state.checks == ChunkChecks::kAll || (state.checks == ChunkChecks::kBegun && begun)) {
      status = state.Check(tensor, number, **file, *stream);
      if (!status.ok()) return status;
    }
    if (absl::MakeConstSpan(common) == size) return ReadBox(**file, *stream, within, common, out);
    part.resize(static_cast<size_t>(bytes));
    status = ReadBox(**file, *stream, within, common, absl::MakeSpan(part));
    if (!status.ok()) return status;
    PlaceBox(part.data(), common, at, size, element, out.data());
  }
  return absl::OkStatus();
}

absl::Status Source::ReadItem(int64_t item, int64_t from, absl::Span<char> out) {
  const Catalog::ByteItem& entry = state_->catalog.byte_items()[static_cast<size_t>(item)];
  const absl::StatusOr<std::shared_ptr<io::ReadFile>> file = state_->File(entry.place.file);
  if (!file.ok()) return file.status();
  RETURN_IF_ERROR(state_->CheckItem(static_cast<size_t>(item), **file));
  return (*file)->ReadAt(entry.place.at + from, out);
}

}  // namespace reshard::source
