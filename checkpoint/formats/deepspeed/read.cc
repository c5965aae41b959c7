#include "checkpoint/formats/deepspeed/read.h"

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "checkpoint/formats/deepspeed/flat.h"
#include "checkpoint/formats/deepspeed/parameters.h"
#include "checkpoint/formats/pickle/machine.h"
#include "checkpoint/formats/torch_save/archive.h"
#include "checkpoint/formats/torch_save/format.h"
#include "checkpoint/formats/torch_save/reader.h"
#include "checkpoint/io/files.h"
#include "checkpoint/io/show.h"
#include "reshard/layout/checked.h"
#include "status/macros.h"
#include "status/view.h"

namespace reshard::deepspeed {
namespace {

using Kind = pickle::Pickle::Kind;
using torch_save::OpenFile;

class ZeroReader {
 public:
  ZeroReader(const std::string& directory, const Files& files, const CatalogLimits& limits)
      : directory_(directory), files_(files), limits_(limits), reader_(torch_save::kFormat, directory, limits) {}

  absl::StatusOr<Catalog> Read() && {
    for (const std::string& name : files_.models) {
      ASSIGN_OR_RETURN(models_.emplace_back(), Open(name));
    }
    RETURN_IF_ERROR(ReadModel());
    if (files_.is_universal) {
      RETURN_IF_ERROR(AddUniversal());
    } else {
      for (const std::string& name : files_.optimizers) {
        ASSIGN_OR_RETURN(optimizers_.emplace_back(), Open(name));
      }
      RETURN_IF_ERROR(AddOptimizers());
    }
    RETURN_IF_ERROR(AddFrozen());
    RETURN_IF_ERROR(AddRest());
    return std::move(reader_).Finish();
  }

 private:
  // How the ranks hold the parameters of a group.
  enum class Cut : uint8_t {
    kGroup,       // all of a group one after the other, cut among the ranks: ZeRO 1 and 2
    kParameters,  // each parameter for itself, padded to as many equal parts as there are ranks: ZeRO 3
  };

  absl::StatusOr<OpenFile> Open(const std::string& name) {
    ASSIGN_OR_RETURN(OpenFile open, reader_.Open(name));
    most_ += open.archive->description_bytes();
    return open;
  }

  // The groups of parameters, by the first model's file.
  absl::Status ReadModel() {
    const OpenFile& model = models_[0];
    const std::optional<Value> shapes = Member(model.values(), model.values().root(), "param_shapes");
    if (!shapes) return model.archive->Bad("there is no param_shapes, which checkpoints with ZeRO have");
    std::vector<Value> groups = ListOf(model.values(), shapes);
    if (groups.empty()) groups.push_back(*shapes);  // of older versions
    for (const Value group : groups) {
      ASSIGN_OR_RETURN(groups_.emplace_back(), ReadGroup(*model.archive, group, "param_shapes"));
      for (const Parameter& parameter : groups_.back()) {
        if (!shapes_.emplace(parameter.name, parameter.shape).second) {
          return model.archive->Bad("param_shapes has ", io::Shown(parameter.name), " twice");
        }
      }
    }
    const pickle::Pickle& values = model.values();
    if (const std::optional<Value> shared = DictOf(values, Member(values, values.root(), "shared_params"))) {
      values.ForEachItem(*shared, [&](Value alias, Value name) {
        if (values.kind(alias) != Kind::kString || values.kind(name) != Kind::kString) return true;
        const auto found = shapes_.find(std::string(values.Text(name)));
        if (found != shapes_.end() && shapes_.emplace(values.Text(alias), found->second).second) {
          aliases_.emplace(found->first, values.Text(alias));
        }
        return true;
      });
    }
    return absl::OkStatus();
  }

  // The names under which a parameter is there, and what the optimizer keeps of it.
  std::vector<std::string> NamesOf(const Parameter& parameter, const std::string& key) const {
    std::vector<std::string> names = {parameter.name};
    if (!key.empty()) return names;
    const auto [begin, end] = aliases_.equal_range(parameter.name);
    for (auto alias = begin; alias != end; ++alias) names.push_back(alias->second);
    return names;
  }

  absl::Status AddTensor(const std::string& name, const std::string& key, const torch_save::TensorRecord& like,
                         absl::Span<const int64_t> shape) {
    RETURN_IF_ERROR(Spend());
    const std::string full =
        key.empty() ? absl::StrCat("module.", name) : absl::StrCat("optimizer.state.", name, ".", key);
    RETURN_IF_ERROR(reader_.builder().AddTensor(full, like.stored_dtype, like.dtype, shape, like.requires_grad));
    if (key.empty()) {
      reader_.builder().AddPath(full, {std::string("module"), name});
    } else {
      reader_.builder().AddPath(full, {std::string("optimizer"), std::string("state"), name, key});
    }
    return absl::OkStatus();
  }

