// at::Tensor on one side, views and Status on the other.
#ifndef RESHARD_RUNTIME_TORCH_TENSORS_H_
#define RESHARD_RUNTIME_TORCH_TENSORS_H_

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "reshard/layout/dtype.h"
#include "reshard/runtime/tensor_view.h"

namespace reshard {

// Unimplemented for types that have no counterpart (quantized ones, say).
absl::StatusOr<DType> DTypeOf(at::ScalarType type);
at::ScalarType ScalarTypeOf(DType type);

// OK when the tensor is strided memory of `device`, the host or a GPU, that a view can describe.
absl::Status CheckTensor(const at::Tensor& tensor, at::Device device);

// Views of tensors that passed CheckTensor, in the memory where those lie.
ConstTensorView ViewOf(const at::Tensor& tensor);
TensorView MutableViewOf(const at::Tensor& tensor);

// A dense tensor of the host with any content. Large ones come from the pool and go back there.
at::Tensor NewTensor(at::IntArrayRef shape, at::ScalarType type);

// Many of them, on any device. On the host small ones share a block of the pool, each with a storage of its own: a
// thousand allocations would be given back to the system, and their pages made again, at every call. On GPUs they come
// from torch's own allocator, which keeps what it has.
struct NewTensorSpec {
  at::IntArrayRef shape;
  at::ScalarType type = at::kByte;
};
std::vector<at::Tensor> NewTensors(const std::vector<NewTensorSpec>& specs, at::Device device);

// The value with lazy conjugation and negation carried out; the tensor itself where there is none.
at::Tensor Resolved(const at::Tensor& tensor);

// Throws what corresponds to the error, see include/reshard/torch/redistribute.h. `rank` is this rank; the message of
// an error of its own begins with "rank N: ".
[[noreturn]] void Throw(const absl::Status& status, int64_t rank);

}  // namespace reshard

#endif  // RESHARD_RUNTIME_TORCH_TENSORS_H_
