// Converts between at::Tensor and exceptions on one side, and views and absl::Status on the other.
#ifndef RESHARD_RUNTIME_PYTORCH_TENSORS_H_
#define RESHARD_RUNTIME_PYTORCH_TENSORS_H_

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>
#include <c10/util/Exception.h>

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "reshard/layout/dtype.h"
#include "reshard/runtime/tensor_view.h"
#include "runtime/groups/scalar_types.h"

namespace reshard::pytorch {

// OK if the tensor is strided memory of `device`, the host or a GPU, that a view can describe.
absl::Status CheckTensor(const at::Tensor& tensor, at::Device device);

// Views of tensors that have passed CheckTensor.
ConstTensorView ViewOf(const at::Tensor& tensor);
TensorView MutableViewOf(const at::Tensor& tensor);

// An uninitialized dense host tensor. Large ones come from the pool and are returned to it.
at::Tensor NewTensor(at::IntArrayRef shape, at::ScalarType type);

// Many such tensors, on any device. On the host small ones share a block of the pool, each with its own storage: the
// memory of a thousand allocations would be returned to the system and its pages created again at every call. On GPUs
// they come from torch's caching allocator.
struct NewTensorSpec {
  at::IntArrayRef shape;
  at::ScalarType type = at::kByte;
};
std::vector<at::Tensor> NewTensors(const std::vector<NewTensorSpec>& specs, at::Device device);

// The tensor with lazy conjugation and negation resolved; the tensor itself if there is none.
at::Tensor Resolved(const at::Tensor& tensor);

// Throws the exception that corresponds to the error, see include/reshard/torch/redistribute.h. `rank` is this rank, or
// negative in a call without a group; messages of this rank's own errors begin with "rank N: ".
[[noreturn]] void Throw(const absl::Status& status, int64_t rank);

// Returns the value of a call that involves no other rank, so that there is no rank to name. Throws
// c10::NotImplementedError for Unimplemented, c10::ValueError for everything else.
template <typename T>
T ValueOrThrow(const absl::StatusOr<T>& result) {
  if (result.ok()) return *result;
  const std::string message(result.status().message());
  if (absl::IsUnimplemented(result.status())) C10_THROW_ERROR(NotImplementedError, message);
  C10_THROW_ERROR(ValueError, message);
}

}  // namespace reshard::pytorch

#endif  // RESHARD_RUNTIME_PYTORCH_TENSORS_H_
