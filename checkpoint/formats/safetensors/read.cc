#include "checkpoint/formats/safetensors/read.h"

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "checkpoint/catalog/catalog_builder.h"
#include "checkpoint/catalog/parts.h"
#include "checkpoint/formats/safetensors/dtypes.h"
#include "checkpoint/formats/safetensors/format.h"
#include "checkpoint/formats/safetensors/header.h"
#include "checkpoint/formats/safetensors/weight_map.h"
#include "checkpoint/formats/safetensors/write_header.h"
#include "checkpoint/io/files.h"
#include "checkpoint/io/show.h"
#include "json/walk.h"
#include "reshard/layout/checked.h"
#include "status/macros.h"
#include "status/view.h"

namespace reshard::safetensors {
namespace {

using Kind = json::WalkedValue::Kind;
using Entry = SafetensorsHeader::Entry;

constexpr std::string_view kSuffix = ".safetensors";
constexpr std::string_view kIndexSuffix = ".safetensors.index.json";

absl::Status In(std::string_view path, const absl::Status& status) {
  const auto code = absl::IsInvalidArgument(status) ? absl::StatusCode::kDataLoss : status.code();
  return absl::Status(code, absl::StrCat(status::View(path), ": ", status.message()));
}

// The entries of DCP_SHARDING_INFO: {"model.w": {"saved_offsets": [0, 8], "global_shape": [4, 16]}}; the second is not
// always there.
struct ShardingInfo {
  std::vector<int64_t> offsets;
  std::vector<int64_t> global_shape;
};
using Offsets = absl::flat_hash_map<std::string, ShardingInfo>;

absl::StatusOr<Offsets> ParseShardingInfo(std::string_view json, const CatalogLimits& limits) {
  Offsets offsets;
  std::vector<int64_t>* last = nullptr;
  absl::Status walked =
      json::Walk(json, limits.depth, [&](absl::Span<const json::PathStep> path, const json::WalkedValue& value) {
        const auto expect = [&](Kind kind, absl::string_view what) {
          return value.kind == kind ? absl::OkStatus() : absl::DataLossError(what);
        };
        if (path.empty()) return expect(Kind::kObject, "not a JSON object");
        if (path.size() == 1) {
          last = nullptr;
          return expect(Kind::kObject, io::Shown(path[0].key) + " is not a JSON object");
        }
        if (path[1].key != "saved_offsets" && path[1].key != "global_shape") return absl::OkStatus();
        if (path.size() == 2) {
          ShardingInfo& info = offsets[path[0].key];
          last = path[1].key == "saved_offsets" ? &info.offsets : &info.global_shape;
          return expect(Kind::kArray, io::Shown(path[0].key) + ": " + path[1].key + " is not a list");
        }
        last->push_back(value.integer);
        return expect(Kind::kInteger,
                      io::Shown(path[0].key) + ": one of " + path[1].key + " is not a whole number from 0 to 2^63 - 1");
      });
  if (!walked.ok()) return In("DCP_SHARDING_INFO", walked);
  return offsets;
}

// Reads the headers of the files of one checkpoint and puts their entries together.
class Reader {
 public:
  Reader(std::string root, const CatalogLimits& limits)
      : root_(std::move(root)), limits_(limits), builder_(kFormat, root_) {}

