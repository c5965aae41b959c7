#include "checkpoint/formats/listing/read.h"

#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "checkpoint/catalog/catalog_builder.h"
#include "checkpoint/formats/listing/format.h"
#include "checkpoint/io/files.h"
#include "checkpoint/io/show.h"
#include "json/walk.h"
#include "reshard/layout/checked.h"
#include "reshard/layout/dtype.h"
#include "status/macros.h"
#include "status/view.h"

namespace reshard::listing {
namespace {

using Kind = json::WalkedValue::Kind;
using Path = absl::Span<const json::PathStep>;

constexpr std::string_view kVersion = "reshard_listing";

struct ListedChunk {
  std::vector<int64_t> offset, shape;
  std::optional<std::string> file;
  int64_t at = -1, bytes = -1;
};

struct ListedTensor {
  std::string name, dtype;
  bool has_shape = false;
  std::vector<int64_t> shape;
  std::vector<ListedChunk> chunks;
};

// Takes the values of the JSON one by one.
class Collector {
 public:
  explicit Collector(const CatalogLimits& limits) : limits_(limits) {}

  absl::Status Visit(Path path, const json::WalkedValue& value) {
    if (path.empty()) return Expect(value, Kind::kObject, "a listing is not an object");
    if (path[0].key == kVersion) return Version(path, value);
    if (path[0].key == "notes") return Note(path, value);
    if (path[0].key != "tensors") return absl::OkStatus();
    if (path.size() == 1) return Expect(value, Kind::kArray, "tensors is not a list");
    if (path.size() == 2) {
      tensors_.emplace_back();
      return Expect(value, Kind::kObject, "it is not an object");
    }
    if (path[2].key == "chunks") return Chunk(path, value);
    if (path[2].key == "name") return Text(value, "name", &tensors_.back().name);
    if (path[2].key == "dtype") return Text(value, "dtype", &tensors_.back().dtype);
    if (path[2].key == "shape") {
      tensors_.back().has_shape = true;
      return Numbers(path.subspan(2), value, &tensors_.back().shape);
    }
    return absl::OkStatus();  // of a later version, or for other readers
  }

  // What was listed, of files in this directory.
  absl::StatusOr<Catalog> Build(const std::string& directory, const catalog::FormatTraits& format) const {
    if (!has_version_) return absl::DataLossError(absl::StrCat("there is no ", status::View(kVersion)));
    catalog::CatalogBuilder builder(format, directory);
    for (const auto& [key, value] : notes_) builder.AddNote(key, value);
    std::set<std::string_view> names;
    for (size_t i = 0; i < tensors_.size(); ++i) {
      const ListedTensor& tensor = tensors_[i];
      if (!tensor.name.empty() && !names.insert(tensor.name).second) return Wrong(i, "the name appears twice");
      RETURN_IF_ERROR(Add(i, builder));
    }
    return std::move(builder).Build();
  }

 private:
  absl::Status Wrong(size_t tensor, absl::string_view what) const {
    const std::string& name = tensors_[tensor].name;
    return absl::DataLossError(
        absl::StrCat("tensor ", name.empty() ? absl::StrCat("number ", tensor) : io::Shown(name), ": ", what));
  }
  // Of the tensor whose values are coming.
  absl::Status Wrong(absl::string_view what) const {
    return tensors_.empty() ? absl::DataLossError(what) : Wrong(tensors_.size() - 1, what);
  }

  absl::Status Expect(const json::WalkedValue& value, Kind kind, absl::string_view what) const {
    return value.kind == kind ? absl::OkStatus() : Wrong(what);
  }

  absl::Status Version(Path path, const json::WalkedValue& value) {
    if (path.size() > 1 || value.kind != Kind::kInteger) return Wrong("reshard_listing is not a whole number");
    has_version_ = true;
    if (value.integer == 1) return absl::OkStatus();
    return absl::UnimplementedError(
        absl::StrCat("a listing of version ", value.integer, "; this program reads version 1"));
  }

  absl::Status Note(Path path, const json::WalkedValue& value) {
    if (path.size() == 1) return Expect(value, Kind::kObject, "notes is not an object");
    if (path.size() > 2 || value.kind != Kind::kString) return absl::DataLossError("a note is not text");
    notes_.emplace_back(path[1].key, std::move(*value.text));
    return absl::OkStatus();
  }

  absl::Status Text(const json::WalkedValue& value, absl::string_view what, std::string* out) const {
    if (value.kind != Kind::kString || value.text->empty()) return Wrong(absl::StrCat(what, " is not text"));
    if (static_cast<int64_t>(value.text->size()) > limits_.string_bytes) {
      return absl::ResourceExhaustedError(absl::StrCat("a ", what, " of ", value.text->size(), " bytes; at most ",
                                                       limits_.string_bytes, " are allowed"));
    }
    *out = std::move(*value.text);
    return absl::OkStatus();
  }