  // Every tensor has a name in some description, and there are few for each name: what is listed again and again is not
  // followed without end.
  absl::Status Spend() {
    if (--most_ >= 0) return absl::OkStatus();
    return absl::DataLossError(absl::StrCat(directory_, ": more tensors than files of their size can name"));
  }

  std::optional<Value> OptimizerOf(const OpenFile& file) const {
    return Member(file.values(), file.values().root(), "optimizer_state_dict");
  }

  absl::Status AddOptimizers() {
    const pickle::Pickle& first = optimizers_[0].values();
    const std::optional<Value> optimizer = OptimizerOf(optimizers_[0]);
    if (Member(first, optimizer, "fp32_flat_groups")) {
      // The groups' parameters follow each other; how their buffers were cut into groups does not matter.
      Group all;
      for (Group& group : groups_) std::move(group.begin(), group.end(), std::back_inserter(all));
      groups_ = {std::move(all)};
      return AddBuffers(Cut::kParameters, "fp32_flat_groups", "optimizer_state_dict");
    }
    if (Member(first, optimizer, "single_partition_of_fp32_groups")) {
      RETURN_IF_ERROR(ReadPaddings());
      return AddBuffers(Cut::kGroup, "single_partition_of_fp32_groups", "base_optimizer_state");
    }
    return optimizers_[0].archive->CannotRead(
        "its optimizer_state_dict has neither fp32_flat_groups nor single_partition_of_fp32_groups, as no "
        "form of ZeRO that is known here");
  }

  // Elements after each parameter, where the version has such.
  absl::Status ReadPaddings() {
    const OpenFile& file = optimizers_[0];
    const pickle::Pickle& values = file.values();
    const std::vector<Value> groups = ListOf(values, Member(values, OptimizerOf(file), "param_alignment_paddings"));
    for (size_t g = 0; g < std::min(groups.size(), groups_.size()); ++g) {
      const std::vector<Value> paddings = ListOf(values, groups[g]);
      if (paddings.size() != groups_[g].size())
        return file.archive->Bad("param_alignment_paddings does not fit param_shapes");
      for (size_t p = 0; p < paddings.size(); ++p) {
        const std::optional<int64_t> padding = values.Int(paddings[p]);
        if (!padding || *padding < 0 || *padding > int64_t{1} << 40) {
          return file.archive->Bad("param_alignment_paddings has something that is not a count");
        }
        groups_[g][p].padding = *padding;
      }
    }
    return absl::OkStatus();
  }

  // The masters of the parameters, in the list `flat` of each rank's optimizer, and the optimizer's state of them, in
  // the same form, in its dict `inner`.
  absl::Status AddBuffers(Cut cut, const char* flat, const char* inner) {
    for (size_t r = 0; r < optimizers_.size(); ++r) {
      const pickle::Pickle& values = optimizers_[r].values();
      const std::optional<Value> optimizer = OptimizerOf(optimizers_[r]);
      const std::vector<Value> masters = ListOf(values, Member(values, optimizer, flat));
      for (size_t g = 0; g < masters.size(); ++g) RETURN_IF_ERROR(Collect(cut, "", g, r, masters[g]));
      const std::optional<Value> state = DictOf(values, Member(values, Member(values, optimizer, inner), "state"));
      if (state) RETURN_IF_ERROR(CollectState(cut, r, *state));  // there is none before the first step
    }
    for (const auto& [key, of_key] : buffers_) {
      for (size_t g = 0; g < groups_.size(); ++g) {
        RETURN_IF_ERROR(cut == Cut::kGroup ? AddGroup(key, groups_[g], of_key[g][0]) : AddParts(key, of_key[g]));
      }
    }
    for (const auto& [which, scalar] : scalars_) {
      for (const Parameter& parameter : groups_[which.first]) {
        RETURN_IF_ERROR(AddTensor(parameter.name, which.second, scalar.record, {}));
        RETURN_IF_ERROR(reader_.builder().AddChunk({}, scalar.file, scalar.record.elements));
      }
    }
    return absl::OkStatus();
  }