  // The next of the files that `open` opens.
  absl::Status AddFile(const std::string& name, io::OpenInTurn& open) {
    ASSIGN_OR_RETURN(auto index, builder_.AddFile(name));
    ASSIGN_OR_RETURN(auto file, open.Next());
    builder_.SetOpened(index, *file);
    ASSIGN_OR_RETURN(auto read, ReadSafetensorsHeader(*file, limits_));
    Offsets offsets;
    for (auto& [key, value] : read.header.metadata) {
      if (key == "DCP_SHARDING_INFO") {
        auto parsed = ParseShardingInfo(value, limits_);
        if (!parsed.ok()) return In(file->path(), parsed.status());
        offsets = *std::move(parsed);
      } else if (key != "DCP_VERSION" && notes_.emplace(key, value).second) {
        builder_.AddNote(key, value);
      }
    }
    for (Entry& entry : read.header.entries) {
      const auto offset = offsets.find(entry.name);
      FilePart part;
      part.place = {index, read.data_begin + entry.begin, entry.end - entry.begin};
      if (offset != offsets.end()) {
        part.sharded = true;
        part.offset = std::move(offset->second.offsets);
        part.global_shape = std::move(offset->second.global_shape);
        offsets.erase(offset);
        if (part.offset.size() != entry.shape.size() ||
            (!part.global_shape.empty() && part.global_shape.size() != entry.shape.size())) {
          return absl::DataLossError(absl::StrCat(file->path(), ": tensor ", io::Shown(entry.name), ": saved_offsets ",
                                                  io::Shown(part.offset), " or global_shape are not of the rank of ",
                                                  io::Shown(entry.shape)));
        }
      } else {
        part.offset.assign(entry.shape.size(), 0);
      }
      part.dtype = std::move(entry.dtype);
      part.shape = std::move(entry.shape);
      const auto [at, added] = index_of_.try_emplace(entry.name, tensors_.size());
      if (added) tensors_.push_back({std::move(entry.name), {}});
      tensors_[at->second].parts.push_back(std::move(part));
    }
    if (offsets.empty()) return absl::OkStatus();
    return absl::DataLossError(absl::StrCat(file->path(), ": DCP_SHARDING_INFO has ", io::Shown(offsets.begin()->first),
                                            ", which is not a tensor of the file"));
  }

  // All that the index has must be there, and a tensor that a file has whole in no other file that the index names:
  // programs would differ in which one they load.
  absl::Status Choose(const std::string& index_path, const WeightMap& map) {
    builder_.SetHasIndex();
    for (const auto& [name, file] : map) {
      const auto at = index_of_.find(name);
      ASSIGN_OR_RETURN(const auto in_file, builder_.AddFile(file));
      const auto is_there = [&](const FilePart& part) { return part.place.file == in_file; };
      if (at == index_of_.end() ||
          std::none_of(tensors_[at->second].parts.begin(), tensors_[at->second].parts.end(), is_there)) {
        return absl::DataLossError(absl::StrCat(index_path, " says that tensor ", io::Shown(name), " is in ",
                                                io::Shown(file), ", which has none of that name"));
      }
      const std::vector<FilePart>& parts = tensors_[at->second].parts;
      if (std::any_of(parts.begin(), parts.end(),
                      [&](const FilePart& part) { return !part.sharded && !is_there(part); })) {
        return absl::DataLossError(absl::StrCat(index_path, " says that tensor ", io::Shown(name), " is in ",
                                                io::Shown(file), ", but another of its files has it, too"));
      }
    }
    return absl::OkStatus();
  }

  void SetIncomplete(std::string why) { builder_.SetIncomplete(std::move(why)); }

  absl::StatusOr<Catalog> Finish() && {
    for (const StoredTensor& tensor : tensors_) {
      RETURN_IF_ERROR(AddTensor(tensor));
    }
    return std::move(builder_).Build();
  }

 private:
  // What one file has of a tensor.
  struct FilePart {
    std::string dtype;
    std::vector<int64_t> shape;
    std::vector<int64_t> offset;
    std::vector<int64_t> global_shape;  // empty: not said
    bool sharded = false;               // the file says where it begins
    Catalog::FileRange place;
  };
  struct StoredTensor {
    std::string name;
    std::vector<FilePart> parts;
  };

