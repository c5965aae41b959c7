#include "checkpoint/formats/megatron/read.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <string_view>
#include <tuple>
#include <utility>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "checkpoint/catalog/stored_elements.h"
#include "checkpoint/formats/megatron/cuts.h"
#include "checkpoint/formats/pickle/machine.h"
#include "checkpoint/formats/torch_save/archive.h"
#include "checkpoint/formats/torch_save/flatten.h"
#include "checkpoint/formats/torch_save/format.h"
#include "checkpoint/formats/torch_save/reader.h"
#include "checkpoint/formats/torch_save/tensor_record.h"
#include "checkpoint/io/show.h"
#include "reshard/layout/checked.h"
#include "status/macros.h"
#include "status/view.h"

namespace reshard::megatron {
namespace {

using Value = pickle::Pickle::Value;
using torch_save::Leaf;

constexpr int64_t kMostLayers = 1 << 20;    // of a stage, and experts of a rank
constexpr int64_t kMostParallel = 1 << 20;  // ranks along an axis

// What the arguments of the job say.
struct Job {
  int64_t tensor = 1, pipeline = 1, expert = 1;  // ranks along each axis
  std::optional<int64_t> layers;
  bool gated = false;
  bool tied = false;  // the output layer is the embedding
};

// The number of a chunk of the model: 0 of "model", 2 of "model2", which an interleaved pipeline has.
std::optional<int64_t> ChunkOf(const Leaf& leaf) {
  if (leaf.path.empty() || !std::holds_alternative<std::string>(leaf.path[0])) return std::nullopt;
  std::string_view first = std::get<std::string>(leaf.path[0]);
  if (!first.starts_with("model")) return std::nullopt;
  first.remove_prefix(5);
  int64_t number = 0;
  if (first.empty()) return 0;
  const bool is_number = std::all_of(first.begin(), first.end(), [](char c) { return c >= '0' && c <= '9'; });
  if (!is_number || !absl::SimpleAtoi(status::View(first), &number)) return std::nullopt;
  return number;
}

// The name of a parameter below its chunk of the model.
std::string NameOf(const Leaf& leaf) {
  std::string name;
  for (size_t i = 1; i < leaf.path.size(); ++i) {
    if (i > 1) name += '.';
    std::visit([&](const auto& step) { absl::StrAppend(&name, step); }, leaf.path[i]);
  }
  return name;
}

bool IsNamed(const Leaf& leaf, std::initializer_list<std::string_view> firsts) {
  if (leaf.path.empty() || !std::holds_alternative<std::string>(leaf.path[0])) return false;
  return std::find(firsts.begin(), firsts.end(), std::get<std::string>(leaf.path[0])) != firsts.end();
}

class MegatronReader {
 public:
  MegatronReader(const std::string& directory, absl::Span<const RankFile> files, const CatalogLimits& limits)
      : files_(files), reader_(torch_save::kFormat, directory, limits) {}

  absl::StatusOr<Catalog> Read() && {
    for (const RankFile& file : files_) RETURN_IF_ERROR(Open(file));
    RETURN_IF_ERROR(ReadJob());
    RETURN_IF_ERROR(PlaceRanks());
    RETURN_IF_ERROR(CountLayers());
    for (const Rank& rank : ranks_) RETURN_IF_ERROR(Collect(rank));
    for (const std::string& name : names_) RETURN_IF_ERROR(AddTensor(name, tensors_.at(name)));
    RETURN_IF_ERROR(AddRest());
    return std::move(reader_).Finish();
  }

 private:
  // The file of a rank, open.
  struct Rank {
    const RankFile* file = nullptr;
    int64_t tensor = 0, pipeline = 0, expert = 0;
    torch_save::OpenFile open;
    std::vector<Leaf> leaves;

    const torch_save::Archive& archive() const { return *open.archive; }
  };
  // One tensor-parallel rank's part of a parameter.
  struct Part {
    const Rank* rank = nullptr;
    torch_save::TensorRecord record;
  };
  struct Tensor {
    Cut cut = Cut::kWhole;
    std::vector<Part> parts;
  };

  absl::Status Open(const RankFile& file) {
    Rank& rank = ranks_.emplace_back();
    rank.file = &file;
    ASSIGN_OR_RETURN(rank.open, reader_.Open(file.name));
    ASSIGN_OR_RETURN(rank.leaves, torch_save::Flatten(rank.archive()));
    return absl::OkStatus();
  }

