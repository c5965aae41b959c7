#include "runtime/cuda/device_pool.h"

#include <cstring>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "status/macros.h"

namespace reshard::cuda {

absl::StatusOr<std::unique_ptr<DriverPool>> DriverPool::Create(const CudaDevice& device) {
  std::unique_ptr<DriverPool> pool(new DriverPool(device));
  const CudaApi& api = device.api();
  CudaMemPoolProps props;
  props.location_id = device.ordinal();
  absl::Status status = CudaStatus(api, api.MemPoolCreate(&pool->pool_, &props), "making a memory pool");
  if (!status.ok()) return status;
  uint64_t keep = std::numeric_limits<uint64_t>::max();
  status = CudaStatus(api, api.MemPoolSetAttribute(pool->pool_, kCudaMemPoolReleaseThreshold, &keep),
                      "setting up a memory pool");
  if (!status.ok()) return status;
  return pool;
}

DriverPool::~DriverPool() {
  if (pool_ == nullptr) return;
  const CudaDevice::Current current(device_);
  device_.api().MemPoolDestroy(pool_);
}

absl::StatusOr<void*> DriverPool::Allocate(int64_t bytes, CudaStream stream) {
  const CudaDevice::Current current(device_);
  CudaPointer memory = 0;
  RETURN_IF_ERROR(CudaStatus(device_.api(),
                             device_.api().MemAllocFromPoolAsync(&memory, static_cast<size_t>(bytes), pool_, stream),
                             absl::StrCat("asking GPU ", device_.ordinal(), " for ", bytes, " bytes")));
  return reinterpret_cast<void*>(memory);
}

void DriverPool::Free(void* memory, CudaStream stream) {
  const CudaDevice::Current current(device_);
  const CudaApi& api = device_.api();
  const auto block = reinterpret_cast<CudaPointer>(memory);
  if (api.MemFreeAsync(block, stream) == kCudaSuccess) return;
  // The stream is gone; what was enqueued there may still run. Without knowing that it is done the block stays.
  const CudaDevice::BesideCapture beside(device_);
  if (api.CtxSynchronize() == kCudaSuccess) api.MemFreeAsync(block, nullptr);
}

PinnedRing::~PinnedRing() {
  const CudaApi& api = device_.api();
  for (const Slot& slot : slots_) {
    // What a graph or a copy under way may still read stays.
    if (slot.read == nullptr) continue;
    if (api.EventQuery(slot.read) == kCudaSuccess) api.MemFreeHost(slot.memory);
    api.EventDestroy(slot.read);
  }
}

absl::Status PinnedRing::Send(void* to, const void* from, int64_t bytes, CudaStream stream) {
  const CudaApi& api = device_.api();
  ASSIGN_OR_RETURN(const bool captured, device_.IsCapturing(stream));
  ASSIGN_OR_RETURN(Slot slot, TakeSlot(bytes));
  std::memcpy(slot.memory, from, static_cast<size_t>(bytes));
  const CudaDevice::Current current(device_);
  absl::Status status =
      CudaStatus(api,
                 api.MemcpyAsync(reinterpret_cast<CudaPointer>(to), reinterpret_cast<CudaPointer>(slot.memory),
                                 static_cast<size_t>(bytes), stream),
                 "sending a list of addresses");
  if (captured) {
    api.EventDestroy(slot.read);
    slot.read = nullptr;
  } else if (status.ok()) {
    status = CudaStatus(api, api.EventRecord(slot.read, stream), "recording an event");
  }
  const status::MutexLock lock(mutex_);
  slots_.push_back(slot);
  return status;
}

// One that the stream has read already, else a new one.
absl::StatusOr<PinnedRing::Slot> PinnedRing::TakeSlot(int64_t bytes) {
  const CudaApi& api = device_.api();
  const CudaDevice::Current current(device_);
  const CudaDevice::BesideCapture beside(device_);
  {
    const status::MutexLock lock(mutex_);
    for (Slot& slot : slots_) {
      if (slot.read == nullptr || slot.bytes < bytes || api.EventQuery(slot.read) != kCudaSuccess) continue;
      std::swap(slot, slots_.back());
      const Slot taken = slots_.back();
      slots_.pop_back();
      return taken;
    }
  }
  Slot slot;
  slot.bytes = bytes;
  absl::Status status =
      CudaStatus(api, api.MemAllocHost(&slot.memory, static_cast<size_t>(bytes)), "pinning host memory");
  if (!status.ok()) return status;
  status = CudaStatus(api, api.EventCreate(&slot.read, kCudaEventDisableTiming), "making an event");
  if (!status.ok()) {
    api.MemFreeHost(slot.memory);
    return status;
  }
  return slot;
}

}  // namespace reshard::cuda
