#include "reshard/checkpoint/model.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "checkpoint/model/scheme.h"
#include "reshard/layout/text.h"
#include "reshard/planner/batch.h"
#include "tests/catch.h"
#include "tests/layouts.h"

namespace reshard {
namespace {

using testing::MeshOf;

std::vector<ModelTensor> ModelOf(const char* json) {
  const auto model = ParseModel(json, DType::kBF16);
  REQUIRE(model.ok());
  return *model;
}

// Layout text, with its mesh where that is not `mesh`; or the error.
std::string PlaceOf(const char* scheme, const Mesh& mesh, const ModelTensor& tensor,
                    const std::vector<ModelTensor>& model = {}) {
  const auto layout = ModelLayout::Parse(scheme, mesh, model);
  if (!layout.ok()) return std::string(layout.status().message());
  const auto place = layout->LayoutFor(tensor);
  if (!place.ok()) return std::string(place.status().message());
  return place->mesh() == mesh ? ToString(*place) : absl::StrCat(ToString(*place), " on ", ToString(place->mesh()));
}

TEST_CASE("a model: both forms of JSON, and what is wrong with others") {
  const auto listed =
      ModelOf(R"({"name":"x","tensors":[{"name":"a","shape":[8,4],"dtype":"f32"},{"name":"b","shape":[]}]})");
  REQUIRE(listed.size() == 2);
  CHECK((listed[0].name == "a" && listed[0].dtype == DType::kF32 && listed[0].shape == std::vector<int64_t>{8, 4}));
  CHECK((listed[1].name == "b" && listed[1].dtype == DType::kBF16 && listed[1].shape.empty()));
  const auto plain = ModelOf(R"({"w":[2,3],"v":[5]})");
  REQUIRE(plain.size() == 2);
  CHECK((plain[1].name == "w" && plain[1].shape == std::vector<int64_t>{2, 3}));
  for (const auto& [json, reason] :
       {std::pair{"[1]", "not an object of names and shapes"},
        {"{}", "there are no tensors"},
        {R"({"w":8})", "the shape is not a list"},
        {R"({"w":[-1]})", "-1 is not a size"},
        {R"({"w":[1e99]})", "is not a size"},
        {R"({"tensors":[{"shape":[1]}]})", "tensors[0]: there is no name"},
        {R"({"tensors":[{"name":"a"}]})", "there is no shape"},
        {R"({"tensors":[{"name":"a","shape":[1],"dtype":"f17"}]})", "is not a dtype"},
        {R"({"tensors":[{"name":"a","shape":[1]},{"name":"a","shape":[1]}]})", "appears twice"},
        {"{", "JSON"}}) {
    CAPTURE(json);
    const auto model = ParseModel(json, DType::kBF16);
    CHECK(model.status().code() == absl::StatusCode::kInvalidArgument);
    CHECK_THAT(std::string(model.status().message()), Catch::Contains(reason));
  }
}

TEST_CASE("schemes: fsdp takes the axes that are left, and cuts after tensor parallelism") {
  const Mesh mesh = MeshOf("{dp:2,tp:4}");
  const ModelTensor up{"model.layers.0.mlp.up_proj.weight", DType::kBF16, {32, 8}};
  const ModelTensor down{"model.layers.0.mlp.down_proj.weight", DType::kBF16, {8, 32}};
  const ModelTensor norm{"model.norm.weight", DType::kBF16, {8}};
  const ModelTensor step{"step", DType::kI64, {}};
  CHECK(PlaceOf("fsdp", mesh, up) == "[4<dp,tp>32, 8]");
  CHECK(PlaceOf("fsdp@dp", mesh, up) == "[16<dp>32, 8]");
  CHECK(PlaceOf("fsdp@tp,dp", mesh, up) == "[4<tp,dp>32, 8]");
  CHECK(PlaceOf("tp:llama", mesh, up) == "[8<tp>32, 8]");
  CHECK(PlaceOf("tp:llama", mesh, down) == "[8, 8<tp>32]");
  CHECK(PlaceOf("tp:llama", mesh, norm) == "[8]");
  CHECK(PlaceOf("fsdp+tp:llama", mesh, up) == "[4<tp,dp>32, 8]");
  CHECK(PlaceOf("tp:llama+fsdp", mesh, down) == "[4<dp>8, 8<tp>32]");
  CHECK(PlaceOf("fsdp+tp:llama", mesh, norm) == "[4<dp>8]");
  CHECK(PlaceOf("fsdp+tp:llama", mesh, step) == "[]");
  CHECK(PlaceOf("replicate", mesh, up) == "[32, 8]");
  CHECK(PlaceOf("[<dp>, ...]", mesh, up) == "[16<dp>32, 8]");
  CHECK(PlaceOf("tp:llama", MeshOf("{x:4}"), up) == "[8<x>32, 8]");
}

TEST_CASE("schemes: experts, all in one tensor or each in its own") {
  const Mesh mesh = MeshOf("{ep:2,tp:2}@4");
  std::vector<ModelTensor> model;
  for (int expert = 0; expert < 5; ++expert) {
    model.push_back({absl::StrCat("l.0.experts.", expert, ".up_proj.weight"), DType::kBF16, {8, 6}});
  }
  // Blocks of three and two.
  CHECK(PlaceOf("ep", mesh, model[2], model) == "[8, 6] on {tp:2}@4");
  CHECK(PlaceOf("ep", mesh, model[3], model) == "[8, 6] on {tp:2}@6");
  CHECK(PlaceOf("ep+tp:llama", mesh, model[4], model) == "[4<tp>8, 6] on {tp:2}@6");
  CHECK(PlaceOf("ep+fsdp", mesh, model[4], model) == "[4<tp>8, 6] on {tp:2}@6");
  const ModelTensor stacked{"l.0.mlp.experts.gate_up_proj", DType::kBF16, {4, 8, 6}};
  CHECK(PlaceOf("ep", mesh, stacked) == "[2<ep>4, 8, 6]");
  CHECK(PlaceOf("ep+fsdp", mesh, stacked) == "[1<ep,tp>4, 8, 6]");
  CHECK(PlaceOf("ep", mesh, {"l.0.attn.q_proj.weight", DType::kBF16, {8, 8}}) == "[8, 8]");
  CHECK(PlaceOf("ep", MeshOf("{ep:2}"), model[4], model) == "[8, 6] on {}@1");
  // A tensor that is not the model's.
  CHECK(PlaceOf("ep", mesh, {"l.0.experts.900000000.up_proj.weight", DType::kBF16, {8, 6}}, model) ==
        "[8, 6] on {tp:2}@6");
}

TEST_CASE("schemes: families know their names") {
  using model::TensorParallelDim;
  CHECK(TensorParallelDim("llama", "layers.3.attention.wo.weight") == 1);
  CHECK(TensorParallelDim("llama", "model.layers.3.self_attn.k_proj.bias") == 0);
  CHECK(TensorParallelDim("llama", "model.layers.3.self_attn.o_proj.bias") == std::nullopt);
  CHECK(TensorParallelDim("llama", "output.weight") == 0);
  CHECK(TensorParallelDim("gpt2", "transformer.h.0.attn.c_attn.weight") == 1);
  CHECK(TensorParallelDim("gpt2", "h.0.mlp.c_proj.weight") == 0);
  CHECK(TensorParallelDim("neox", "gpt_neox.layers.0.attention.dense.weight") == 1);
  CHECK(TensorParallelDim("neox", "gpt_neox.layers.0.input_layernorm.weight") == std::nullopt);
}

TEST_CASE("schemes: what is wrong is said") {
  const Mesh mesh = MeshOf("{a:2,b:2}");
  const ModelTensor any{"w", DType::kBF16, {8}};
  for (const auto& [scheme, reason] : {std::pair{"tp:llama", "Say tp:llama@AXIS; the mesh has a, b"},
                                       {"tp:llama@c", "there is no axis \"c\"; the mesh has a, b"},
                                       {"tp@a", "which family? There are tp:llama, tp:gpt2, tp:neox"},
                                       {"tp:bert@a", "which family?"},
                                       {"fsdp@a+tp:llama@a", "the axis a is used already"},
                                       {"tp:llama@a,b", "one axis is enough"},
                                       {"fsdp+zero", "there is no scheme \"zero\"; there are replicate, fsdp, tp, ep"},
                                       {"ep:llama@a", "only tp has a family"},
                                       {"replicate@a", "uses no axis"},
                                       {"fsdp+", "there is no scheme"},
                                       {"zero3", "expected '['"}}) {
    CAPTURE(scheme);
    CHECK_THAT(PlaceOf(scheme, mesh, any), Catch::Contains(reason));
  }
}

TEST_CASE("a model's problems are planned as one schedule") {
  const auto model =
      ModelOf(R"({"model.layers.0.mlp.up_proj.weight":[32,8],"model.layers.0.mlp.down_proj.weight":[8,32],
                                 "model.layers.1.mlp.down_proj.weight":[8,32]})");
  const Mesh mesh = MeshOf("{dp:2,tp:4}");
  const auto source = ModelLayout::Parse("fsdp+tp:llama", mesh, model),
             target = ModelLayout::Parse("tp:llama", mesh, model);
  REQUIRE((source.ok() && target.ok()));
  const auto problems = ModelProblems(model, *source, *target);
  REQUIRE(problems.ok());
  std::vector<std::string> names;
  for (const ModelTensor& tensor : model) names.push_back(tensor.name);
  const auto batch = PlanBatch(*problems, {}, names);
  REQUIRE(batch.ok());
  CHECK(batch->plans.size() == 2);
  const std::string costliest = CostliestTensors(*batch);
  CHECK_THAT(costliest, Catch::Contains("model.layers.0.mlp.down_proj.weight and 1 more, bf16 [8, 32]: AllGather"));
  CHECK(CostliestTensors(*batch, 1).find("up_proj") == std::string::npos);
  CHECK_THAT(ExplainBatch(*batch), Catch::StartsWith(BatchToText(*batch)) && Catch::Contains("Chosen because"));
}

}  // namespace
}  // namespace reshard
