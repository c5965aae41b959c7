#include "checkpoint/formats/torch_save/read.h"

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string_view>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "checkpoint/catalog/catalog_builder.h"
#include "checkpoint/formats/pickle/plain_data.h"
#include "checkpoint/formats/safetensors/weight_map.h"
#include "checkpoint/formats/torch_save/archive.h"
#include "checkpoint/formats/torch_save/dtensor.h"
#include "checkpoint/formats/torch_save/flatten.h"
#include "checkpoint/formats/torch_save/format.h"
#include "checkpoint/formats/torch_save/tensor_frame.h"
#include "checkpoint/formats/torch_save/tensor_record.h"
#include "checkpoint/io/files.h"
#include "checkpoint/io/show.h"
#include "status/macros.h"
#include "status/view.h"

namespace reshard::torch_save {
namespace {

using Value = pickle::Pickle::Value;
using Kind = pickle::Pickle::Kind;

// Puts the files of one checkpoint together.
class Reader {
 public:
  Reader(const catalog::FormatTraits& format, std::string root, const CatalogLimits& limits)
      : root_(root), limits_(limits), ranks_(format.replicas_come_again), builder_(format, std::move(root)) {}

  // Among the files so far.
  int64_t plain_tensors() const { return plain_tensors_; }
  int64_t dtensors() const { return dtensors_; }

  // All names in the file get `prefix`; a root that is no container is called `root_name`.
  absl::Status AddFile(const std::string& name, std::string_view prefix, std::string_view root_name) {
    ASSIGN_OR_RETURN(file_, builder_.AddFile(name));
    file_name_ = name;
    ASSIGN_OR_RETURN(const std::unique_ptr<io::ReadFile> file,
                     io::ReadFile::Open(io::JoinPath(root_, name), /*follow_links=*/true));
    ASSIGN_OR_RETURN(const Archive archive, Archive::Open(*file, 0, file->bytes(), limits_));
    const pickle::Pickle& description = archive.description();
    absl::StatusOr<std::vector<Leaf>> leaves = Flatten(description, archive.description_bytes());
    if (!leaves.ok()) {
      return absl::Status(leaves.status().code(), absl::StrCat(archive.where(), leaves.status().message()));
    }
    contents_.clear();
    items_.clear();
    for (Leaf& leaf : *leaves) {
      if (leaf.path.empty()) {
        const Kind kind = description.kind(leaf.value);
        if ((kind == Kind::kObject && !IsAnyTensor(description, leaf.value)) || kind == Kind::kName) {
          return archive.CannotRead("it holds ", ClassOf(description, leaf.value),
                                    " rather than a state dict; torch.save(model.state_dict(), ...) writes one");
        }
        leaf.name = std::string(root_name);
        leaf.path = {leaf.name};
      } else if (!prefix.empty()) {
        leaf.name = absl::StrCat(status::View(prefix), ".", leaf.name);
        leaf.path.insert(leaf.path.begin(), std::string(prefix));
      }
      RETURN_IF_ERROR(Add(archive, leaf));
    }
    if (items_.empty()) return absl::OkStatus();
    const int32_t content = builder_.AddContent(absl::StrCat(name, "#values"), std::move(contents_));
    for (const auto& [item, place] : items_) {
      RETURN_IF_ERROR(builder_.AddByteItem(item, {content, place.first, place.second}));
    }
    return absl::OkStatus();
  }

  // All that the index has must be in the file that it says. A name in two files is found out by its elements.
  absl::Status CheckIndex(const std::string& index_path, const safetensors::WeightMap& map) {
    builder_.SetHasIndex();
    for (const auto& [name, file] : map) {
      ASSIGN_OR_RETURN(const int32_t index, builder_.AddFile(file));
      const auto found = files_of_.find(name);
      if (found == files_of_.end() || !found->second.contains(index)) {
        return absl::DataLossError(absl::StrCat(index_path, " says that tensor ", io::Shown(name), " is in ",
                                                io::Shown(file), ", which has none of that name"));
      }
      if (found->second.size() > 1) {
        return absl::DataLossError(absl::StrCat(index_path, " says that tensor ", io::Shown(name), " is in ",
                                                io::Shown(file), ", but another of its files has it, too"));
      }
    }
    return absl::OkStatus();
  }

