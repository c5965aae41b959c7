#include "checkpoint/formats/megatron/cuts.h"

#include <algorithm>
#include <iterator>

#include "absl/strings/numbers.h"
#include "status/view.h"

namespace reshard::megatron {
namespace {

struct Rule {
  std::string_view ending;  // of the name, at a step of it; an expert's number behind it is taken off before
  Cut cut;
};
// The first that fits counts. Biases of layers whose columns are cut are added after the sum, by each rank.
constexpr Rule kRules[] = {
    {"word_embeddings.weight", Cut::kRows},
    {"word_embeddings_for_head.weight", Cut::kRows},
    {"position_embeddings.weight", Cut::kWhole},
    {"tokentype_embeddings.weight", Cut::kWhole},
    {"output_layer.weight", Cut::kRows},
    {"output_layer.bias", Cut::kRows},
    {"linear_qkv.weight", Cut::kRows},
    {"linear_qkv.bias", Cut::kRows},
    {"query_key_value.weight", Cut::kRows},
    {"query_key_value.bias", Cut::kRows},
    {"linear_proj.weight", Cut::kColumns},
    {"linear_proj.bias", Cut::kWhole},
    {"self_attention.dense.weight", Cut::kColumns},
    {"self_attention.dense.bias", Cut::kWhole},
    {"linear_fc1.weight", Cut::kGatedRows},
    {"linear_fc1.bias", Cut::kGatedRows},
    {"dense_h_to_4h.weight", Cut::kGatedRows},
    {"dense_h_to_4h.bias", Cut::kGatedRows},
    {"linear_fc2.weight", Cut::kColumns},
    {"linear_fc2.bias", Cut::kWhole},
    {"dense_4h_to_h.weight", Cut::kColumns},
    {"dense_4h_to_h.bias", Cut::kWhole},
    {"layer_norm_weight", Cut::kWhole},
    {"layer_norm_bias", Cut::kWhole},
    {"router.weight", Cut::kWhole},
    {"router.bias", Cut::kWhole},
    {"router.expert_bias", Cut::kWhole},
    {"shared_experts.gate_weight", Cut::kWhole},
};

bool EndsWithSteps(std::string_view name, std::string_view ending) {
  if (!name.ends_with(ending)) return false;
  return name.size() == ending.size() || name[name.size() - ending.size() - 1] == '.';
}

bool IsDigit(char character) { return character >= '0' && character <= '9'; }

// The number at `at`; nullopt where there is none, or `name` does not go on with `next` (any text if it is empty).
std::optional<Numbered> NumberAt(std::string_view name, size_t at, std::string_view next) {
  size_t end = at;
  while (end < name.size() && IsDigit(name[end])) ++end;
  int64_t number = 0;
  if (end == at || !absl::SimpleAtoi(status::View(name.substr(at, end - at)), &number)) return std::nullopt;
  if (!name.substr(end).starts_with(next)) return std::nullopt;
  return Numbered{std::string(name.substr(0, at)), number, std::string(name.substr(end))};
}

}  // namespace

std::optional<Cut> CutOf(std::string_view name, bool gated) {
  // Those of grouped experts have their number last.
  if (name.find(".experts.") != name.npos) {
    while (!name.empty() && IsDigit(name.back())) name.remove_suffix(1);
  }
  const auto rule = std::find_if(std::begin(kRules), std::end(kRules),
                                 [&](const Rule& one) { return EndsWithSteps(name, one.ending); });
  if (rule != std::end(kRules)) return rule->cut == Cut::kGatedRows && !gated ? Cut::kRows : rule->cut;
  // input_layernorm, final_norm, q_layernorm, ...
  if (name.ends_with("norm.weight") || name.ends_with("norm.bias")) return Cut::kWhole;
  return std::nullopt;
}

std::optional<Numbered> LayerOf(std::string_view name) {
  constexpr std::string_view kLayers = "layers.";
  const size_t at = name.find(kLayers);
  if (at == name.npos || (at > 0 && name[at - 1] != '.') || name.starts_with("mtp.")) return std::nullopt;
  return NumberAt(name, at + kLayers.size(), ".");
}

std::optional<Numbered> ExpertOf(std::string_view name) {
  constexpr std::string_view kLocal = ".local_experts.";
  if (const size_t at = name.find(kLocal); at != name.npos) return NumberAt(name, at + kLocal.size(), ".");
  if (name.find(".experts.linear_fc") == name.npos) return std::nullopt;
  size_t at = name.size();
  while (at > 0 && IsDigit(name[at - 1])) --at;
  return NumberAt(name, at, "");
}

bool IsOutput(std::string_view name) {
  return EndsWithSteps(name, "output_layer.weight") || EndsWithSteps(name, "word_embeddings_for_head.weight");
}

bool HoldsManyExperts(std::string_view name) {
  return EndsWithSteps(name, "experts.weight1") || EndsWithSteps(name, "experts.weight2");
}

}  // namespace reshard::megatron