  // A flat tensor of rank r, the number-th of its list.
  absl::Status Collect(Cut cut, const std::string& key, size_t number, size_t r, Value value) {
    RETURN_IF_ERROR(Spend());
    const OpenFile& file = optimizers_[r];
    ASSIGN_OR_RETURN(const size_t group, GroupOf(cut, number, file));
    ASSIGN_OR_RETURN(FlatTensor tensor,
                     ReadFlatTensor(*file.archive, file.index, value, key.empty() ? "a buffer" : key));
    std::vector<std::vector<FlatBuffer>>& of_key = buffers_[key];
    // The parts that ranks hold of a group follow each other; parts of parameters do not.
    const size_t buffers = cut == Cut::kGroup ? 1 : optimizers_.size();
    of_key.resize(groups_.size(), std::vector<FlatBuffer>(buffers));
    const absl::Status added = of_key[group][cut == Cut::kGroup ? 0 : r].Add(std::move(tensor));
    return added.ok() ? added : file.archive->Bad(added.message());
  }

  absl::StatusOr<size_t> GroupOf(Cut cut, size_t number, const OpenFile& file) const {
    const size_t group = cut == Cut::kGroup ? number : 0;
    if (group >= groups_.size()) return file.archive->Bad("it has more groups than param_shapes");
    return group;
  }

  // {0: {"exp_avg": a flat tensor, "step": a scalar, ...}, 1: ...}, by groups.
  absl::Status CollectState(Cut cut, size_t r, Value state) {
    const OpenFile& file = optimizers_[r];
    const pickle::Pickle& values = file.values();
    std::map<int64_t, Value> by_number;
    values.ForEachItem(state, [&](Value number, Value of_group) {
      if (const std::optional<int64_t> n = values.Int(number)) by_number[*n] = of_group;
      return true;
    });
    for (const auto& entry : by_number) {
      const std::optional<Value> items = DictOf(values, entry.second);
      if (!items || entry.first < 0) return file.archive->Bad("the state of a group is not a dict");
      const auto number = static_cast<size_t>(entry.first);
      absl::Status status;
      values.ForEachItem(*items, [&](Value key, Value value) {
        if (values.kind(key) == Kind::kString && torch_save::IsTensor(values, value)) {
          status = CollectTensor(cut, std::string(values.Text(key)), number, r, value);
        }
        return status.ok();
      });
      if (!status.ok()) return status;
    }
    return absl::OkStatus();
  }

  absl::Status CollectTensor(Cut cut, const std::string& key, size_t number, size_t r, Value value) {
    const OpenFile& file = optimizers_[r];
    ASSIGN_OR_RETURN(const torch_save::TensorRecord record, torch_save::ReadTensorRecord(*file.archive, value));
    if (!record.elements.shape.empty()) return Collect(cut, key, number, r, value);
    RETURN_IF_ERROR(Spend());
    ASSIGN_OR_RETURN(const size_t group, GroupOf(cut, number, file));
    scalars_[{group, key}] = {file.index, record};
    return absl::OkStatus();
  }

  absl::Status Misfit(const std::string& key, int64_t has, int64_t wanted) const {
    return absl::DataLossError(absl::StrCat(directory_, ": the flat buffers of ", key.empty() ? "the parameters" : key,
                                            " have ", has, " elements where the parameters need ", wanted));
  }

  // Elements of a group per rank, if each of `ranks` ranks holds a part of each parameter; the largest number if more.
  static int64_t Wanted(const Group& group, int64_t ranks) {
    int64_t wanted = 0;
    for (const Parameter& parameter : group) {
      const int64_t here = (parameter.count + parameter.padding + ranks - 1) / ranks;
      wanted = CheckedAdd(wanted, here).value_or(std::numeric_limits<int64_t>::max());
    }
    return wanted;
  }

  // ZeRO 1 and 2: the buffer of all ranks.
  absl::Status AddGroup(const std::string& key, const Group& group, const FlatBuffer& buffer) {
    const int64_t wanted = Wanted(group, 1);
    // Buffers are padded to a multiple of twice the ranks, at the end.
    const auto most_padding = 2 * static_cast<int64_t>(optimizers_.size());
    if (buffer.count() < wanted || buffer.count() - wanted >= most_padding) return Misfit(key, buffer.count(), wanted);
    int64_t at = 0;
    for (const Parameter& parameter : group) {
      if (buffer.empty()) return Misfit(key, 0, wanted);
      for (const std::string& name : NamesOf(parameter, key)) {
        RETURN_IF_ERROR(AddTensor(name, key, buffer.like(), parameter.shape));
        RETURN_IF_ERROR(buffer.AddChunks(parameter.shape, 0, at, parameter.count, reader_.builder()));
      }
      at += parameter.count + parameter.padding;
    }
    return absl::OkStatus();
  }