  absl::StatusOr<Catalog> Finish() && { return std::move(builder_).Build(); }

 private:
  static bool IsAnyTensor(const pickle::Pickle& description, Value value) {
    return IsTensor(description, value) || description.IsObjectOf(value, pickle::Known::kRebuildParameter) ||
           description.IsObjectOf(value, pickle::Known::kRebuildFromType);
  }

  // "an object of a.B", for messages and names.
  static std::string ClassOf(const pickle::Pickle& description, Value value) {
    Value name = value;
    if (description.kind(value) == Kind::kObject) name = description.Class(value);
    if (description.kind(name) != Kind::kName) return "something that is no plain data";
    constexpr size_t kLongest = 100;
    return absl::StrCat(description.kind(value) == Kind::kObject ? "an object of " : "",
                        status::View(description.Module(name).substr(0, kLongest)), ".",
                        status::View(description.Name(name).substr(0, kLongest)));
  }

  absl::Status Add(const Archive& archive, const Leaf& leaf) {
    const pickle::Pickle& description = archive.description();
    Value value = leaf.value;
    bool requires_grad = false;
    // Parameters: (tensor, requires_grad, hooks).
    if (description.IsObjectOf(value, pickle::Known::kRebuildParameter)) {
      const absl::Span<const Value> given = description.Tuple(description.Arguments(value));
      if (given.size() < 2) return archive.Bad("parameter ", io::Shown(leaf.name), ": without a tensor");
      if (given.size() > 3) NameItems(description, leaf, given[3]);
      value = given[0];
      requires_grad = description.IsTrue(given[1]);
    }
    NameAttributes(description, leaf, value);
    if (IsTensor(description, value)) {
      ++plain_tensors_;
      return AddTensor(archive, leaf, value, requires_grad, nullptr);
    }
    if (IsDTensor(description, value)) {
      ASSIGN_OR_RETURN(const LocalPart part, ReadDTensor(archive, value));
      if (!ranks_) {
        return archive.Bad(
            "tensor ", io::Shown(leaf.name),
            " is a DTensor, of which one file has a part; name the directory with the files of all ranks");
      }
      ++dtensors_;
      if (!IsTensor(description, part.local)) return archive.CannotRead("a DTensor of another kind of tensors");
      return AddTensor(archive, leaf, part.local, requires_grad, &part);
    }
    if (description.IsObjectOf(value, pickle::Known::kRebuildFromType)) return AddSubclass(archive, leaf, value);
    return AddValue(archive, leaf, value);
  }

  // The attributes of a tensor of PyTorch's own classes. Those of DTensors are what they consist of.
  void NameAttributes(const pickle::Pickle& description, const Leaf& leaf, Value value) {
    if (!IsTensor(description, value) || !description.IsObjectOf(value, pickle::Known::kRebuildFromType)) return;
    const Value state = description.Tuple(description.Arguments(value))[3];
    if (description.kind(state) != Kind::kTuple) return NameItems(description, leaf, state);
    for (const Value part : description.Tuple(state).subspan(0, 2)) NameItems(description, leaf, part);
  }

  void NameItems(const pickle::Pickle& description, const Leaf& leaf, Value state) {
    constexpr size_t kMostNamed = 64, kMostPlain = 4096;
    size_t named = 0;
    if (!description.HasItems(state)) return;
    description.ForEachItem(state, [&](Value key, Value value) {
      if (description.kind(key) != Kind::kString) return true;
      const std::string_view text = description.Text(key).substr(0, 100);
      if (pickle::PlainData(description, value, kMostPlain)) {
        // Marks for the program that has set them: named once for all tensors.
        builder_.AddAttribute({absl::StrCat("attribute ", status::View(text), " of tensors"), "", true});
      } else {
        builder_.AddAttribute({absl::StrCat(leaf.name, ".", status::View(text), " (an attribute)"), "", false});
      }
      return ++named < kMostNamed;
    });
  }