  absl::Status AddTensor(const StoredTensor& tensor) {
    const FilePart& first = tensor.parts[0];
    const auto bad = [&](absl::string_view why) {
      return absl::DataLossError(absl::StrCat(root_, ": tensor ", io::Shown(tensor.name), ": ", why));
    };
    std::vector<int64_t> shape(first.shape.size(), 0);
    for (const FilePart& part : tensor.parts) {
      if (tensor.parts.size() > 1 && !part.sharded) return bad("several files have it, and no index says which counts");
      if (part.dtype != first.dtype)
        return bad(absl::StrCat("one file has it as ", io::Shown(first.dtype), ", another as ", io::Shown(part.dtype)));
      if (part.shape.size() != shape.size()) return bad("its shards are not all of the same rank");
      for (size_t d = 0; d < shape.size(); ++d) {
        const std::optional<int64_t> end = CheckedAdd(part.offset[d], part.shape[d]);
        if (!end) return bad("a shard ends beyond 2^63 - 1");
        shape[d] = std::max(shape[d], *end);
      }
    }
    // Shards that are missing at an end leave a hole in the shape that is said.
    for (const FilePart& part : tensor.parts) {
      for (size_t d = 0; d < part.global_shape.size(); ++d) {
        if (part.global_shape[d] != first.global_shape[d]) return bad("its shards say two global shapes");
        if (shape[d] > part.global_shape[d]) return bad("a shard leaves the global shape");
      }
      if (part.global_shape.size() != first.global_shape.size()) return bad("not all of its shards say a global shape");
    }
    if (!first.global_shape.empty()) shape = first.global_shape;
    const SafetensorsDType* dtype = FindSafetensorsDType(first.dtype);
    auto known = dtype == nullptr ? std::nullopt : dtype->dtype;
    const int64_t packed = dtype == nullptr ? 1 : dtype->packed();
    const auto fits = [&](const std::vector<int64_t>& sizes) { return !sizes.empty() && sizes.back() % packed == 0; };
    if (packed > 1 && !(fits(shape) && std::all_of(tensor.parts.begin(), tensor.parts.end(), [&](const FilePart& part) {
                          return fits(part.shape) && fits(part.offset);
                        }))) {
      known = std::nullopt;  // an element of ours would be cut
    }
    const auto in_ours = [&](std::vector<int64_t> sizes) {
      if (known && packed > 1) sizes.back() /= packed;
      return sizes;
    };
    RETURN_IF_ERROR(builder_.AddTensor(tensor.name, first.dtype, known, in_ours(shape), false));
    for (const FilePart& part : tensor.parts) {
      RETURN_IF_ERROR(builder_.AddChunk(in_ours(part.offset), in_ours(part.shape), part.place));
    }
    return absl::OkStatus();
  }