  // A value of the first file.
  std::optional<Value> Find(std::string_view name) const {
    for (const Leaf& leaf : ranks_[0].leaves) {
      if (leaf.name == name) return leaf.value;
    }
    return std::nullopt;
  }
  std::optional<int64_t> Number(std::string_view name) const {
    const std::optional<Value> value = Find(name);
    return value ? ranks_[0].archive().description().Int(*value) : std::nullopt;
  }
  bool IsTrue(std::string_view name) const {
    const std::optional<Value> value = Find(name);
    return value && ranks_[0].archive().description().IsTrue(*value);
  }
  bool IsFalse(std::string_view name) const {
    const pickle::Pickle& values = ranks_[0].archive().description();
    const std::optional<Value> value = Find(name);
    return value && values.kind(*value) == pickle::Pickle::Kind::kBool && !values.IsTrue(*value);
  }

  absl::Status ReadJob() {
    const torch_save::Archive& first = ranks_[0].archive();
    if (std::none_of(ranks_[0].leaves.begin(), ranks_[0].leaves.end(), ChunkOf)) {
      return first.Bad("there is no \"model\", which a file of Megatron has");
    }
    const std::optional<Value> version = Find("checkpoint_version");
    if (version) {
      const pickle::Pickle& values = first.description();
      const std::optional<double> number = values.Float(*version);
      if (number.value_or(static_cast<double>(values.Int(*version).value_or(0))) < 2) {
        return first.CannotRead("a version before 2, whose queries, keys and values lie in another order");
      }
    }
    job_.gated = IsTrue("args.swiglu") || IsTrue("args.quick_geglu") || IsTrue("args.gated_linear_unit");
    job_.tied = IsFalse("args.untie_embeddings_and_output_weights");
    job_.layers = Number("args.num_layers");
    for (const auto& [name, size] : {std::pair{"args.tensor_model_parallel_size", &job_.tensor},
                                     std::pair{"args.pipeline_model_parallel_size", &job_.pipeline},
                                     std::pair{"args.expert_model_parallel_size", &job_.expert}}) {
      *size = Number(name).value_or(1);
      if (*size < 1 || *size > kMostParallel) return first.Bad(name, " is ", *size);
    }
    // Without arguments the names of the files say it, as far as they can.
    if (!Number("args.tensor_model_parallel_size")) {
      const std::vector<int64_t>& last = files_.back().numbers;
      if (last.size() > 2) return first.Bad("it has no args, which say what the numbers in mp_rank_T_P_E are of");
      job_.tensor = last[0] + 1;
      job_.pipeline = last.size() == 2 ? last[1] + 1 : 1;
    }
    const std::optional<int64_t> of_experts = Number("args.expert_tensor_parallel_size");
    if (job_.expert > 1 && of_experts && *of_experts != job_.tensor) {
      return first.CannotRead("experts over ", *of_experts, " tensor-parallel ranks where all else is over ",
                              job_.tensor);
    }
    return absl::OkStatus();
  }

  // mp_rank_T, mp_rank_T_P and mp_rank_T_P_E; of one stage, mp_rank_T_E.
  absl::Status PlaceRanks() {
    const size_t numbers = files_[0].numbers.size();
    const size_t expected = 1 + (job_.pipeline > 1 ? 1 : 0) + (job_.expert > 1 ? 1 : 0);
    const torch_save::Archive& first = ranks_[0].archive();
    if (numbers != expected) {
      return first.Bad("its job had ", job_.tensor, " tensor-parallel, ", job_.pipeline, " pipeline and ", job_.expert,
                       " expert-parallel ranks, which is not what the numbers in mp_rank_... say");
    }
    std::map<std::vector<int64_t>, const Rank*> there;
    for (Rank& rank : ranks_) {
      const std::vector<int64_t>& number = rank.file->numbers;
      rank.tensor = number[0];
      if (job_.pipeline > 1) rank.pipeline = number[1];
      if (job_.expert > 1) rank.expert = number.back();
      if (rank.tensor >= job_.tensor || rank.pipeline >= job_.pipeline || rank.expert >= job_.expert) {
        return absl::DataLossError(absl::StrCat(io::Shown(rank.file->name), " is of no rank of the job, which had ",
                                                job_.tensor, " x ", job_.pipeline, " x ", job_.expert,
                                                ": remove what is of another one"));
      }
      there.emplace(std::vector{rank.tensor, rank.pipeline, rank.expert}, &rank);
    }
    for (int64_t t = 0; t < job_.tensor; ++t) {
      for (int64_t p = 0; p < job_.pipeline; ++p) {
        for (int64_t e = 0; e < job_.expert; ++e) {
          if (there.contains({t, p, e})) continue;
          return absl::DataLossError(absl::StrCat("the file of tensor-parallel rank ", t, ", stage ", p,
                                                  " and expert-parallel rank ", e, " is missing beside ",
                                                  io::Shown(files_[0].name)));
        }
      }
    }
    return absl::OkStatus();
  }

