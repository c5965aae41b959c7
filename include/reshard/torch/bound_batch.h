// Tensors that move into the same destinations again and again: a trainer's weights into the memory of its inference
// engine, an optimizer's state into the layout that computes it.
//
//   reshard::BoundBatch refit(weights, engine_weights, "{X:8}", "", sources, targets, group);   // once
//   refit.Run();                                                                                // after every update
//
// A call of RedistributeBatch looks its layouts up, makes its results and hands them over; for a thousand small tensors
// that costs as much as moving them. Here all of it is done once, and a call only moves.
//
// The tensors keep their memory alive. What they contain is read and written at every Run, wherever their storages lie
// by then: storages that were given other memory are found again. Gradients do not flow.
#ifndef RESHARD_TORCH_BOUND_BATCH_H_
#define RESHARD_TORCH_BOUND_BATCH_H_

#include <ATen/core/Tensor.h>
#include <torch/custom_class.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "reshard/runtime/redistributor.h"
#include "reshard/torch/redistribute.h"

namespace reshard {

class BoundBatch : public torch::CustomClassHolder {
 public:
  // tensors[i] is this rank's fragment under sources[i] over `mesh`, outs[i] the one under targets[i] over target_mesh
  // (empty: `mesh`), in the text forms. Collective, like every use: all ranks learn whether any of them cannot do it.
  // Throws as include/reshard/torch/redistribute.h says: c10::ValueError for texts that do not parse, tensors that do
  // not fit them, outs that overlap each other or a tensor, and for tensors that require gradients.
  BoundBatch(std::vector<at::Tensor> tensors, std::vector<at::Tensor> outs, const std::string& mesh,
             const std::string& target_mesh, const std::vector<std::string>& sources,
             const std::vector<std::string>& targets, std::shared_ptr<TensorCommunicator> communicator);

  // Post-condition: every out holds what its layout says of the tensors' contents at this moment. Collective. Throws as
  // the constructor, also when a storage has become too small for its tensor.
  void Run();

 private:
  // Where a bound tensor lies in its storage, in bytes.
  struct Place {
    c10::StorageImpl* storage = nullptr;
    int64_t first = 0;
    int64_t end = 0;
    int64_t origin = 0;  // of the element at index (0, 0, ..)
  };

  static Place PlaceOf(const at::Tensor& tensor);
  absl::Status Prepare(const std::string& mesh, const std::string& target_mesh, const std::vector<std::string>& sources,
                       const std::vector<std::string>& targets);
  // Sets the views to where the storages are now; true in `moved` when any is elsewhere than before.
  absl::Status FindAgain(bool* moved);

  std::shared_ptr<TensorCommunicator> communicator_;
  // Other tensors over the same storages, so that nobody changes their shapes.
  std::vector<at::Tensor> tensors_;
  std::vector<at::Tensor> outs_;
  std::vector<Place> tensor_places_;
  std::vector<Place> out_places_;
  std::vector<ConstTensorView> sources_;
  std::vector<TensorView> targets_;
  absl::StatusOr<std::shared_ptr<PreparedProblem>> prepared_;
};

}  // namespace reshard

#endif  // RESHARD_TORCH_BOUND_BATCH_H_