  const std::string root_;
  const CatalogLimits limits_;
  catalog::CatalogBuilder builder_;
  std::vector<StoredTensor> tensors_;  // in the order in which the files list them
  absl::flat_hash_map<std::string, size_t> index_of_;
  std::set<std::pair<std::string, std::string>> notes_;
};

// The names that end like that, sorted.
std::vector<std::string> WithSuffix(const std::vector<std::string>& names, std::string_view suffix) {
  std::vector<std::string> out;
  std::copy_if(names.begin(), names.end(), std::back_inserter(out),
               [&](const std::string& name) { return name.ends_with(suffix); });
  return out;
}

// Names of files that programs take for a whole model.
constexpr std::string_view kWhole[] = {"adapter_model", "consolidated", "diffusion_pytorch_model", "model",
                                       "pytorch_model"};

// Whether a file of that name is a checkpoint by itself: "model.safetensors", "model.fp16.safetensors".
bool IsWhole(std::string_view name) {
  return std::any_of(std::begin(kWhole), std::end(kWhole), [&](std::string_view whole) {
    return name.starts_with(whole) && name.substr(whole.size()).starts_with('.');
  });
}

// One checkpoint is one set of files: a series of numbered parts, or a file that is whole. Files of other names may
// each have some of the tensors. InvalidArgument: there is more than one set.
absl::Status CheckOneSet(const std::string& root, absl::Span<const std::string> files) {
  std::map<std::string, std::string> sets;  // each with one of its files
  bool is_set = false;
  for (const std::string& file : files) {
    const std::string_view name = std::string_view(file).substr(file.rfind('/') + 1);
    const std::optional<catalog::PartName> part = catalog::ParsePartName(name);
    const bool counted = part && part->count > 0;
    is_set |= counted || IsWhole(name);
    sets.emplace(counted ? part->series : std::string(name), file);
  }
  if (!is_set || sets.size() < 2) return absl::OkStatus();
  const auto& [first, its_file] = *sets.begin();
  const auto& [other, other_file] = *std::next(sets.begin());
  return absl::InvalidArgumentError(
      absl::StrCat(io::Shown(root), " has two checkpoints: ", io::Shown(first), " and ", io::Shown(other),
                   sets.size() > 2 ? absl::StrCat(" and ", sets.size() - 2, " more") : "",
                   "; name the file of the one that is meant, ", io::Shown(io::JoinPath(root, its_file)), " or ",
                   io::Shown(io::JoinPath(root, other_file))));
}

absl::StatusOr<Catalog> ReadIndexed(const std::string& root, const std::string& index_name,
                                    const CatalogLimits& limits) {
  const std::string path = io::JoinPath(root, index_name);
  ASSIGN_OR_RETURN(auto map, ReadWeightMap(path, limits));
  std::set<std::string> files;
  for (const auto& [name, file] : map) files.insert(file);
  for (const std::string& file : files) {
    if (absl::Status s = io::CheckRelativePath(file); !s.ok()) {
      return absl::InvalidArgumentError(absl::StrCat(path, ": ", s.message()));
    }
  }
  Reader reader(root, limits);
  io::OpenInTurn open(root, {files.begin(), files.end()}, /*follow_links=*/true);
  for (const std::string& file : files) {
    absl::Status added = reader.AddFile(file, open);
    if (absl::IsNotFound(added))
      return absl::DataLossError(absl::StrCat(path, ": the file ", io::Shown(file), " is missing"));
    if (!added.ok()) return added;
  }
  RETURN_IF_ERROR(reader.Choose(path, map));
  return std::move(reader).Finish();
}

}  // namespace

absl::StatusOr<Catalog> ReadSafetensorsDirectory(const std::string& root, const std::vector<std::string>& names,
                                                 const CatalogLimits& limits) {
  const std::vector<std::string> indices = WithSuffix(names, kIndexSuffix);
  if (indices.size() == 1) return ReadIndexed(root, indices[0], limits);
  if (!indices.empty()) {
    if (std::find(indices.begin(), indices.end(), kSafetensorsIndexName) == indices.end()) {
      return absl::InvalidArgumentError(absl::StrCat(
          root, " has ", indices.size(), " index files, and none of them is ", status::View(kSafetensorsIndexName)));
    }
    return ReadIndexed(root, std::string(kSafetensorsIndexName), limits);
  }
  std::vector<std::string> files = WithSuffix(names, kSuffix);
  if (files.empty() && std::find(names.begin(), names.end(), "sharded") != names.end()) {
    ASSIGN_OR_RETURN(const std::vector<std::string> inside, io::ListDirectory(io::JoinPath(root, "sharded")));
    for (const std::string& name : WithSuffix(inside, kSuffix)) files.push_back(io::JoinPath("sharded", name));
  }
  if (files.empty()) {
    return absl::NotFoundError(
        absl::StrCat(io::Shown(root), " is not a checkpoint: it has neither .metadata nor files of ",
                     "safetensors or torch.save, and only the folders right in it were looked at"));
  }
  RETURN_IF_ERROR(CheckOneSet(root, files));
  return ReadSafetensorsFiles(root, files, limits);
}

absl::StatusOr<Catalog> ReadSafetensorsIndex(const std::string& directory, const std::string& index,
                                             const CatalogLimits& limits) {
  return ReadIndexed(directory, index, limits);
}

absl::StatusOr<Catalog> ReadSafetensorsFiles(const std::string& directory, absl::Span<const std::string> files,
                                             const CatalogLimits& limits) {
  Reader reader(directory, limits);
  io::OpenInTurn open(directory, {files.begin(), files.end()}, /*follow_links=*/true);
  for (const std::string& file : files) {
    RETURN_IF_ERROR(reader.AddFile(file, open));
  }
  reader.SetIncomplete(catalog::MissingParts(files));
  return std::move(reader).Finish();
}

}  // namespace reshard::safetensors
