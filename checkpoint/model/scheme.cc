#include "checkpoint/model/scheme.h"

#include <algorithm>
#include <array>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "checkpoint/io/show.h"
#include "layout/names.h"
#include "reshard/checkpoint/pattern.h"
#include "status/macros.h"
#include "status/view.h"

namespace reshard::model {
namespace {

struct Cut {
  const char* pattern;  // of names, see MatchesPattern
  int dim;
};

// Hugging Face's names, then those of Meta and torchtitan.
constexpr Cut kLlama[] = {
    {"*q_proj.*", 0},
    {"*k_proj.*", 0},
    {"*v_proj.*", 0},
    {"*qkv_proj.*", 0},
    {"*q_b_proj.*", 0},
    {"*kv_b_proj.*", 0},
    {"*gate_proj.*", 0},
    {"*up_proj.*", 0},
    {"*embed_tokens.weight", 0},
    {"*lm_head.weight", 0},
    {"*o_proj.weight", 1},
    {"*down_proj.weight", 1},
    {"*.wq.*", 0},
    {"*.wk.*", 0},
    {"*.wv.*", 0},
    {"*.w1.*", 0},
    {"*.w3.*", 0},
    {"*.wo.weight", 1},
    {"*.w2.weight", 1},
    {"*tok_embeddings.weight", 0},
    {"output.weight", 0},
    {"*.output.weight", 0},
};
// Its linear layers are Conv1D, whose weights are [in, out].
constexpr Cut kGpt2[] = {
    {"*attn.c_attn.weight", 1}, {"*attn.c_attn.bias", 0},  {"*attn.c_proj.weight", 0}, {"*mlp.c_fc.weight", 1},
    {"*mlp.c_fc.bias", 0},      {"*mlp.c_proj.weight", 0}, {"*wte.weight", 0},         {"*lm_head.weight", 0},
};
constexpr Cut kNeox[] = {
    {"*query_key_value.*", 0},    {"*attention.dense.weight", 1}, {"*dense_h_to_4h.*", 0},
    {"*dense_4h_to_h.weight", 1}, {"*embed_in.weight", 0},        {"*embed_out.weight", 0},
};

struct Family {
  std::string_view name;
  absl::Span<const Cut> cuts;
};
constexpr std::array<Family, 3> kFamilies = {{{"llama", kLlama}, {"gpt2", kGpt2}, {"neox", kNeox}}};
constexpr std::array<std::string_view, 4> kSchemes = {"replicate", "fsdp", "tp", "ep"};

// Names by which the axis of a scheme is guessed.
constexpr std::array<std::string_view, 4> kTensorAxes = {"tp", "model", "tensor", "mp"};
constexpr std::array<std::string_view, 2> kExpertAxes = {"ep", "expert"};

void Append(std::string* out, std::string_view name) { absl::StrAppend(out, status::View(name)); }

const Family* FindFamily(std::string_view name) {
  for (const Family& family : kFamilies) {
    if (family.name == name) return &family;
  }
  return nullptr;
}

// The axis with one of these names, or the only one.
absl::StatusOr<int> GuessAxis(const Mesh& mesh, std::string_view scheme, absl::Span<const std::string_view> names) {
  for (const std::string_view name : names) {
    if (const std::optional<int> axis = mesh.FindAxis(name)) return *axis;
  }
  if (mesh.num_axes() == 1) return 0;
  return absl::InvalidArgumentError(absl::StrCat("which axis is for ", status::View(scheme), "? Say ",
                                                 status::View(scheme), "@AXIS; the mesh has ",
                                                 layout::AxisNames(mesh)));
}

// One scheme as it is written: NAME[:FAMILY][@AXIS,..].
struct Part {
  std::string name, family;
  std::vector<int> axes;
};

absl::StatusOr<Part> ParsePart(std::string_view text, const Mesh& mesh) {
  const std::pair<std::string, std::string> halves = absl::StrSplit(status::View(text), absl::MaxSplits('@', 1));
  const std::pair<std::string, std::string> named = absl::StrSplit(halves.first, absl::MaxSplits(':', 1));
  Part part{named.first, named.second, {}};
  if (std::find(kSchemes.begin(), kSchemes.end(), part.name) == kSchemes.end()) {
    return absl::InvalidArgumentError(absl::StrCat("there is no scheme ", io::Shown(part.name), "; there are ",
                                                   absl::StrJoin(kSchemes, ", ", Append)));
  }
  if (!part.family.empty() && part.name != "tp") {
    return absl::InvalidArgumentError(absl::StrCat(io::Shown(text), ": only tp has a family, as in tp:llama"));
  }
  if (halves.second.empty()) return part;
  if (part.name == "replicate") return absl::InvalidArgumentError("replicate uses no axis");
  const std::vector<std::string> axes = absl::StrSplit(halves.second, ',');
  for (const std::string& axis : axes) {
    const std::optional<int> found = mesh.FindAxis(axis);
    if (!found) {
      return absl::InvalidArgumentError(absl::StrCat(io::Shown(text), ": there is no axis ", io::Shown(axis),
                                                     "; the mesh has ", layout::AxisNames(mesh)));
    }
    part.axes.push_back(*found);
  }
  return part;
}

absl::Status NoFamily(std::string_view text) {
  std::vector<std::string> known;
  for (const Family& family : kFamilies) known.push_back(absl::StrCat("tp:", status::View(family.name)));
  return absl::InvalidArgumentError(absl::StrCat(io::Shown(text), ": which family? There are ",
                                                 absl::StrJoin(known, ", "),
                                                 "; for another one write rules (reshard help rules)"));
}

}  // namespace

std::optional<ExpertName> FindExpert(std::string_view name) {
  constexpr std::string_view kMark = "experts.";
  const size_t begin = name.find(kMark);
  if (begin == std::string_view::npos) return std::nullopt;
  const size_t digits = begin + kMark.size(), end = name.find('.', digits);
  int64_t number = 0;
  if (end == std::string_view::npos || end == digits || end - digits > 9 ||
      !std::all_of(name.begin() + static_cast<std::ptrdiff_t>(digits), name.begin() + static_cast<std::ptrdiff_t>(end),
                   absl::ascii_isdigit) ||
      !absl::SimpleAtoi(status::View(name.substr(digits, end - digits)), &number)) {
    return std::nullopt;
  }
  return ExpertName{name.substr(0, digits), number};
}

std::optional<int> TensorParallelDim(std::string_view family, std::string_view name) {
  const Family* const known = FindFamily(family);
  if (known == nullptr) return std::nullopt;
  for (const Cut& cut : known->cuts) {
    if (MatchesPattern(cut.pattern, name)) return cut.dim;
  }
  return std::nullopt;
}

bool Scheme::IsScheme(std::string_view text) {
  const std::string_view word = text.substr(0, text.find_first_of(":@+"));
  return std::find(kSchemes.begin(), kSchemes.end(), word) != kSchemes.end();
}

absl::StatusOr<Scheme> Scheme::Parse(std::string_view text, const Mesh& mesh, absl::Span<const ModelTensor> model) {
  Scheme scheme;
  scheme.mesh_ = mesh;
  std::vector<bool> used(static_cast<size_t>(mesh.num_axes()));
  const std::vector<std::string> parts = absl::StrSplit(status::View(text), '+');
  // First the parts that name their axis or guess it by its name: fsdp takes the rest.
  for (const bool is_rest : {false, true}) {
    for (const std::string& part : parts) {
      if ((part == "fsdp") == is_rest) RETURN_IF_ERROR(scheme.Use(part, &used));
    }
  }
  if (scheme.ep_) RETURN_IF_ERROR(scheme.SplitByExperts());
  for (const ModelTensor& tensor : model) {
    const std::optional<ExpertName> expert = FindExpert(tensor.name);
    if (!expert) continue;
    int64_t& count = scheme.experts_.try_emplace(std::string(expert->prefix), 0).first->second;
    count = std::max(count, expert->number + 1);
  }
  return scheme;
}

// One part of the text, like "tp:llama@tp".
absl::Status Scheme::Use(std::string_view text, std::vector<bool>* used) {
  ASSIGN_OR_RETURN(Part part, ParsePart(text, mesh_));
  if (part.name == "replicate") return absl::OkStatus();
  if (part.name == "tp") {
    if (FindFamily(part.family) == nullptr) return NoFamily(text);
    family_ = part.family;
  }
  if (part.name == "fsdp") {
    for (int axis = 0; part.axes.empty() && axis < mesh_.num_axes(); ++axis) {
      if (!(*used)[axis]) fsdp_.push_back(axis);
    }
    fsdp_.insert(fsdp_.end(), part.axes.begin(), part.axes.end());
    part.axes = fsdp_;
  } else {
    if (part.axes.size() > 1) return absl::InvalidArgumentError(absl::StrCat(io::Shown(text), ": one axis is enough"));
    if (part.axes.empty()) {
      ASSIGN_OR_RETURN(
          const int guess,
          GuessAxis(mesh_, text, part.name == "tp" ? absl::Span<const std::string_view>(kTensorAxes) : kExpertAxes));
      part.axes = {guess};
    }
    (part.name == "tp" ? tp_ : ep_) = part.axes[0];
  }
  for (const int axis : part.axes) {
    if ((*used)[axis]) {
      return absl::InvalidArgumentError(
          absl::StrCat(io::Shown(text), ": the axis ", mesh_.axis(axis).name, " is used already"));
    }
    (*used)[axis] = true;
  }
  return absl::OkStatus();
}

// The mesh without the axis ep, at each of its coordinates.
absl::Status Scheme::SplitByExperts() {
  std::vector<Mesh::Axis> axes = mesh_.axes();
  axes.erase(axes.begin() + *ep_);
  std::vector<std::vector<int64_t>> ids(static_cast<size_t>(mesh_.axis(*ep_).size));
  for (int64_t position = 0; position < mesh_.size(); ++position) {
    ids[mesh_.Coordinate(position, *ep_)].push_back(mesh_.Device(position));
  }
  for (std::vector<int64_t>& of_block : ids) {
    ASSIGN_OR_RETURN(Mesh block, Mesh::Create(axes, std::move(of_block)));
    blocks_.push_back(std::move(block));
  }
  return absl::OkStatus();
}

const Mesh& Scheme::DevicesOfExpert(const ExpertName& expert) const {
  const auto count = experts_.find(expert.prefix);
  // The tensor may not be one of the model's.
  const int64_t experts = std::max(expert.number + 1, count == experts_.end() ? 0 : count->second);
  const auto ways = static_cast<int64_t>(blocks_.size()), each = (experts + ways - 1) / ways;
  return blocks_[expert.number / each];
}

absl::StatusOr<Layout> Scheme::LayoutFor(const ModelTensor& tensor) const {
  const std::optional<ExpertName> expert = ep_ ? FindExpert(tensor.name) : std::nullopt;
  const Mesh& mesh = expert ? DevicesOfExpert(*expert) : mesh_;
  std::vector<DimLayout> dims;
  for (const int64_t size : tensor.shape) dims.push_back({size, {}});
  const auto cut = [&](size_t dim, int axis) {
    // The mesh of one expert lacks the axis ep.
    const int its = expert && axis > *ep_ ? axis - 1 : axis;
    if (dim < dims.size()) dims[dim].factors.push_back(Factor::Along({its, 1, mesh.axis(its).size}));
  };
  constexpr size_t kStacked = 3;  // dimensions of a tensor of all experts
  const bool is_stacked =
      ep_ && !expert && tensor.shape.size() >= kStacked && tensor.name.find("expert") != std::string::npos;
  if (is_stacked) cut(0, *ep_);
  const std::optional<int> split = tp_ && !is_stacked ? TensorParallelDim(family_, tensor.name) : std::nullopt;
  if (split) cut(static_cast<size_t>(*split), *tp_);
  for (const int axis : fsdp_) cut(0, axis);
  return Layout::Create(mesh, std::move(dims));
}

}  // namespace reshard::model
