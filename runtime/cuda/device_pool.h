// Memory of a CudaDevice: on the device from a pool of the driver, and pinned on the host for what is sent there.
#ifndef RESHARD_RUNTIME_CUDA_DEVICE_POOL_H_
#define RESHARD_RUNTIME_CUDA_DEVICE_POOL_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "runtime/cuda/device.h"
#include "status/mutex.h"

namespace reshard::cuda {

// A pool of its own that keeps what was freed: the default pool gives it back to the system at every wait.
class DriverPool final : public DeviceMemory {
 public:
  // `device` must have its context, and outlive the pool.
  static absl::StatusOr<std::unique_ptr<DriverPool>> Create(const CudaDevice& device);
  ~DriverPool() override;
  absl::StatusOr<void*> Allocate(int64_t bytes, CudaStream stream) override;
  void Free(void* memory, CudaStream stream) override;

 private:
  explicit DriverPool(const CudaDevice& device) : device_(device) {}
  const CudaDevice& device_;
  CudaMemPool pool_ = nullptr;
};

// Sends small pieces of host memory to the device without waiting: a copy of each lies in pinned memory until the
// stream has read it.
class PinnedRing {
 public:
  explicit PinnedRing(const CudaDevice& device) : device_(device) {}
  ~PinnedRing();
  // Enqueues the copy; `from` may change afterwards. What a captured stream sends is kept for the life of the device,
  // because the graph reads it again whenever it runs.
  absl::Status Send(void* to, const void* from, int64_t bytes, CudaStream stream);

 private:
  struct Slot {
    void* memory = nullptr;
    int64_t bytes = 0;
    CudaEvent read = nullptr;  // null: forever in use
  };
  absl::StatusOr<Slot> TakeSlot(int64_t bytes);

  const CudaDevice& device_;
  status::Mutex mutex_;
  std::vector<Slot> slots_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace reshard::cuda

#endif  // RESHARD_RUNTIME_CUDA_DEVICE_POOL_H_
