#include "checkpoint/source/state.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "checkpoint/catalog/format_traits.h"
#include "checkpoint/formats/torch_save/tensor_stream.h"
#include "checkpoint/formats/zip/reader.h"
#include "checkpoint/hash/hash.h"
#include "checkpoint/io/show.h"
#include "reshard/layout/checked.h"
#include "status/macros.h"

namespace reshard::source {
namespace {

constexpr int64_t kCheckedAtOnce = int64_t{256} << 10;

// Bytes read and compared at a time: few, so that they are still in the caches; more where reading takes requests.
int64_t CheckedAtOnce(const io::ReadFile& file) { return file.gap() >= kCheckedAtOnce ? file.most() : kCheckedAtOnce; }

// Chunks whose streams are remembered; the others are looked into again.
constexpr size_t kStreamsKept = 4096;
constexpr size_t kFilesOpen = 256;

// Reads the record at `begin`, which is as long as `out`, into `out`, and compares it.
absl::StatusOr<RecordCheck::Finding> ReadAndCheck(const io::ReadFile& file, int64_t begin, absl::Span<char> out,
                                                  RecordCheck& check) {
  const auto at_once = static_cast<size_t>(CheckedAtOnce(file));
  for (size_t at = 0; at < out.size(); at += at_once) {
    const absl::Span<char> part = out.subspan(at, at_once);
    RETURN_IF_ERROR(file.ReadAt(begin + static_cast<int64_t>(at), part));
    check.Add({part.data(), part.size()});
  }
  return check.Finish();
}

// Reads the record of `length` bytes at `begin`, and compares it.
absl::StatusOr<RecordCheck::Finding> ReadAndCheck(const io::ReadFile& file, int64_t begin, int64_t length,
                                                  RecordCheck& check) {
  std::string buffer;
  const int64_t at_once = CheckedAtOnce(file);
  for (int64_t at = 0; at < length; at += at_once) {
    buffer.resize(std::min(at_once, length - at));
    RETURN_IF_ERROR(file.ReadAt(begin + at, absl::MakeSpan(buffer)));
    check.Add(buffer);
  }
  return check.Finish();
}

}  // namespace

absl::StatusOr<std::shared_ptr<io::ReadFile>> Source::State::File(int32_t index) {
  std::shared_ptr<OpenFile> one;
  {
    const status::MutexLock lock(mutex);
    auto found = files.find(index);
    if (found == files.end()) {
      if (files.size() >= kFilesOpen) files.erase(files.begin());
      found = files.emplace(index, std::make_shared<OpenFile>()).first;
    }
    one = found->second;
  }
  // Opening takes long in a store: a thread that wants another file does not wait for this one.
  const status::MutexLock lock(one->mutex);
  if (one->file != nullptr) return one->file;
  const Catalog::File& entry = catalog.files()[index];
  if (entry.content != nullptr) return one->file = io::ReadFile::OfBytes(entry.path, entry.content);
  ASSIGN_OR_RETURN(one->file, io::ReadFile::Open(io::JoinPath(catalog.root(), entry.path),
                                                 catalog.traits().may_be_links, &bytes_read));
  return one->file;
}

std::shared_ptr<const ChunkIndex> Source::State::Index(int64_t tensor) {
  {
    const status::MutexLock lock(mutex);
    if (indices[tensor] != nullptr) return indices[tensor];
  }
  auto made = std::make_shared<const ChunkIndex>(catalog, catalog.tensors()[tensor]);
  const status::MutexLock lock(mutex);
  return indices[tensor] = std::move(made);
}

absl::StatusOr<std::shared_ptr<const catalog::StoredElements>> Source::State::Stream(int64_t tensor, int64_t number,
                                                                                     const io::ReadFile& file) {
  const Catalog::Tensor& entry = catalog.tensors()[tensor];
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
  const int64_t key = first_chunk[tensor] + number;
  {
    const status::MutexLock lock(mutex);
    const auto found = streams.find(key);
    if (found != streams.end()) return found->second;
  }
  // An archive is read at its end, at its beginning, and then all of it.
  RETURN_IF_ERROR(file.ReadAhead(chunk.place.at, chunk.place.length));
  absl::StatusOr<catalog::StoredElements> looked =
      torch_save::FindTensorStream(file, chunk.place, *entry.dtype, chunk.size);
  if (!looked.ok()) {
    return absl::Status(looked.status().code(),
                        absl::StrCat("tensor ", io::Shown(entry.name), ": ", looked.status().message()));
  }
  *stream = *std::move(looked);
  const status::MutexLock lock(mutex);
  if (streams.size() >= kStreamsKept) streams.clear();
  streams.emplace(key, stream);
  return stream;
}

Box Source::State::ChunkBox(int64_t tensor, int64_t number) const {
  const Catalog::Chunk chunk = catalog.chunk(catalog.tensors()[tensor], number);
  return {{chunk.offset.begin(), chunk.offset.end()}, {chunk.size.begin(), chunk.size.end()}};
}

absl::StatusOr<Overlap> Source::State::OverlapOf(int64_t tensor, int64_t number, const Box& box) {
  const Catalog::Tensor& entry = catalog.tensors()[tensor];
  const Box all = ChunkBox(tensor, number);
  Overlap overlap;
  overlap.number = number;
  ASSIGN_OR_RETURN(overlap.file, File(catalog.chunk(entry, number).place.file));
  ASSIGN_OR_RETURN(overlap.stream, Stream(tensor, number, *overlap.file));
  overlap.box = Common(all, box);
  overlap.bytes = overlap.box.Elements() * SizeOf(*entry.dtype);
  overlap.begins = overlap.box.offset == all.offset;
  overlap.is_whole = overlap.box == all;
  for (size_t d = 0; d < all.offset.size(); ++d) overlap.within.push_back(overlap.box.offset[d] - all.offset[d]);
  return overlap;
}

absl::Status Source::State::CheckAnnounced() {
  constexpr int64_t kAlways = int64_t{1} << 30, kMostTimes = 64;
  std::optional<int64_t> most = kAlways;
  for (const Catalog::File& file : catalog.files()) {
    const std::optional<int64_t> more = CheckedMul(file.bytes, kMostTimes);
    most = most && more ? CheckedAdd(*most, *more) : std::nullopt;
  }
  const int64_t limit = most.value_or(std::numeric_limits<int64_t>::max());
  for (size_t t = 0; t < catalog.tensors().size(); ++t) {
    const Catalog::Tensor& tensor = catalog.tensors()[t];
    if (!tensor.dtype) continue;
    for (int64_t i = 0; catalog.traits().chunks_are_archives && i < tensor.num_chunks; ++i) {
      const Catalog::Chunk chunk = catalog.chunk(tensor, i);
      int64_t bytes = SizeOf(*tensor.dtype);  // the bytes of the tensor fit 64 bits
      for (const int64_t size : chunk.size) bytes *= size;
      if (bytes <= chunk.place.length) continue;
      // A stream may repeat elements, but it has to say so.
      ASSIGN_OR_RETURN(const std::shared_ptr<io::ReadFile> file, File(chunk.place.file));
      RETURN_IF_ERROR(Stream(static_cast<int64_t>(t), i, *file).status());
    }
    if (tensor.bytes > limit) {
      return absl::ResourceExhaustedError(
          absl::StrCat("tensor ", io::Shown(tensor.name), " has ", tensor.bytes,
                       " bytes, as it repeats elements, in files that are far smaller; leave it out"));
    }
  }
  return absl::OkStatus();
}

bool Source::State::IsItsRecord(const Overlap& overlap) {
  const catalog::StoredElements& stream = *overlap.stream;
  int64_t stride = 1;
  for (size_t d = stream.shape.size(); d-- > 0;) {
    if (stream.shape[d] != 1 && stream.strides[d] != stride) return false;
    stride *= stream.shape[d];
  }
  return stream.record_at == stream.first_at && stream.record_length == stride * SizeOf(stream.dtype) &&
         !stream.conjugated && !stream.negated;
}

bool Source::State::IsReadThrough(int64_t tensor, int64_t number, const Box& box) {
  const absl::StatusOr<Overlap> overlap = OverlapOf(tensor, number, box);
  return overlap.ok() && IsItsRecord(*overlap) && CheckFor(tensor, *overlap).knows_anything();
}

absl::Status Source::State::ReadWhole(int64_t tensor, const Overlap& overlap, absl::Span<char> out) {
  RecordCheck check = CheckFor(tensor, overlap);
  ASSIGN_OR_RETURN(const RecordCheck::Finding finding,
                   ReadAndCheck(*overlap.file, overlap.stream->record_at, out, check));
  return Found(tensor, overlap, finding);
}

// The sidecar has hashes of this library's own chunks, whose record is the elements: one hash of a record in an
// archive, otherwise one per piece. They count only if they cover the whole record.
RecordCheck Source::State::CheckFor(int64_t tensor, const Overlap& overlap) const {
  const Catalog::Tensor& entry = catalog.tensors()[tensor];
  const Catalog::FileRange place = catalog.chunk(entry, overlap.number).place;
  const catalog::StoredElements& stream = *overlap.stream;
  const std::string_view path = catalog.files()[place.file].path;
  std::vector<RecordCheck::HashedPart> parts;
  const bool whole = catalog.traits().chunks_are_archives;
  for (int64_t at = 0; at < stream.record_length || (parts.empty() && whole);) {
    const auto found = hashed.find(std::pair(path, place.at + at));
    const int64_t length = found == hashed.end() ? 0 : whole ? stream.record_length : found->second->length;
    const bool fits = found != hashed.end() && (whole || (length > 0 && length <= stream.record_length - at));
    if (!fits) return RecordCheck(stream.record_length, stream.record_crc32, {});
    parts.push_back({length, found->second->hash});
    at += length;
    if (whole) break;
  }
  return RecordCheck(stream.record_length, stream.record_crc32, std::move(parts));
}

absl::Status Source::State::Found(int64_t tensor, const Overlap& overlap, RecordCheck::Finding finding) {
  if (finding == RecordCheck::Finding::kSame) {
    checked[CheckOf(tensor, overlap.number)].store(1, std::memory_order_release);
    return absl::OkStatus();
  }
  const Catalog::Tensor& entry = catalog.tensors()[tensor];
  const std::string& path = catalog.files()[catalog.chunk(entry, overlap.number).place.file].path;
  const catalog::StoredElements& stream = *overlap.stream;
  const bool crc = finding == RecordCheck::Finding::kBadCrc;
  return absl::DataLossError(absl::StrCat("tensor ", io::Shown(entry.name), " is damaged: the ", stream.record_length,
                                          " bytes at ", stream.record_at, " of ", path, " do not have the ",
                                          crc ? "CRC-32 of their archive" : "hash of the sidecar"));
}

absl::Status Source::State::Check(int64_t tensor, const Overlap& overlap) {
  RecordCheck check = CheckFor(tensor, overlap);
  if (!check.knows_anything()) return Found(tensor, overlap, RecordCheck::Finding::kSame);
  const status::MutexLock lock(checking[CheckOf(tensor, overlap.number) % checking.size()]);
  if (IsChecked(tensor, overlap.number)) return absl::OkStatus();
  const catalog::StoredElements& stream = *overlap.stream;
  ASSIGN_OR_RETURN(const RecordCheck::Finding finding,
                   ReadAndCheck(*overlap.file, stream.record_at, stream.record_length, check));
  return Found(tensor, overlap, finding);
}

absl::Status Source::State::CheckItem(size_t index, const io::ReadFile& file) {
  if (items_checked[index].load(std::memory_order_acquire) != 0) return absl::OkStatus();
  const status::MutexLock lock(checking[index % checking.size()]);
  if (items_checked[index].load(std::memory_order_acquire) != 0) return absl::OkStatus();
  const Catalog::ByteItem& item = catalog.byte_items()[index];
  const std::string_view path = catalog.files()[item.place.file].path;
  const auto found = hashed.find(std::pair(path, item.place.at));
  absl::Status status;
  if (found != hashed.end()) {
    RecordCheck check(item.place.length, std::nullopt, {{item.place.length, found->second->hash}});
    ASSIGN_OR_RETURN(const RecordCheck::Finding finding, ReadAndCheck(file, item.place.at, item.place.length, check));
    if (finding != RecordCheck::Finding::kSame) {
      status = absl::DataLossError("it does not have the hash of the sidecar");
    }
  } else {
    status = CheckArchive(file, item.place);
  }
  if (absl::IsDataLoss(status)) {
    return absl::DataLossError(absl::StrCat("item ", io::Shown(item.name), " is damaged: ", status.message()));
  }
  if (status.ok()) items_checked[index].store(1, std::memory_order_release);
  return status;
}

absl::Status Source::State::CheckArchive(const io::ReadFile& file, const Catalog::FileRange& place) {
  const absl::StatusOr<zip::ZipArchive> archive = zip::ZipArchive::Open(file, place.at, place.length);
  if (archive.ok()) return archive->CheckPayloads();
  if (!absl::IsDataLoss(archive.status())) return absl::OkStatus();  // an archive of another kind
  // Extensions of PyTorch may store any bytes. What begins as an archive should end as one.
  constexpr std::string_view kMark = "PK\x03\x04";
  std::string begin(static_cast<size_t>(std::min<int64_t>(place.length, kMark.size())), '\0');
  RETURN_IF_ERROR(file.ReadAt(place.at, absl::MakeSpan(begin)));
  return begin == kMark ? archive.status() : absl::OkStatus();
}

absl::Status Source::State::FindSidecar(const CatalogLimits& limits) {
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
  return absl::DataLossError(
      absl::StrCat(status.message(), "; to read on without it: --ignore-sidecar, in Python ignore_sidecar=True"));
}

}  // namespace reshard::source