  // Where the layers of each stage begin: chunk 0 of all stages comes first, then chunk 1, ...
  absl::Status CountLayers() {
    // By what is before the number: encoder and decoder count for themselves.
    std::map<std::string, std::map<std::pair<int64_t, int64_t>, int64_t>> counts;
    for (const Rank& rank : ranks_) {
      for (const Leaf& leaf : rank.leaves) {
        const std::optional<int64_t> chunk = ChunkOf(leaf);
        if (!chunk) continue;
        const std::string name = NameOf(leaf);
        if (const std::optional<Numbered> expert = ExpertOf(name)) {
          RETURN_IF_ERROR(CheckNumber(rank, expert->number));
          experts_ = std::max(experts_, expert->number + 1);
        }
        const std::optional<Numbered> layer = LayerOf(name);
        if (!layer) continue;
        RETURN_IF_ERROR(CheckNumber(rank, layer->number));
        int64_t& count = counts[layer->before][{*chunk, rank.pipeline}];
        count = std::max(count, layer->number + 1);
      }
    }
    for (const auto& [before, of_chunks] : counts) {
      int64_t first = 0;
      for (const auto& [chunk, count] : of_chunks) {
        first_layers_[{before, chunk.first, chunk.second}] = first;
        first += count;
      }
      if (job_.layers && counts.size() == 1 && first != *job_.layers) {
        return ranks_[0].archive().Bad("the files have ", first, " layers, and args.num_layers is ", *job_.layers);
      }
    }
    return absl::OkStatus();
  }

  static absl::Status CheckNumber(const Rank& rank, int64_t number) {
    if (number < kMostLayers) return absl::OkStatus();
    return rank.archive().Bad("number ", number, " of a layer or an expert");
  }

  absl::Status Collect(const Rank& rank) {
    const pickle::Pickle& values = rank.archive().description();
    for (const Leaf& leaf : rank.leaves) {
      const std::optional<int64_t> chunk = ChunkOf(leaf);
      // What is not a tensor is state of Transformer Engine (_extra_state).
      if (!chunk || !torch_save::IsTensor(values, leaf.value) || leaf.name.ends_with("._extra_state")) continue;
      std::string name = NameOf(leaf);
      if (HoldsManyExperts(name) && job_.tensor * job_.expert > 1) {
        return rank.archive().CannotRead("tensor ", io::Shown(name),
                                         ", in which ranks have all their experts together");
      }
      const std::optional<Numbered> expert = ExpertOf(name);
      if (!expert && rank.expert != 0) continue;
      if (expert) name = absl::StrCat(expert->before, expert->number + rank.expert * experts_, expert->after);
      if (const std::optional<Numbered> layer = LayerOf(name)) {
        const int64_t first = first_layers_.at({layer->before, *chunk, rank.pipeline});
        name = absl::StrCat(layer->before, layer->number + first, layer->after);
      }
      if (job_.tied && IsOutput(name)) continue;
      const std::optional<Cut> cut = job_.tensor == 1 ? Cut::kWhole : CutOf(name, job_.gated);
      if (!cut) {
        return rank.archive().CannotRead("how tensor-parallel ranks cut ", io::Shown(name),
                                         " is not known: this reads GPTs of Megatron-LM and Megatron-core");
      }
      if (*cut == Cut::kWhole && rank.tensor != 0) continue;
      absl::StatusOr<torch_save::TensorRecord> record = torch_save::ReadTensorRecord(rank.archive(), leaf.value);
      if (!record.ok()) {
        return absl::Status(record.status().code(),
                            absl::StrCat(record.status().message(), " (tensor ", io::Shown(name), ")"));
      }
      const auto [at, is_new] = tensors_.try_emplace(name, Tensor{*cut, {}});
      if (is_new) names_.push_back(name);
      at->second.parts.push_back({&rank, *std::move(record)});
    }
    return absl::OkStatus();
  }

