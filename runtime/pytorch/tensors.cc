#include "runtime/pytorch/tensors.h"

#include <ATen/EmptyTensor.h>
#include <ATen/Functions.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "reshard/runtime/communicator.h"
#include "runtime/host/host_pool.h"

namespace reshard::pytorch {
absl::Status CheckTensor(const at::Tensor& tensor, at::Device device) {
  if (!tensor.defined()) return absl::InvalidArgumentError("an undefined tensor");
  if (tensor.device() != device) {
    if (!tensor.device().is_cpu() && !tensor.device().is_cuda()) {
      return absl::UnimplementedError(
          absl::StrCat("a tensor on ", tensor.device().str(), "; only host memory and GPUs (cuda) are known"));
    }
    return absl::InvalidArgumentError(absl::StrCat("a tensor on ", tensor.device().str(), " in a call on ",
                                                   device.str(), ": all tensors of one call lie on one device"));
  }
  if (tensor.layout() != at::kStrided) return absl::InvalidArgumentError("a tensor that is not strided");
  return groups::DTypeOf(tensor.scalar_type()).status();
}

ConstTensorView ViewOf(const at::Tensor& tensor) {
  ConstTensorView view;
  view.data = tensor.const_data_ptr();
  view.dtype = groups::DTypeOf(tensor.scalar_type()).value_or(DType::kU8);
  view.shape.assign(tensor.sizes().begin(), tensor.sizes().end());
  view.strides.assign(tensor.strides().begin(), tensor.strides().end());
  view.memory = tensor.is_cuda() ? MemoryKind::kCuda : MemoryKind::kHost;
  return view;
}

TensorView MutableViewOf(const at::Tensor& tensor) {
  TensorView view;
  view.data = tensor.mutable_data_ptr();
  view.dtype = groups::DTypeOf(tensor.scalar_type()).value_or(DType::kU8);
  view.shape.assign(tensor.sizes().begin(), tensor.sizes().end());
  view.strides.assign(tensor.strides().begin(), tensor.strides().end());
  view.memory = tensor.is_cuda() ? MemoryKind::kCuda : MemoryKind::kHost;
  return view;
}

at::Tensor NewTensor(at::IntArrayRef shape, at::ScalarType type) {
  // glibc gives blocks of this size back to the system, and their pages with them.
  constexpr int64_t kPooledFrom = int64_t{1} << 20;
  const auto options = at::TensorOptions(type).device(at::kCPU);
  const int64_t bytes = c10::multiply_integers(shape) * static_cast<int64_t>(c10::elementSize(type));
  // Not through the dispatcher: a batch makes a thousand of these.
  if (bytes < kPooledFrom) return at::detail::empty_cpu(shape, type);
  void* const block = host::AcquireHostBlock(bytes);
  TORCH_CHECK_WITH(OutOfMemoryError, block != nullptr, "no memory for ", bytes, " bytes");
  return at::from_blob(
      block, shape, [bytes](void* memory) { host::ReleaseHostBlock(memory, bytes); }, options);
}

namespace {

// A block that goes back to the pool with the last tensor in it.
struct SharedBlock {
  char* data = nullptr;
  int64_t bytes = 0;
  std::atomic<int64_t> users{0};

  static void Drop(void* context) {
    auto* const block = static_cast<SharedBlock*>(context);
    if (block->users.fetch_sub(1, std::memory_order_acq_rel) > 1) return;
    host::ReleaseHostBlock(block->data, block->bytes);
    delete block;
  }
};

int64_t BytesOf(const NewTensorSpec& spec) {
  return c10::multiply_integers(spec.shape) * static_cast<int64_t>(c10::elementSize(spec.type));
}

}  // namespace

std::vector<at::Tensor> NewTensors(const std::vector<NewTensorSpec>& specs, at::Device device) {
  std::vector<at::Tensor> tensors;
  tensors.reserve(specs.size());
  if (!device.is_cpu()) {
    for (const NewTensorSpec& spec : specs) {
      tensors.push_back(at::empty(spec.shape, at::TensorOptions(spec.type).device(device)));
    }
    return tensors;
  }
  constexpr int64_t kSmall = int64_t{1} << 16;
  constexpr int64_t kLeast = int64_t{1} << 18;
  const auto shares = [](int64_t bytes) { return bytes > 0 && bytes <= kSmall; };
  int64_t total = 0;
  for (const NewTensorSpec& spec : specs) {
    const int64_t bytes = BytesOf(spec);
    if (shares(bytes)) total += host::AlignedHostBytes(bytes);
  }
  // This function is a user, too, until it is done.
  std::unique_ptr<SharedBlock, void (*)(void*)> block(nullptr, &SharedBlock::Drop);
  if (total >= kLeast) {
    block.reset(new SharedBlock);
    block->users = 1;
    block->bytes = std::max(total, int64_t{1} << 20);  // the pool keeps blocks from this size on
    block->data = static_cast<char*>(host::AcquireHostBlock(block->bytes));
    TORCH_CHECK_WITH(OutOfMemoryError, block->data != nullptr, "no memory for ", block->bytes, " bytes");
  }
  char* at = block == nullptr ? nullptr : block->data;
  for (const NewTensorSpec& spec : specs) {
    const int64_t bytes = BytesOf(spec);
    if (block == nullptr || !shares(bytes)) {
      tensors.push_back(NewTensor(spec.shape, spec.type));
      continue;
    }
    ++block->users;
    c10::Storage storage(c10::Storage::use_byte_size_t(), static_cast<size_t>(bytes),
                         c10::DataPtr(at, block.get(), &SharedBlock::Drop, at::Device(at::kCPU)), nullptr, false);
    at += host::AlignedHostBytes(bytes);
    tensors.push_back(at::detail::make_tensor<c10::TensorImpl>(
        std::move(storage), c10::DispatchKeySet(c10::DispatchKey::CPU), c10::scalarTypeToTypeMeta(spec.type)));
    tensors.back().unsafeGetTensorImpl()->set_sizes_contiguous(spec.shape);
  }
  return tensors;
}

at::Tensor Resolved(const at::Tensor& tensor) {
  if (!tensor.is_conj() && !tensor.is_neg()) return tensor;
  return tensor.resolve_conj().resolve_neg();
}

void Throw(const absl::Status& status, int64_t rank) {
  if (NamesRanks(status)) C10_THROW_ERROR(DistBackendError, std::string(status.message()));
  const std::string message =
      rank < 0 ? std::string(status.message()) : absl::StrCat("rank ", rank, ": ", status.message());
  switch (status.code()) {
    case absl::StatusCode::kInvalidArgument:
      C10_THROW_ERROR(ValueError, message);
    case absl::StatusCode::kUnimplemented:
      C10_THROW_ERROR(NotImplementedError, message);
    case absl::StatusCode::kResourceExhausted:
      C10_THROW_ERROR(OutOfMemoryError, message);
    default:
      C10_THROW_ERROR(Error, message);
  }
}

}  // namespace reshard::pytorch