  absl::Status AddTensor(const Archive& archive, const Leaf& leaf, Value value, bool requires_grad,
                         const LocalPart* part) {
    absl::StatusOr<TensorRecord> record = ReadTensorRecord(archive, value);
    if (!record.ok()) {
      return absl::Status(record.status().code(),
                          absl::StrCat(record.status().message(), " (tensor ", io::Shown(leaf.name), ")"));
    }
    const std::vector<int64_t> offset = part != nullptr ? part->offset : Zeros(record->elements.shape);
    if (part != nullptr && part->in_mesh && part->size != record->elements.shape) {
      return archive.Bad("tensor ", io::Shown(leaf.name), ": the rank has ", io::Shown(record->elements.shape),
                         " where its placements give it ", io::Shown(part->size), " of ", io::Shown(part->shape));
    }
    RETURN_IF_ERROR(builder_.AddTensor(leaf.name, record->stored_dtype, record->dtype,
                                       part != nullptr ? part->shape : record->elements.shape,
                                       requires_grad || record->requires_grad));
    builder_.AddPath(leaf.name, leaf.path);
    files_of_[leaf.name].insert(file_);
    if (part == nullptr)
      NameOther(leaf.name,
                absl::StrCat(record->elements.record_length, " ", record->elements.record_crc32.value_or(0)));
    if (!record->dtype) {
      return builder_.AddChunk(offset, record->elements.shape,
                               {file_, record->elements.record_at, record->elements.record_length});
    }
    // An empty part of a DTensor adds nothing, nor does none; somebody must have all of it.
    if (part != nullptr && (!part->in_mesh || std::count(part->size.begin(), part->size.end(), 0) > 0)) {
      return absl::OkStatus();
    }
    return builder_.AddChunk(offset, file_, std::move(record->elements));
  }

  // Of what every rank has, the first one's counts. False where there is one already; another one is named.
  bool NameOther(const std::string& name, const std::string& content) {
    if (!ranks_) return true;
    const auto [at, first] = first_contents_.try_emplace(name, content);
    if (!first && at->second != content) {
      builder_.AddAttribute({absl::StrCat(name, " (another one in ", file_name_, ")"), "", false});
    }
    return first;
  }

  static std::vector<int64_t> Zeros(const std::vector<int64_t>& shape) { return std::vector<int64_t>(shape.size(), 0); }

  // A tensor whose elements nobody but its class can tell: it is listed, and refused by what would have to read it.
  absl::Status AddSubclass(const Archive& archive, const Leaf& leaf, Value value) {
    const pickle::Pickle& description = archive.description();
    const absl::Span<const Value> given = description.Tuple(description.Arguments(value));
    std::string type = "a subclass of Tensor";
    if (given.size() > 1 && description.kind(given[1]) == Kind::kName) type = ClassOf(description, given[1]);
    const std::vector<int64_t> shape = {0};
    RETURN_IF_ERROR(builder_.AddTensor(leaf.name, type, std::nullopt, shape, false));
    builder_.AddPath(leaf.name, leaf.path);
    files_of_[leaf.name].insert(file_);
    return absl::OkStatus();
  }

  absl::Status AddValue(const Archive& archive, const Leaf& leaf, Value value) {
    constexpr size_t kMostPlain = size_t{16} << 20;      // bytes of one value
    constexpr size_t kMostContents = size_t{256} << 20;  // bytes of all values of a file, as archives
    const std::optional<std::string> pickle = pickle::PlainData(archive.description(), value, kMostPlain);
    if (!pickle) {
      builder_.AddAttribute({absl::StrCat(leaf.name, " (", ClassOf(archive.description(), value), ")"), "", false});
      return absl::OkStatus();
    }
    if (!NameOther(leaf.name, *pickle)) return absl::OkStatus();
    const std::string whole = ValueArchive(*pickle);
    if (contents_.size() + whole.size() > kMostContents) {
      return absl::ResourceExhaustedError(
          absl::StrCat(archive.where(), "values of more than ", kMostContents, " bytes"));
    }
    items_.emplace_back(leaf.name,
                        std::pair(static_cast<int64_t>(contents_.size()), static_cast<int64_t>(whole.size())));
    contents_ += whole;
    builder_.AddPath(leaf.name, leaf.path);
    return absl::OkStatus();
  }

