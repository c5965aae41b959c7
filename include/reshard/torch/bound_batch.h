// A batch of redistributions that is prepared once and run many times, from the same tensors into the same
// destinations: a trainer's weights into the memory of its inference engine, or an optimizer's state into the layout
// that updates it.
//
//   reshard::BoundBatch refit(weights, engine_weights, problems, group);   // once
//   refit.Run();                                                           // after every update
//
// A call of RedistributeBatch looks up its layouts, allocates its results and returns them; for a thousand small
// tensors that costs as much as moving them. Here all of that is done once, and a call only moves data.
//
// The batch keeps the tensors' memory alive. Each Run reads and writes whatever their storages contain at that time,
// even if a storage has been given other memory since. Gradients do not flow.
#ifndef RESHARD_TORCH_BOUND_BATCH_H_
#define RESHARD_TORCH_BOUND_BATCH_H_

#include <ATen/core/Tensor.h>
#include <torch/custom_class.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "reshard/runtime/redistributor.h"
#include "reshard/torch/redistribute.h"

namespace reshard {

// See above; torch.classes.reshard.BoundBatch in Python.
class BoundBatch : public ::torch::CustomClassHolder {
 public:
  // tensors[i] is this rank's fragment under problems[i].source, and outs[i] the one under problems[i].target, empty
  // if this rank is not in the mesh. Each problem may be between different meshes; they share exchanges all the same.
  // The dtypes are those of the tensors, whatever the problems say. `memory_limit_bytes`: see RedistributeBatch; the
  // bound tensors and outs count too, those of one bucket at a time. Collective, like every use: all ranks learn if any
  // of them cannot bind, including one that passes an error instead of problems. Throws as described in
  // redistribute.h: c10::ValueError for tensors that do not fit the layouts, outs that overlap each other or a tensor,
  // and tensors that require gradients.
  BoundBatch(std::vector<at::Tensor> tensors, std::vector<at::Tensor> outs,
             const absl::StatusOr<std::vector<Problem>>& problems, std::shared_ptr<TensorCommunicator> communicator,
             std::optional<int64_t> memory_limit_bytes = std::nullopt);

  // Moves. Post-condition: every out holds this rank's fragment, under its target layout, of the tensor's current
  // contents. Collective. Throws as the constructor does, also if a storage has become too small for its tensor.
  void Run();

 private:
  // Where a bound tensor lies in its storage, in bytes.
  struct StorageRange {
    c10::StorageImpl* storage = nullptr;
    int64_t first = 0;
    int64_t end = 0;
    int64_t origin = 0;  // of the element at index (0, 0, ..)
  };

  static StorageRange RangeOf(const at::Tensor& tensor);
  absl::Status Prepare(const absl::StatusOr<std::vector<Problem>>& problems, std::optional<int64_t> memory_limit_bytes);
  // Points the views at where the storages are now; sets `*moved` to true if any has moved.
  absl::Status FindAgain(bool* moved);

  std::shared_ptr<TensorCommunicator> communicator_;
  // Other tensors over the same storages, so that callers cannot change their shapes.
  std::vector<at::Tensor> tensors_;
  std::vector<at::Tensor> outs_;
  std::vector<StorageRange> tensor_ranges_;
  std::vector<StorageRange> out_ranges_;
  std::vector<ConstTensorView> sources_;
  std::vector<TensorView> targets_;
  absl::StatusOr<std::shared_ptr<PreparedProblem>> prepared_;
};

}  // namespace reshard

#endif  // RESHARD_TORCH_BOUND_BATCH_H_
