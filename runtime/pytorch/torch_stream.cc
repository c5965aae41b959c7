#include "runtime/pytorch/torch_stream.h"

#include <c10/core/Allocator.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <c10/util/Exception.h>

#include <map>
#include <mutex>

#include "absl/strings/str_cat.h"
#include "runtime/groups/why_not.h"

namespace reshard::pytorch {
namespace {

const c10::impl::DeviceGuardImplInterface& Cuda() { return *c10::impl::getDeviceGuardImpl(c10::DeviceType::CUDA); }

// One side stream per GPU: asynchronous calls run one after the other anyway.
c10::Stream SideStreamOf(at::Device device) {
  static std::mutex* const mutex = new std::mutex;
  static auto* const streams = new std::map<c10::DeviceIndex, c10::Stream>;
  const std::lock_guard<std::mutex> lock(*mutex);
  const auto found = streams->find(device.index());
  if (found != streams->end()) return found->second;
  return streams->emplace(device.index(), Cuda().getStreamFromGlobalPool(device, false)).first->second;
}

// Keeps the allocator from reusing the memory before the stream is done with it.
void KeepFor(const std::vector<at::Tensor>& tensors, const c10::Stream& stream) {
  for (const at::Tensor& tensor : tensors) {
    if (tensor.defined() && tensor.is_cuda()) {
      Cuda().recordDataPtrOnStream(tensor.storage().data_ptr(), stream);
    }
  }
}

}  // namespace

cuda::CudaStream CurrentStreamOf(at::Device device) {
  const c10::Stream stream = Cuda().getStream(device);
  return Cuda().getStreamNativeHandle(stream);
}

absl::StatusOr<void*> TorchDeviceMemory::Allocate(int64_t bytes, cuda::CudaStream /*stream*/) {
  void* memory = nullptr;
  const std::string reason = groups::WhyNot([&] {
    const c10::DeviceGuard guard(device_);
    memory = c10::GetAllocator(c10::DeviceType::CUDA)->raw_allocate(static_cast<size_t>(bytes));
  });
  if (!reason.empty() || memory == nullptr) {
    return absl::ResourceExhaustedError(absl::StrCat(bytes, " bytes on ", device_.str(), ": ", reason));
  }
  return memory;
}

void TorchDeviceMemory::Free(void* memory, cuda::CudaStream /*stream*/) {
  // At the end of the process the driver may be gone, and its memory with it.
  groups::WhyNot([&] { c10::GetAllocator(c10::DeviceType::CUDA)->raw_deallocate(memory); });
}

SideStream::SideStream(at::Device device)
    : device_(device), stream_(SideStreamOf(device)), begin_(device.type()), end_(device.type()) {
  begin_.record(Cuda().getStream(device));
}

void SideStream::Run(const std::vector<at::Tensor>& inputs, const std::function<void()>& f) {
  const c10::DeviceGuard guard(device_);
  const c10::Stream before = Cuda().exchangeStream(stream_);
  const auto leave = [&] { Cuda().exchangeStream(before); };
  try {
    begin_.block(stream_);
    KeepFor(inputs, stream_);
    f();
    end_.record(stream_);
  } catch (...) {
    leave();
    throw;
  }
  leave();
}

void SideStream::Join(const std::vector<at::Tensor>& results) {
  const c10::Stream current = Cuda().getStream(device_);
  end_.block(current);
  KeepFor(results, current);
}

}  // namespace reshard::pytorch