  // ZeRO 3.
  absl::Status AddParts(const std::string& key, const std::vector<FlatBuffer>& by_rank) {
    const auto ranks = static_cast<int64_t>(by_rank.size());
    const int64_t wanted = Wanted(groups_[0], ranks);
    for (const FlatBuffer& buffer : by_rank) {
      if (buffer.count() < wanted || buffer.empty()) return Misfit(key, buffer.count(), wanted);
    }
    int64_t at = 0;
    for (const Parameter& parameter : groups_[0]) {
      const int64_t part = (parameter.count + ranks - 1) / ranks;
      for (const std::string& name : NamesOf(parameter, key)) {
        RETURN_IF_ERROR(AddTensor(name, key, by_rank[0].like(), parameter.shape));
        for (int64_t r = 0; r * part < parameter.count; ++r) {
          const int64_t here = std::min(part, parameter.count - r * part);
          RETURN_IF_ERROR(by_rank[r].AddChunks(parameter.shape, r * part, at, here, reader_.builder()));
        }
      }
      at += part;
    }
    return absl::OkStatus();
  }

  // Parameters that are not trained: whole in the model's file, or a part per rank.
  absl::Status AddFrozen() {
    const OpenFile& model = models_[0];
    const std::optional<Value> shapes = Member(model.values(), model.values().root(), "frozen_param_shapes");
    if (!shapes || !DictOf(model.values(), shapes)) return absl::OkStatus();
    ASSIGN_OR_RETURN(const Group frozen, ReadGroup(*model.archive, *shapes, "frozen_param_shapes"));
    const auto ranks = static_cast<int64_t>(models_.size());
    for (const Parameter& parameter : frozen) {
      const int64_t part = (parameter.count + ranks - 1) / ranks;
      for (int64_t r = 0; r < ranks; ++r) {
        const OpenFile& file = models_[r];
        const pickle::Pickle& values = file.values();
        const std::optional<Value> value =
            Member(values, Member(values, values.root(), "frozen_param_fragments"), parameter.name);
        if (!value || !torch_save::IsTensor(values, *value)) {
          return file.archive->Bad("there is no fragment of ", io::Shown(parameter.name));
        }
        ASSIGN_OR_RETURN(const torch_save::TensorRecord record, torch_save::ReadTensorRecord(*file.archive, *value));
        if (r == 0) RETURN_IF_ERROR(AddTensor(parameter.name, "", record, parameter.shape));
        shapes_.emplace(parameter.name, parameter.shape);
        if (ranks == 1 && record.elements.shape == parameter.shape) {
          const std::vector<int64_t> zeros(parameter.shape.size(), 0);
          RETURN_IF_ERROR(reader_.builder().AddChunk(zeros, file.index, record.elements));
          continue;
        }
        ASSIGN_OR_RETURN(FlatTensor flat, ReadFlatTensor(*file.archive, file.index, *value, parameter.name));
        const int64_t here = std::clamp<int64_t>(parameter.count - r * part, 0, part);
        if (flat.count() < here) return Misfit(parameter.name, flat.count(), here);
        FlatBuffer buffer;
        RETURN_IF_ERROR(buffer.Add(std::move(flat)));
        RETURN_IF_ERROR(buffer.AddChunks(parameter.shape, r * part, 0, here, reader_.builder()));
      }
    }
    return absl::OkStatus();
  }

  // zero/NAME/fp32.pt, and a file beside it for each tensor that the optimizer keeps of it.
  absl::Status AddUniversal() {
    for (const Group& group : groups_) {
      for (const Parameter& parameter : group) RETURN_IF_ERROR(AddUniversal(parameter));
    }
    return absl::OkStatus();
  }

