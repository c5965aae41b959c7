// Named schemes of parallelism, as layouts of the tensors of a model: see ModelLayout::Parse.
#ifndef RESHARD_CHECKPOINT_MODEL_SCHEME_H_
#define RESHARD_CHECKPOINT_MODEL_SCHEME_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "reshard/checkpoint/model.h"
#include "reshard/layout/layout.h"
#include "reshard/layout/mesh.h"

namespace reshard::model {

// The number of an expert in a name, and what stands before it: "model.layers.3.mlp.experts.17.up_proj.weight" is
// expert 17 of "model.layers.3.mlp.experts."
struct ExpertName {
  std::string_view prefix;
  int64_t number = 0;
};
std::optional<ExpertName> FindExpert(std::string_view name);

// The dimension that tensor parallelism of this family cuts: 0 for weights whose outputs are split (column parallel), 1
// for those whose inputs are (row parallel), where weights are [out, in]; nullopt: it stays whole.
std::optional<int> TensorParallelDim(std::string_view family, std::string_view name);

class Scheme {
 public:
  // Whether the text is a scheme and not a layout rule: it begins with the name of a scheme.
  static bool IsScheme(std::string_view text);
  // Errors: those of ModelLayout::Parse.
  static absl::StatusOr<Scheme> Parse(std::string_view text, const Mesh& mesh, absl::Span<const ModelTensor> model);

  // Example: fsdp+tp:llama over {dp:2,tp:4}, model.layers.0.mlp.up_proj.weight of [32, 8] -> [4<tp,dp>32, 8]: tensor
  // parallelism cuts first, and FSDP cuts its shards.
  absl::StatusOr<Layout> LayoutFor(const ModelTensor& tensor) const;

 private:
  absl::Status Use(std::string_view text, std::vector<bool>* used);
  absl::Status SplitByExperts();
  // The devices of the block of experts that has this one.
  const Mesh& DevicesOfExpert(const ExpertName& expert) const;

  Mesh mesh_;
  std::string family_;                                   // of tensor parallelism; empty: there is none
  std::optional<int> tp_, ep_;                           // axes of the mesh
  std::vector<int> fsdp_;                                // axes of the mesh
  std::vector<Mesh> blocks_;                             // by coordinates of ep; empty without ep
  std::map<std::string, int64_t, std::less<>> experts_;  // how many there are, by their prefix
};

}  // namespace reshard::model

#endif  // RESHARD_CHECKPOINT_MODEL_SCHEME_H_