  // A list of sizes: path[0] is its own name.
  absl::Status Numbers(Path path, const json::WalkedValue& value, std::vector<int64_t>* out) const {
    if (path.size() == 1) {
      out->clear();
      return Expect(value, Kind::kArray, absl::StrCat(path[0].key, " is not a list"));
    }
    if (path.size() > 2 || value.kind != Kind::kInteger) {
      return Wrong(absl::StrCat("a number in ", path[0].key, " is not a whole one from 0 to 2^63 - 1"));
    }
    out->push_back(value.integer);
    return absl::OkStatus();
  }

  // path: tensors, number, chunks, number, member, ...
  absl::Status Chunk(Path path, const json::WalkedValue& value) {
    if (path.size() == 3) return Expect(value, Kind::kArray, "chunks is not a list");
    if (path.size() == 4) {
      tensors_.back().chunks.emplace_back();
      return Expect(value, Kind::kObject, "a chunk is not an object");
    }
    ListedChunk& chunk = tensors_.back().chunks.back();
    const std::string& member = path[4].key;
    if (member == "offset") return Numbers(path.subspan(4), value, &chunk.offset);
    if (member == "shape") return Numbers(path.subspan(4), value, &chunk.shape);
    if (member == "file") return Text(value, "file", &chunk.file.emplace());
    if (member != "at" && member != "bytes") return absl::OkStatus();
    if (path.size() > 5 || value.kind != Kind::kInteger) {
      return Wrong(absl::StrCat(member, " is not a whole number from 0 to 2^63 - 1"));
    }
    (member == "at" ? chunk.at : chunk.bytes) = value.integer;
    return absl::OkStatus();
  }

  absl::Status Add(size_t index, catalog::CatalogBuilder& builder) const {
    const ListedTensor& tensor = tensors_[index];
    if (tensor.name.empty()) return Wrong(index, "there is no name");
    if (!tensor.has_shape) return Wrong(index, "there is no shape");
    const std::optional<DType> dtype = FindDType(tensor.dtype);
    RETURN_IF_ERROR(builder.AddTensor(tensor.name, tensor.dtype, dtype, tensor.shape, /*requires_grad=*/false));
    for (const ListedChunk& chunk : tensor.chunks) {
      if (!chunk.file || chunk.at < 0) return Wrong(index, "a chunk that does not say its file, or where it begins");
      if (!dtype && chunk.bytes < 0) {
        return Wrong(index, absl::StrCat("its dtype ", io::Shown(tensor.dtype),
                                         " is not one of this library, and a chunk does not say its bytes"));
      }
      std::optional<int64_t> bytes = dtype ? SizeOf(*dtype) : chunk.bytes;
      for (size_t d = 0; dtype && bytes && d < chunk.shape.size(); ++d) bytes = CheckedMul(*bytes, chunk.shape[d]);
      if (!bytes || !CheckedAdd(chunk.at, *bytes)) return Wrong(index, "a chunk that is too large to count");
      if (chunk.bytes >= 0 && chunk.bytes != *bytes) {
        return Wrong(index, absl::StrCat("a chunk of ", *bytes, " bytes says that it has ", chunk.bytes));
      }
      ASSIGN_OR_RETURN(const int32_t file, builder.AddFile(*chunk.file));
      RETURN_IF_ERROR(builder.AddChunk(chunk.offset, chunk.shape, {file, chunk.at, *bytes}));
    }
    return absl::OkStatus();
  }

  const CatalogLimits& limits_;
  std::vector<ListedTensor> tensors_;
  std::vector<std::pair<std::string, std::string>> notes_;
  bool has_version_ = false;
};

}  // namespace

absl::StatusOr<Catalog> ReadListing(const std::string& directory, const CatalogLimits& limits,
                                    const catalog::FormatTraits& format) {
  const std::string path = io::JoinPath(directory, std::string(kFileName));
  ASSIGN_OR_RETURN(std::unique_ptr<io::ReadFile> file, io::ReadFile::Open(path, /*follow_links=*/true));
  ASSIGN_OR_RETURN(const std::string json, file->ReadAll(limits.metadata_bytes));
  Collector collector(limits);
  const auto visit = [&](Path at, const json::WalkedValue& value) { return collector.Visit(at, value); };
  const absl::Status walked = json::Walk(json, limits.depth, visit);
  if (!walked.ok()) {
    const auto code = absl::IsInvalidArgument(walked) ? absl::StatusCode::kDataLoss : walked.code();
    return absl::Status(code, absl::StrCat(path, ": ", walked.message()));
  }
  absl::StatusOr<Catalog> catalog = collector.Build(directory, format);
  if (catalog.ok()) return catalog;
  return absl::Status(catalog.status().code(), absl::StrCat(path, ": ", catalog.status().message()));
}

}  // namespace reshard::listing