  absl::Status AddUniversal(const Parameter& parameter) {
    constexpr std::string_view kMaster = "fp32", kSuffix = ".pt";
    const std::string folder = absl::StrCat(files_.within, "zero/", parameter.name);
    ASSIGN_OR_RETURN(const std::vector<std::string> inside, io::ListDirectory(io::JoinPath(directory_, folder)));
    if (std::find(inside.begin(), inside.end(), "fp32.pt") == inside.end()) {
      return absl::DataLossError(absl::StrCat(io::JoinPath(directory_, folder), " has no fp32.pt"));
    }
    for (const std::string& file_name : inside) {
      if (!file_name.ends_with(kSuffix)) continue;
      const std::string stem = file_name.substr(0, file_name.size() - kSuffix.size());
      const std::string key = stem == kMaster ? std::string() : stem;
      ASSIGN_OR_RETURN(const OpenFile file, Open(absl::StrCat(folder, "/", file_name)));
      const pickle::Pickle& values = file.values();
      const Value value = Member(values, values.root(), "param").value_or(values.root());
      if (!torch_save::IsTensor(values, value)) {
        reader_.builder().AddAttribute({absl::StrCat("optimizer.state.", parameter.name, ".", stem), "", false,
                                        "a value of a universal checkpoint"});
        continue;
      }
      ASSIGN_OR_RETURN(const torch_save::TensorRecord record, torch_save::ReadTensorRecord(*file.archive, value));
      const bool is_whole = record.elements.shape.empty() || record.elements.shape == parameter.shape;
      FlatBuffer buffer;
      if (!is_whole) {
        ASSIGN_OR_RETURN(FlatTensor flat, ReadFlatTensor(*file.archive, file.index, value, stem));
        if (flat.count() < parameter.count) return Misfit(parameter.name, flat.count(), parameter.count);
        RETURN_IF_ERROR(buffer.Add(std::move(flat)));
      }
      for (const std::string& name : NamesOf(parameter, key)) {
        RETURN_IF_ERROR(AddTensor(name, key, record, is_whole ? record.elements.shape : parameter.shape));
        if (is_whole) {
          const std::vector<int64_t> zeros(record.elements.shape.size(), 0);
          RETURN_IF_ERROR(reader_.builder().AddChunk(zeros, file.index, record.elements));
        } else {
          RETURN_IF_ERROR(buffer.AddChunks(parameter.shape, 0, 0, parameter.count, reader_.builder()));
        }
      }
    }
    return absl::OkStatus();
  }

  // Adds what the first files say besides parameters.
  absl::Status AddRest() {
    static constexpr std::string_view kOwn[] = {"param_shapes", "frozen_param_shapes", "frozen_param_fragments",
                                                "buffer_names", "shared_params",       "optimizer"};
    RETURN_IF_ERROR(reader_.AddFile(files_.models[0], [&](const torch_save::Leaf& leaf) {
      const auto* const first = leaf.path.empty() ? nullptr : std::get_if<std::string>(&leaf.path[0]);
      if (first == nullptr) return false;
      if (*first == "module" && leaf.path.size() > 1) {
        const std::string name = leaf.name.substr(std::string_view("module.").size());
        return !shapes_.contains(name);
      }
      return std::find(std::begin(kOwn), std::end(kOwn), *first) == std::end(kOwn);
    }));
    if (optimizers_.empty()) return absl::OkStatus();
    static constexpr std::string_view kKept[] = {"loss_scaler", "dynamic_loss_scale", "overflow", "clip_grad"};
    return reader_.AddFile(files_.optimizers[0], [&](const torch_save::Leaf& leaf) {
      const auto step = [&](size_t i) {
        const auto* const text = i < leaf.path.size() ? std::get_if<std::string>(&leaf.path[i]) : nullptr;
        return text == nullptr ? std::string_view() : std::string_view(*text);
      };
      if (step(0) != "optimizer_state_dict") return false;
      return step(2) == "param_groups" || std::find(std::begin(kKept), std::end(kKept), step(1)) != std::end(kKept);
    });
  }

  const std::string directory_;
  const Files& files_;
  const CatalogLimits limits_;
  torch_save::Reader reader_;
  int64_t most_ = 0;  // bytes of all descriptions
  std::vector<OpenFile> models_, optimizers_;
  std::vector<Group> groups_;
  std::map<std::string, std::vector<int64_t>> shapes_;  // of all parameters
  std::multimap<std::string, std::string> aliases_;     // of parameters: other names of them
  // By key of the optimizer's state, "" being the parameters themselves: for each group one buffer, or one per rank.
  std::map<std::string, std::vector<std::vector<FlatBuffer>>> buffers_;
  std::map<std::pair<size_t, std::string>, FlatTensor> scalars_;  // by group and key
};

}  // namespace

absl::StatusOr<Catalog> ReadDeepSpeed(const std::string& directory, const Files& files, const CatalogLimits& limits) {
  if (files.optimizers.empty() && !files.is_universal) {
    torch_save::Reader reader(torch_save::kFormat, directory, limits);
    RETURN_IF_ERROR(reader.AddFile(files.models[0], [](const torch_save::Leaf&) { return true; }));
    return std::move(reader).Finish();
  }
  return ZeroReader(directory, files, limits).Read();
}

}  // namespace reshard::deepspeed
