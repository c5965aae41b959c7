#include "checkpoint/formats/megatron/cuts.h"

#include <optional>
#include <string>

#include "tests/catch.h"

namespace reshard::megatron {
namespace {

std::string Joined(const std::optional<Numbered>& found) {
  return found ? found->before + "|" + std::to_string(found->number) + "|" + found->after : "nothing";
}

TEST_CASE("how tensor-parallel ranks of Megatron cut parameters, by name") {
  const std::string layer = "decoder.layers.3.", older = "language_model.encoder.layers.3.";
  for (const std::string& name :
       {layer + "self_attention.linear_qkv.weight", layer + "self_attention.linear_qkv.bias",
        older + "self_attention.query_key_value.weight", std::string("embedding.word_embeddings.weight"),
        std::string("word_embeddings_for_head.weight"), std::string("output_layer.weight")}) {
    CHECK(CutOf(name, true) == Cut::kRows);
  }
  for (const std::string& name :
       {layer + "self_attention.linear_proj.weight", older + "self_attention.dense.weight",
        layer + "mlp.linear_fc2.weight", layer + "mlp.experts.local_experts.0.linear_fc2.weight",
        layer + "mlp.experts.linear_fc2.weight7", older + "mlp.dense_4h_to_h.weight"}) {
    CHECK(CutOf(name, true) == Cut::kColumns);
  }
  for (const std::string& name : {layer + "mlp.linear_fc1.weight", layer + "mlp.experts.linear_fc1.weight12",
                                  older + "mlp.dense_h_to_4h.bias", layer + "mlp.shared_experts.linear_fc1.weight"}) {
    CHECK(CutOf(name, true) == Cut::kGatedRows);
    CHECK(CutOf(name, false) == Cut::kRows);
  }
  for (const std::string& name : {layer + "self_attention.linear_qkv.layer_norm_weight", layer + "input_layernorm.bias",
                                  layer + "self_attention.q_layernorm.weight", older + "post_attention_norm.weight",
                                  layer + "self_attention.linear_proj.bias", layer + "mlp.linear_fc2.bias",
                                  layer + "mlp.router.weight", std::string("embedding.position_embeddings.weight")}) {
    CHECK(CutOf(name, true) == Cut::kWhole);
  }
  for (const std::string& name : {layer + "mixer.in_proj.weight", layer + "self_attention.linear_q_down_proj.weight",
                                  std::string("my_output_layer.weight"), std::string()}) {
    CHECK(CutOf(name, true) == std::nullopt);
  }
}

TEST_CASE("layers and experts are numbered in the names of Megatron") {
  CHECK(Joined(LayerOf("decoder.layers.12.mlp.linear_fc1.weight")) == "decoder.layers.|12|.mlp.linear_fc1.weight");
  CHECK(Joined(LayerOf("layers.0.norm.weight")) == "layers.|0|.norm.weight");
  for (const char* const name : {"decoder.layers.x.w", "decoder.layers.1", "decoder.sublayers.1.w", "mtp.layers.0.w",
                                 "decoder.layers.99999999999999999999.w", "layers."}) {
    CHECK(Joined(LayerOf(name)) == "nothing");
  }
  CHECK(Joined(ExpertOf("decoder.layers.0.mlp.experts.local_experts.3.linear_fc1.weight")) ==
        "decoder.layers.0.mlp.experts.local_experts.|3|.linear_fc1.weight");
  CHECK(Joined(ExpertOf("decoder.layers.0.mlp.experts.linear_fc1.bias31")) ==
        "decoder.layers.0.mlp.experts.linear_fc1.bias|31|");
  CHECK(Joined(ExpertOf("decoder.layers.0.mlp.experts.linear_fc1.weight")) == "nothing");
  CHECK(Joined(ExpertOf("decoder.layers.0.mlp.shared_experts.linear_fc1.weight")) == "nothing");
  CHECK(HoldsManyExperts("decoder.layers.0.mlp.experts.weight2"));
  CHECK(!HoldsManyExperts("decoder.layers.0.mlp.experts.linear_fc1.weight1"));
}

}  // namespace
}  // namespace reshard::megatron
