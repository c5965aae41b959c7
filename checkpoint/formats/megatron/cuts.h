// How model-parallel ranks of Megatron hold the parameters of a GPT, by name.
//
// Both generations of names are known: Megatron-core's (decoder.layers.0.self_attention.linear_qkv.weight) and those
// before (language_model.encoder.layers.0.self_attention.query_key_value.weight).
#ifndef RESHARD_CHECKPOINT_FORMATS_MEGATRON_CUTS_H_
#define RESHARD_CHECKPOINT_FORMATS_MEGATRON_CUTS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace reshard::megatron {

// Which part of a parameter each tensor-parallel rank holds.
enum class Cut : uint8_t {
  kWhole,      // each rank all of it
  kRows,       // parts of the first dimension, in the order of the ranks
  kColumns,    // parts of the second dimension
  kGatedRows,  // of gate and up, one behind the other: each rank a part of gate, and then the same part of up
};

// nullopt: the name is not known. `gated`: the first layer of an MLP has gate and up.
std::optional<Cut> CutOf(std::string_view name, bool gated);

// A number in a name.
struct Numbered {
  std::string before;  // "decoder.layers."
  int64_t number = 0;
  std::string after;  // ".mlp.linear_fc1.weight"
};
// Of a name in a stage of a pipeline, the number of the layer, which each stage counts from 0. nullopt: of no layer, or
// of one of multi-token prediction, which are all in the last stage.
std::optional<Numbered> LayerOf(std::string_view name);
// Of a name in an expert-parallel rank, the number of the expert, which each rank counts from 0:
// mlp.experts.local_experts.3.linear_fc1.weight and mlp.experts.linear_fc1.weight3.
std::optional<Numbered> ExpertOf(std::string_view name);
// Whether the parameter is the output layer's, which may be a copy of the embedding.
bool IsOutput(std::string_view name);
// Whether the parameter has all experts of a rank in a form of its own: mlp.experts.weight1.
bool HoldsManyExperts(std::string_view name);

}  // namespace reshard::megatron

#endif  // RESHARD_CHECKPOINT_FORMATS_MEGATRON_CUTS_H_
