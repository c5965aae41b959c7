// A model as the list of its tensors, and the layouts that parallel training and serving give them: what to plan when a
// whole model moves.
//
//   const auto model = ReadModel("meta-llama/Llama-3.1-70B", DType::kBF16);
//   const auto trainer = ModelLayout::Parse("fsdp+tp:llama", mesh, *model);
//   const auto server = ModelLayout::Parse("tp:llama", mesh, *model);
//   const auto problems = ModelProblems(*model, *trainer, *server);   // for PlanBatch
#ifndef RESHARD_CHECKPOINT_MODEL_H_
#define RESHARD_CHECKPOINT_MODEL_H_

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "reshard/checkpoint/rules.h"
#include "reshard/layout/dtype.h"
#include "reshard/layout/layout.h"
#include "reshard/planner/problem.h"

namespace reshard {

// One tensor of a model.
struct ModelTensor {
  std::string name;
  DType dtype = DType::kBF16;
  std::vector<int64_t> shape;  // in elements
};

// The tensors of a model. `path` is a checkpoint in any format, including a Hugging Face folder, and only its metadata
// is read; or a JSON file that ParseModel takes. Errors are those of ReadCatalog and ParseModel. Unimplemented: a
// tensor whose dtype is not known.
absl::StatusOr<std::vector<ModelTensor>> ReadModel(const std::string& path, DType dtype);
// The same from JSON in one of these forms; `dtype` is the default where one is left out:
//   {"tensors": [{"name": "wte.weight", "shape": [50257, 768], "dtype": "bf16"}, ...]}
//   {"wte.weight": [50257, 768], ...}
// InvalidArgument: JSON of another form, a name twice, no tensor.
absl::StatusOr<std::vector<ModelTensor>> ParseModel(std::string_view json, DType dtype);

namespace model {
class Scheme;
}

// Which layout, on which devices, each tensor of a model has. A value type.
class ModelLayout {
 public:
  // `text` is a layout rule for all tensors, such as `[<dp>, ...]`, or names of schemes joined by "+", each followed by
  // "@" and the axes that it uses where they cannot be guessed:
  //   replicate           every device holds everything
  //   fsdp[@AXES]         the first dimension over all axes that no other scheme uses (FSDP2, ZeRO-3); on a dimension
  //                       that tensor parallelism has cut already, the shards are cut again
  //   tp:FAMILY[@AXIS]    tensor parallelism of a family of models: llama (also Mistral, Qwen, Gemma, Mixtral and
  //                       DeepSeek, in the names of Hugging Face, Meta and torchtitan), gpt2, neox. Tensors that the
  //                       family does not name stay whole
  //   ep[@AXIS]           experts: a tensor that has all of them is cut along its first dimension; a tensor of one
  //                       expert lies on the devices of that expert's block alone
  //   fsdp@dp+tp:llama@tp, ep@ep+fsdp@dp
  // The axis of tp is guessed from the names tp, model, tensor, and that of ep from ep, expert; a mesh of one axis
  // needs no guess. InvalidArgument: an unknown scheme, family or axis, an axis that two schemes use, a malformed rule.
  static absl::StatusOr<ModelLayout> Parse(std::string_view text, const Mesh& mesh,
                                           absl::Span<const ModelTensor> model);
  // As the rules say.
  static ModelLayout Of(LayoutRules rules);

  // InvalidArgument: as LayoutRules::LayoutFor.
  absl::StatusOr<Layout> LayoutFor(const ModelTensor& tensor) const;

 private:
  ModelLayout() = default;
  std::shared_ptr<const LayoutRules> rules_;  // one of these
  std::shared_ptr<const model::Scheme> scheme_;
};

// One problem per tensor, in their order. Errors are those of LayoutFor.
absl::StatusOr<std::vector<Problem>> ModelProblems(absl::Span<const ModelTensor> model, const ModelLayout& source,
                                                   const ModelLayout& target);

}  // namespace reshard

#endif  // RESHARD_CHECKPOINT_MODEL_H_