  const std::string root_;
  const CatalogLimits limits_;
  const bool ranks_;
  catalog::CatalogBuilder builder_;
  int64_t plain_tensors_ = 0;
  int64_t dtensors_ = 0;
  int32_t file_ = 0;
  std::string file_name_;
  std::string contents_;                                                    // of the byte items of this file
  std::vector<std::pair<std::string, std::pair<int64_t, int64_t>>> items_;  // where they are in it: from, length
  absl::flat_hash_map<std::string, std::set<int32_t>> files_of_;            // by tensor
  absl::flat_hash_map<std::string, std::string> first_contents_;            // that some rank had already
};

std::pair<std::string, std::string> Split(const std::string& path) {
  const size_t slash = path.rfind('/');
  if (slash == path.npos) return {".", path};
  return {slash == 0 ? "/" : path.substr(0, slash), path.substr(slash + 1)};
}

std::string_view WithoutExtension(std::string_view name) { return name.substr(0, name.rfind('.')); }

// R of "...R.pt"; -1 when it does not end so. `before` is what comes before R.
int64_t RankOf(std::string_view name, std::string_view* before) {
  constexpr std::string_view kSuffix = ".pt";
  if (!name.ends_with(kSuffix)) return -1;
  name.remove_suffix(kSuffix.size());
  size_t digits = name.size();
  while (digits > 0 && name[digits - 1] >= '0' && name[digits - 1] <= '9') --digits;
  *before = name.substr(0, digits);
  name.remove_prefix(digits);
  constexpr size_t kMostDigits = 7;
  if (name.empty() || name.size() > kMostDigits) return -1;
  int64_t rank = 0;
  for (const char digit : name) rank = 10 * rank + (digit - '0');
  return rank;
}

// The files of one item, by rank.
using ByRank = std::map<int64_t, std::string>;

absl::Status Missing(std::string_view stem, int64_t rank, int64_t ranks) {
  return absl::DataLossError(absl::StrCat("the file ", status::View(stem), rank, ".pt is missing: there must be ",
                                          ranks, " of them, one for each rank"));
}

absl::Status CheckComplete(std::string_view stem, const ByRank& files, int64_t ranks) {
  for (int64_t rank = 0; rank < ranks; ++rank) {
    if (!files.contains(rank)) return Missing(stem, rank, ranks);
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<bool> IsArchive(const std::string& path) {
  ASSIGN_OR_RETURN(const std::unique_ptr<io::ReadFile> file, io::ReadFile::Open(path, /*follow_links=*/true));
  constexpr std::string_view kMark = "PK\x03\x04";
  std::string begin(kMark.size(), '\0');
  if (file->bytes() < static_cast<int64_t>(begin.size())) return false;
  RETURN_IF_ERROR(file->ReadAt(0, absl::MakeSpan(begin)));
  return begin == kMark;
}

absl::StatusOr<Catalog> ReadFile(const std::string& path, const CatalogLimits& limits) {
  auto [root, name] = Split(path);
  Reader reader(kFormat, std::move(root), limits);
  RETURN_IF_ERROR(reader.AddFile(name, "", WithoutExtension(name)));
  return std::move(reader).Finish();
}

std::string BinSetOf(absl::Span<const std::string> names) {
  const auto found = std::find_if(names.begin(), names.end(),
                                  [](const std::string& name) { return name.ends_with(".bin.index.json"); });
  if (found != names.end()) return *found;
  constexpr std::string_view kSingle = "pytorch_model.bin";
  return std::find(names.begin(), names.end(), kSingle) == names.end() ? std::string() : std::string(kSingle);
}

absl::StatusOr<Catalog> ReadBinSet(const std::string& directory, const std::string& name, const CatalogLimits& limits) {
  Reader reader(kFormat, directory, limits);
  if (name.ends_with(".bin")) {
    RETURN_IF_ERROR(reader.AddFile(name, "", WithoutExtension(name)));
    return std::move(reader).Finish();
  }
  const std::string path = io::JoinPath(directory, name);
  ASSIGN_OR_RETURN(const safetensors::WeightMap map, safetensors::ReadWeightMap(path, limits));
  std::set<std::string> files;
  for (const auto& [tensor, file] : map) files.insert(file);
  for (const std::string& file : files) {
    if (absl::Status s = io::CheckRelativePath(file); !s.ok()) {
      return absl::InvalidArgumentError(absl::StrCat(path, ": ", s.message()));
    }
    const absl::Status added = reader.AddFile(file, "", WithoutExtension(file));
    if (absl::IsNotFound(added)) {
      return absl::DataLossError(absl::StrCat(path, ": the file ", io::Shown(file), " is missing"));
    }
    if (!added.ok()) return added;
  }
  RETURN_IF_ERROR(reader.CheckIndex(path, map));
  return std::move(reader).Finish();
}

absl::StatusOr<std::vector<RankFile>> RankFilesOf(absl::Span<const std::string> names) {
  constexpr std::string_view kModel = "model_world_size_";
  constexpr std::string_view kRank = "_rank_";
  std::map<std::string, ByRank, std::less<>> items;
  bool others = false;  // a .pt of no rank
  for (const std::string& name : names) {
    std::string_view before;
    const int64_t rank = RankOf(name, &before);
    if (rank >= 0) {
      if (!items[std::string(before)].emplace(rank, name).second) {
        return absl::InvalidArgumentError(absl::StrCat("two files of the same rank, one of them ", name));
      }
    } else {
      others |= name.ends_with(".pt");
    }
  }
  std::vector<RankFile> files;
  for (const auto& [stem, by_rank] : items) {
    if (!stem.starts_with(kModel) || !stem.ends_with(kRank)) continue;
    const std::string with_size = stem.substr(0, stem.size() - kRank.size()) + ".pt";
    std::string_view before;
    const int64_t ranks = RankOf(with_size, &before);
    if (ranks < 1 || before != kModel) continue;
    if (!files.empty()) return absl::InvalidArgumentError("files of two world sizes; keep those of one");
    RETURN_IF_ERROR(CheckComplete(stem, by_rank, ranks));
    if (by_rank.rbegin()->first >= ranks) {
      return absl::DataLossError(absl::StrCat("the file ", by_rank.rbegin()->second, " is of no rank of ", ranks));
    }
    for (const auto& [rank, name] : by_rank) files.push_back({name, ""});
  }
  if (!files.empty() || others || items.empty()) return files;
  const int64_t ranks = static_cast<int64_t>(items.begin()->second.size());
  for (const auto& [stem, by_rank] : items) {
    // Files that are numbered otherwise are no ranks' files.
    if (stem.size() < 2 || !stem.ends_with('_') || by_rank.begin()->first != 0) return std::vector<RankFile>();
  }
  for (const auto& [stem, by_rank] : items) {
    RETURN_IF_ERROR(CheckComplete(stem, by_rank, std::max(ranks, by_rank.rbegin()->first + 1)));
    for (const auto& [rank, name] : by_rank) files.push_back({name, stem.substr(0, stem.size() - 1)});
  }
  return files;
}

absl::StatusOr<Catalog> ReadRankFiles(const std::string& directory, absl::Span<const RankFile> files,
                                      const CatalogLimits& limits) {
  Reader reader(kFormatOfRanks, directory, limits);
  for (const RankFile& file : files) {
    RETURN_IF_ERROR(reader.AddFile(file.name, file.prefix, file.prefix.empty() ? "value" : file.prefix));
  }
  if (!files.empty() && !files[0].prefix.empty() && reader.dtensors() == 0 && reader.plain_tensors() > 0) {
    return absl::InvalidArgumentError(
        absl::StrCat(directory, " has numbered files of torch.save without a DTensor in them, such as ", files[0].name,
                     ", which are hardly those of ranks; name one of them"));
  }
  return std::move(reader).Finish();
}

}  // namespace reshard::torch_save