  absl::Status AddTensor(const std::string& name, Tensor& tensor) {
    std::sort(tensor.parts.begin(), tensor.parts.end(),
              [](const Part& a, const Part& b) { return a.rank->tensor < b.rank->tensor; });
    const torch_save::TensorRecord& like = tensor.parts[0].record;
    const torch_save::Archive& archive = tensor.parts[0].rank->archive();
    const size_t expected = tensor.cut == Cut::kWhole ? 1 : job_.tensor;
    if (tensor.parts.size() != expected) {
      return archive.Bad(tensor.parts.size(), " of ", job_.tensor, " tensor-parallel ranks have ", io::Shown(name),
                         ", or more than one stage has it");
    }
    std::vector<int64_t> shape = like.elements.shape;
    const size_t dim = tensor.cut == Cut::kColumns ? 1 : 0;
    if (tensor.cut != Cut::kWhole) {
      if (shape.size() <= dim) return archive.Bad("tensor ", io::Shown(name), " has no dimension ", dim);
      const std::optional<int64_t> size = CheckedMul(shape[dim], job_.tensor);
      if (!size) return archive.Bad("tensor ", io::Shown(name), " is too large");
      shape[dim] = *size;
    }
    for (const Part& part : tensor.parts) {
      if (part.record.elements.shape == like.elements.shape && part.record.stored_dtype == like.stored_dtype) continue;
      return part.rank->archive().Bad("tensor ", io::Shown(name), " is ", part.record.stored_dtype, " ",
                                      io::Shown(part.record.elements.shape), ", that of the first rank ",
                                      like.stored_dtype, " ", io::Shown(like.elements.shape));
    }
    RETURN_IF_ERROR(reader_.builder().AddTensor(name, like.stored_dtype, like.dtype, shape, like.requires_grad));
    reader_.builder().AddPath(name, {name});
    for (Part& part : tensor.parts) RETURN_IF_ERROR(AddPart(name, tensor.cut, dim, part));
    return absl::OkStatus();
  }

  absl::Status AddPart(const std::string& name, Cut cut, size_t dim, Part& part) {
    catalog::StoredElements& elements = part.record.elements;
    std::vector<int64_t> offset(elements.shape.size(), 0);
    if (cut != Cut::kWhole) offset[dim] = part.rank->tensor * elements.shape[dim];
    if (cut != Cut::kGatedRows) return reader_.AddChunk(offset, part.rank->open.index, std::move(part.record));
    if (!part.record.dtype) {
      return part.rank->archive().CannotRead("tensor ", io::Shown(name), " of ", part.record.stored_dtype);
    }
    if (elements.shape[0] % 2 != 0) {
      return part.rank->archive().Bad("tensor ", io::Shown(name), " has ", elements.shape[0],
                                      " rows, which are not gate and as much up");
    }
    const int64_t half = elements.shape[0] / 2;
    for (const int64_t which : {0, 1}) {
      catalog::StoredElements of_half = elements;
      of_half.shape[0] = half;
      of_half.first_at += which * half * elements.strides[0] * SizeOf(elements.dtype);
      offset[0] = (which * job_.tensor + part.rank->tensor) * half;
      RETURN_IF_ERROR(reader_.builder().AddChunk(offset, part.rank->open.index, std::move(of_half)));
    }
    return absl::OkStatus();
  }

  // Adds the values beside the model.
  absl::Status AddRest() {
    for (const Leaf& leaf : ranks_[0].leaves) {
      if (!IsNamed(leaf, {"optimizer", "rng_state"})) continue;
      const std::string& first = std::get<std::string>(leaf.path[0]);
      reader_.builder().AddAttribute({absl::StrCat(first, " of Megatron's ranks"), "", true, ""});
    }
    return reader_.AddFile(files_[0].name, [](const Leaf& leaf) {
      return !ChunkOf(leaf) && !IsNamed(leaf, {"optimizer", "rng_state"});
    });
  }

  const absl::Span<const RankFile> files_;
  torch_save::Reader reader_;
  Job job_;
  std::vector<Rank> ranks_;  // in the order of files_
  int64_t experts_ = 0;      // of one rank
  // The number of the first layer, by what is before its number, the chunk of the model and the stage.
  std::map<std::tuple<std::string, int64_t, int64_t>, int64_t> first_layers_;
  std::vector<std::string> names_;  // of tensors_, in the order of the files
  std::map<std::string, Tensor> tensors_;
};

}  // namespace

absl::StatusOr<Catalog> ReadMegatron(const std::string& directory, absl::Span<const RankFile> files,
                                     const CatalogLimits& limits) {
  return MegatronReader(directory, files, limits).Read();
}

}  // namespace reshard::megatron
