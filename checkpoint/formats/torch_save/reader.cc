#include "checkpoint/formats/torch_save/reader.h"

#include <algorithm>
#include <memory>

#include "absl/strings/str_cat.h"
#include "checkpoint/formats/pickle/numpy_data.h"
#include "checkpoint/formats/pickle/opaque.h"
#include "checkpoint/formats/pickle/plain_data.h"
#include "checkpoint/formats/torch_save/tensor_frame.h"
#include "checkpoint/hash/hash.h"
#include "checkpoint/io/files.h"
#include "checkpoint/io/show.h"
#include "status/macros.h"
#include "status/view.h"

namespace reshard::torch_save {
namespace {

using Kind = pickle::Pickle::Kind;

constexpr size_t kMostPlain = size_t{16} << 20;      // bytes of one value
constexpr size_t kMostContents = size_t{256} << 20;  // bytes of all values of a file, as archives

// Whether two files have the same bytes there.
absl::StatusOr<bool> HaveSameBytes(const io::ReadFile& a, int64_t a_at, const io::ReadFile& b, int64_t b_at,
                                   int64_t length) {
  constexpr int64_t kAtOnce = int64_t{1} << 20;
  std::string left, right;
  for (int64_t done = 0; done < length; done += kAtOnce) {
    left.resize(std::min(kAtOnce, length - done));
    right.resize(left.size());
    RETURN_IF_ERROR(a.ReadAt(a_at + done, absl::MakeSpan(left)));
    RETURN_IF_ERROR(b.ReadAt(b_at + done, absl::MakeSpan(right)));
    if (left != right) return false;
  }
  return true;
}

}  // namespace

Reader::Reader(const catalog::FormatTraits& format, std::string root, const CatalogLimits& limits)
    : root_(root), limits_(limits), ranks_(format.replicas_come_again), builder_(format, std::move(root)) {}

absl::Status Reader::AddFile(const std::string& name, std::string_view prefix, std::string_view root_name,
                             int64_t rank) {
  return AddLeaves(name, prefix, root_name, rank, [](const Leaf&) { return true; });
}

absl::Status Reader::AddFile(const std::string& name, const std::function<bool(const Leaf&)>& is_wanted) {
  return AddLeaves(name, "", "value", 0, is_wanted);
}

absl::Status Reader::AddLeaves(const std::string& name, std::string_view prefix, std::string_view root_name,
                               int64_t rank, const std::function<bool(const Leaf&)>& is_wanted) {
  ASSIGN_OR_RETURN(const OpenFile open, Open(name));
  const Archive& archive = *open.archive;
  const pickle::Pickle& description = open.values();
  file_ = open.index;
  file_name_ = name;
  rank_ = rank;
  absl::StatusOr<std::vector<Leaf>> leaves = Flatten(archive);
  if (!leaves.ok()) return leaves.status();
  contents_.clear();
  content_.reset();
  for (Leaf& leaf : *leaves) {
    if (!is_wanted(leaf)) continue;
    if (leaf.path.empty()) {
      const Kind kind = description.kind(leaf.value);
      const bool is_data = IsAnyTensor(description, leaf.value) || pickle::IsNumpyArray(description, leaf.value) ||
                           pickle::PlainData(description, leaf.value, kMostPlain);
      if ((kind == Kind::kObject || kind == Kind::kName) && !is_data) {
        return archive.CannotRead(
            "it holds ", io::Shown(pickle::KindOfOpaque(description, leaf.value)),
            " rather than a state dict or a module; torch.save(model.state_dict(), ...) writes one");
      }
      leaf.name = std::string(root_name);
      leaf.path = {leaf.name};
    } else if (!prefix.empty()) {
      leaf.name = absl::StrCat(status::View(prefix), ".", leaf.name);
      // GCC 12 takes what insert() moves for uninitialized.
      leaf.path.emplace_back(std::string(prefix));
      std::rotate(leaf.path.begin(), leaf.path.end() - 1, leaf.path.end());
    }
    RETURN_IF_ERROR(Add(archive, leaf));
  }
  if (content_) builder_.SetContent(*content_, std::move(contents_));
  return absl::OkStatus();
}

absl::StatusOr<OpenFile> Reader::Open(const std::string& name) {
  OpenFile open;
  ASSIGN_OR_RETURN(open.index, builder_.AddFile(name));
  ASSIGN_OR_RETURN(open.file, io::ReadFile::Open(io::JoinPath(root_, name), /*follow_links=*/true));
  builder_.SetOpened(open.index, *open.file);
  ASSIGN_OR_RETURN(Archive archive, Archive::OpenFile(*open.file, limits_));
  open.archive = std::make_unique<Archive>(std::move(archive));
  return open;
}

absl::Status Reader::AddChunk(absl::Span<const int64_t> offset, int32_t file, TensorRecord record) {
  catalog::StoredElements& elements = record.elements;
  if (record.dtype) return builder_.AddChunk(offset, file, std::move(elements));
  return builder_.AddChunk(offset, elements.shape, {file, elements.record_at, elements.record_length});
}

absl::Status Reader::CheckIndex(const std::string& index_path, const safetensors::WeightMap& map) {
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

absl::StatusOr<Catalog> Reader::Finish() && {
  RETURN_IF_ERROR(SplitVersions());
  return std::move(builder_).Build();
}

absl::Status Reader::Add(const Archive& archive, const Leaf& leaf) {
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
    ASSIGN_OR_RETURN(const LocalPart part, ReadDTensor(archive, leaf.name, value));
    if (!ranks_) {
      return archive.Bad("tensor ", io::Shown(leaf.name),
                         " is a DTensor, of which one file has a part; name the directory with the files of all ranks");
    }
    ++dtensors_;
    if (!IsTensor(description, part.local)) return archive.CannotRead("a DTensor of another kind of tensors");
    return AddTensor(archive, leaf, part.local, requires_grad, &part);
  }
  if (IsAnyTensor(description, value)) return AddUnreadable(leaf, KindOfTensor(description, value));
  if (archive.is_script()) {
    // Flags and numbers of its code are not part of its state.
    if (description.kind(value) == Kind::kObject) AddOpaque(archive, leaf, value);
    return absl::OkStatus();
  }
  if (pickle::IsNumpyArray(description, value)) return AddArray(archive, leaf, value);
  return AddValue(archive, leaf, value);
}

// The attributes of a tensor of PyTorch's own classes. Those of DTensors are what they consist of.
void Reader::NameAttributes(const pickle::Pickle& description, const Leaf& leaf, Value value) {
  if (!IsTensor(description, value) || !description.IsObjectOf(value, pickle::Known::kRebuildFromType)) return;
  const Value state = description.Tuple(description.Arguments(value))[3];
  if (description.kind(state) != Kind::kTuple) return NameItems(description, leaf, state);
  for (const Value part : description.Tuple(state).subspan(0, 2)) NameItems(description, leaf, part);
}

void Reader::NameItems(const pickle::Pickle& description, const Leaf& leaf, Value state) {
  constexpr size_t kMostNamed = 64, kMostBytes = 4096;
  size_t named = 0;
  if (!description.HasItems(state)) return;
  description.ForEachItem(state, [&](Value key, Value value) {
    if (description.kind(key) != Kind::kString) return true;
    const std::string_view text = description.Text(key).substr(0, 100);
    if (pickle::PlainData(description, value, kMostBytes)) {
      // Marks for the program that has set them: named once for all tensors.
      builder_.AddAttribute({absl::StrCat("attribute ", status::View(text), " of tensors"), "", true, ""});
    } else {
      builder_.AddAttribute(
          {absl::StrCat(leaf.name, ".", status::View(text)), "", false, "an attribute of the tensor"});
    }
    return ++named < kMostNamed;
  });
}

absl::Status Reader::AddTensor(const Archive& archive, const Leaf& leaf, Value value, bool requires_grad,
                               const LocalPart* part) {
  absl::StatusOr<TensorRecord> record = ReadTensorRecord(archive, value);
  if (!record.ok()) {
    return absl::Status(record.status().code(),
                        absl::StrCat(record.status().message(), " (tensor ", io::Shown(leaf.name), ")"));
  }
  record->requires_grad |= requires_grad;
  files_of_[leaf.name].insert(file_);
  if (part == nullptr) {
    ASSIGN_OR_RETURN(const bool is_first, AddVersion(leaf, {rank_, file_, file_name_, *record, {}, ""}));
    if (!is_first) return absl::OkStatus();
    builder_.AddPath(leaf.name, leaf.path);
    return AddElements(leaf.name, *record, file_);
  }
  if (part->in_mesh && part->size != record->elements.shape) {
    return archive.Bad("tensor ", io::Shown(leaf.name), ": the rank has ", io::Shown(record->elements.shape),
                       " where its placements give it ", io::Shown(part->size), " of ", io::Shown(part->shape));
  }
  RETURN_IF_ERROR(
      builder_.AddTensor(leaf.name, record->stored_dtype, record->dtype, part->shape, record->requires_grad));
  builder_.AddPath(leaf.name, leaf.path);
  // An empty part of a DTensor adds nothing, nor does none; somebody must have all of it.
  if (!part->in_mesh || std::count(part->size.begin(), part->size.end(), 0) > 0) return absl::OkStatus();
  return AddChunk(part->offset, file_, *std::move(record));
}

absl::Status Reader::AddElements(const std::string& name, const TensorRecord& record, int32_t file) {
  const std::vector<int64_t>& shape = record.elements.shape;
  RETURN_IF_ERROR(builder_.AddTensor(name, record.stored_dtype, record.dtype, shape, record.requires_grad));
  return AddChunk(std::vector<int64_t>(shape.size(), 0), file, record);
}

absl::Status Reader::AddUnreadable(const Leaf& leaf, std::string_view kind) {
  const std::vector<int64_t> shape = {0};
  RETURN_IF_ERROR(builder_.AddTensor(leaf.name, kind, std::nullopt, shape, false));
  builder_.AddPath(leaf.name, leaf.path);
  files_of_[leaf.name].insert(file_);
  return absl::OkStatus();
}

absl::Status Reader::AddArray(const Archive& archive, const Leaf& leaf, Value value) {
  const std::optional<pickle::NumpyData> data = pickle::ReadNumpy(archive.description(), value, kMostContents);
  if (!data) {
    AddOpaque(archive, leaf, value);
    return absl::OkStatus();
  }
  TensorRecord record;
  record.dtype = data->dtype;
  record.stored_dtype = absl::StrCat("numpy.", status::View(Name(data->dtype)));
  catalog::StoredElements& elements = record.elements;
  elements.dtype = data->dtype;
  elements.shape = data->shape;
  elements.strides.resize(data->shape.size());
  int64_t stride = 1;  // the bytes are in memory, so nothing overflows
  for (size_t i = 0; i < data->shape.size(); ++i) {
    const size_t d = data->is_fortran ? i : data->shape.size() - 1 - i;
    elements.strides[d] = stride;
    stride *= std::max<int64_t>(data->shape[d], 1);
  }
  ASSIGN_OR_RETURN(const Catalog::FileRange place, Keep(archive, data->bytes));
  elements.record_at = elements.first_at = place.at;
  elements.record_length = place.length;
  files_of_[leaf.name].insert(file_);
  ++plain_tensors_;
  const std::string sum = hash::ContentHash::Of(data->bytes).ToText();
  ASSIGN_OR_RETURN(const bool is_first, AddVersion(leaf, {rank_, place.file, file_name_, record, {}, sum}));
  if (!is_first) return absl::OkStatus();
  builder_.AddPath(leaf.name, leaf.path);
  return AddElements(leaf.name, record, place.file);
}

absl::Status Reader::AddValue(const Archive& archive, const Leaf& leaf, Value value) {
  const std::optional<std::string> pickle = pickle::PlainData(archive.description(), value, kMostPlain);
  if (!pickle) {
    AddOpaque(archive, leaf, value);
    return absl::OkStatus();
  }
  // Another rank's value is kept only where it is not the first one's.
  const std::string sum = hash::ContentHash::Of(*pickle).ToText();
  const auto before = versions_.find(leaf.name);
  Catalog::FileRange place;
  if (before == versions_.end() || before->second.all[0].sum != sum) {
    ASSIGN_OR_RETURN(place, Keep(archive, ValueArchive(*pickle)));
  } else {
    place = before->second.all[0].place;
  }
  ASSIGN_OR_RETURN(const bool is_first, AddVersion(leaf, {rank_, file_, file_name_, std::nullopt, place, sum}));
  if (!is_first) return absl::OkStatus();
  builder_.AddPath(leaf.name, leaf.path);
  return builder_.AddByteItem(leaf.name, place);
}

void Reader::AddOpaque(const Archive& archive, const Leaf& leaf, Value value) {
  builder_.AddAttribute({leaf.name, "", false, pickle::KindOfOpaque(archive.description(), value)});
  builder_.AddPath(leaf.name, leaf.path);
}

absl::StatusOr<Catalog::FileRange> Reader::Keep(const Archive& archive, std::string_view bytes) {
  if (contents_.size() + bytes.size() > kMostContents) {
    return absl::ResourceExhaustedError(
        absl::StrCat(archive.where(), "values and arrays of more than ", kMostContents, " bytes"));
  }
  if (!content_) content_ = builder_.AddContent(absl::StrCat(file_name_, "#values"));
  const Catalog::FileRange place = {*content_, static_cast<int64_t>(contents_.size()),
                                    static_cast<int64_t>(bytes.size())};
  contents_ += bytes;
  return place;
}

absl::StatusOr<bool> Reader::AddVersion(const Leaf& leaf, Version version) {
  if (!ranks_) return true;
  const auto [at, is_first] = versions_.try_emplace(leaf.name);
  Versions& versions = at->second;
  if (is_first) {
    version_names_.push_back(leaf.name);
    versions.path = leaf.path;
  } else if (!versions.other) {
    ASSIGN_OR_RETURN(const bool same, IsSame(versions.all[0], version));
    if (!same) versions.other = versions.all.size();
  }
  versions.all.push_back(std::move(version));
  return is_first;
}

absl::StatusOr<bool> Reader::IsSame(const Version& a, const Version& b) const {
  if (a.tensor.has_value() != b.tensor.has_value() || a.sum != b.sum) return false;
  if (!a.tensor || !a.sum.empty()) return true;
  const catalog::StoredElements& left = a.tensor->elements;
  const catalog::StoredElements& right = b.tensor->elements;
  if (a.tensor->stored_dtype != b.tensor->stored_dtype || left.shape != right.shape || left.strides != right.strides ||
      left.conjugated != right.conjugated || left.negated != right.negated) {
    return false;
  }
  const int64_t from = left.first_at - left.record_at;
  const bool same_part = from == right.first_at - right.record_at && left.record_length == right.record_length;
  if (same_part && left.record_crc32 && left.record_crc32 == right.record_crc32) return true;
  // What surrounds the elements in their storages may differ, and a file may have no checksums.
  ASSIGN_OR_RETURN(const auto a_file, io::ReadFile::Open(io::JoinPath(root_, a.file_name), /*follow_links=*/true));
  ASSIGN_OR_RETURN(const auto b_file, io::ReadFile::Open(io::JoinPath(root_, b.file_name), /*follow_links=*/true));
  int64_t last = 0;
  bool empty = false;
  for (size_t d = 0; d < left.shape.size(); ++d) {
    empty |= left.shape[d] == 0;
    last += (left.shape[d] - 1) * left.strides[d];
  }
  if (empty) return true;
  if (!a.tensor->dtype) {
    if (!same_part) return false;
    return HaveSameBytes(*a_file, left.record_at, *b_file, right.record_at, left.record_length);
  }
  return HaveSameBytes(*a_file, left.first_at, *b_file, right.first_at, (last + 1) * SizeOf(left.dtype));
}

absl::Status Reader::SplitVersions() {
  for (const std::string& name : version_names_) {
    const Versions& versions = versions_.at(name);
    if (!versions.other) continue;
    Catalog::RankLocal rank_local;
    rank_local.name = name;
    rank_local.files = {versions.all[0].file_name, versions.all[*versions.other].file_name};
    for (size_t i = 0; i < versions.all.size(); ++i) {
      const Version& version = versions.all[i];
      std::string rank_name = absl::StrCat(name, ".rank_", version.rank);
      if (i == 0) {
        RETURN_IF_ERROR(builder_.MakeRankLocal(name, rank_name));
      } else {
        RETURN_IF_ERROR(version.tensor ? AddElements(rank_name, *version.tensor, version.file)
                                       : builder_.AddByteItem(rank_name, version.place));
        builder_.SetRankLocal(name, rank_name);
      }
      std::vector<Catalog::PathStep> path = versions.path;
      if (!path.empty() && std::holds_alternative<std::string>(path.back())) {
        absl::StrAppend(&std::get<std::string>(path.back()), ".rank_", version.rank);
      }
      builder_.AddPath(rank_name, std::move(path));
      rank_local.names.push_back(std::move(rank_name));
    }
    builder_.AddRankLocal(std::move(rank_local));
  }
  return absl::OkStatus();
}

}  // namespace reshard::torch_save
