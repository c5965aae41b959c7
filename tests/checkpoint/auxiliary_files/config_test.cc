// What a configuration says of tensors that they are not.
#include "checkpoint/auxiliary_files/config.h"

#include <string>
#include <utility>
#include <vector>

#include "checkpoint/catalog/catalog_builder.h"
#include "checkpoint/formats/safetensors/format.h"
#include "tests/catch.h"

namespace reshard {
namespace {

using Texts = std::vector<std::string>;

Catalog ModelOf(DType dtype, bool has_output) {
  catalog::CatalogBuilder builder(safetensors::kFormat, "");
  const auto add = [&](const char* name, DType of, std::vector<int64_t> shape) {
    REQUIRE(builder.AddTensor(name, "x", of, shape, false).ok());
  };
  add("model.embed_tokens.weight", dtype, {32, 4});
  add("model.norm.weight", DType::kF32, {4});
  if (has_output) add("lm_head.weight", dtype, {32, 4});
  return std::move(builder).BuildUnstored();
}

}  // namespace

TEST_CASE("a configuration that says what tensors are is not contradicted") {
  const Catalog model = ModelOf(DType::kBF16, true);
  for (const char* text : {R"({"torch_dtype": "bfloat16", "vocab_size": 32, "tie_word_embeddings": false})",
                           R"({"dtype": "bfloat16"})", R"({"dtype": "auto", "vocab_size": "many"})", "{}", "[]",
                           "no JSON", R"({"text_config": {"dtype": "bfloat16", "vocab_size": 32}})"}) {
    INFO(text);
    CHECK(auxiliary_files::Contradictions(text, model).empty());
  }
  CHECK(auxiliary_files::Contradictions(R"({"tie_word_embeddings": true})", ModelOf(DType::kF32, false)).empty());
  CHECK(auxiliary_files::Contradictions(R"({"dtype": "float16", "vocab_size": 9})", Catalog()).empty());
}

TEST_CASE("what a configuration says and tensors are not is told") {
  CHECK(auxiliary_files::Contradictions(R"({"torch_dtype": "float32", "vocab_size": 30, "tie_word_embeddings": true})",
                                        ModelOf(DType::kBF16, true)) ==
        Texts{"config.json says torch_dtype float32, most elements are bf16",
              "config.json says vocab_size 30, \"model.embed_tokens.weight\" has 32 rows",
              "config.json says tie_word_embeddings true, and there is a lm_head.weight"});
  CHECK(auxiliary_files::Contradictions(R"({"tie_word_embeddings": false, "text_config": {"vocab_size": 31}})",
                                        ModelOf(DType::kF32, false)) ==
        Texts{"config.json says vocab_size 31, \"model.embed_tokens.weight\" has 32 rows",
              "config.json says tie_word_embeddings false, and there is no lm_head.weight"});
}

TEST_CASE("of a quantized model the wide floats are few, and a configuration of one belongs to one") {
  const char* const config =
      R"({"torch_dtype": "bfloat16", "tie_word_embeddings": false, "quantization_config": {"quant_method": "fp8"}})";
  CHECK(auxiliary_files::Contradictions(config, ModelOf(DType::kF8E4M3FN, true)).empty());
  CHECK(auxiliary_files::Contradictions(config, ModelOf(DType::kBF16, true)) ==
        Texts{"config.json has a quantization_config of fp8, and no tensor is; remove it"});
}

TEST_CASE("narrow floats are what a quantized configuration stores, whatever dtype it computes in") {
  const Catalog model = ModelOf(DType::kF8E4M3FN, false);
  CHECK(auxiliary_files::Contradictions(
            R"({"torch_dtype": "bfloat16", "quantization_config": {"quant_method": "fp8"}})", model)
            .empty());
  CHECK(
      auxiliary_files::Contradictions(R"({"torch_dtype": "bfloat16"})", model) ==
      Texts{"config.json says torch_dtype bfloat16, most elements are f8e4m3fn, and there is no quantization_config"});
}

}  // namespace reshard
