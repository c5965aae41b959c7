// One GPU of this process: its context, streams, memory, and the launches of this library's kernels.
//
// Everything that takes a stream is only enqueued there; errors of the device show at a later call. A function makes
// the device's context current for its own duration and leaves the caller's current context as it was. Thread-safe.
#ifndef RESHARD_RUNTIME_CUDA_DEVICE_H_
#define RESHARD_RUNTIME_CUDA_DEVICE_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "reshard/runtime/communicator.h"
#include "runtime/cuda/copy_table.h"
#include "runtime/cuda/cuda_api.h"
#include "runtime/cuda/kernel_image.h"

namespace reshard::cuda {

// Where device memory comes from: the driver's pool (the default), or an allocator that the process already has. Memory
// is ordered by the stream: what was enqueued there before Free may still use it.
class DeviceMemory {
 public:
  virtual ~DeviceMemory() = default;
  // At least `bytes` > 0, aligned to 256 bytes. ResourceExhausted.
  virtual absl::StatusOr<void*> Allocate(int64_t bytes, CudaStream stream) = 0;
  virtual void Free(void* memory, CudaStream stream) = 0;
};

// Device memory that goes back, in the order of its stream, when this is destroyed.
class DeviceBlock {
 public:
  DeviceBlock() = default;
  DeviceBlock(void* data, CudaStream stream, DeviceMemory* memory) : data_(data), stream_(stream), memory_(memory) {}
  DeviceBlock(DeviceBlock&& other) noexcept { *this = std::move(other); }
  DeviceBlock& operator=(DeviceBlock&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(stream_, other.stream_);
    std::swap(memory_, other.memory_);
    return *this;
  }
  ~DeviceBlock() {
    if (data_ != nullptr) memory_->Free(data_, stream_);
  }
  char* data() const { return static_cast<char*>(data_); }
  explicit operator bool() const { return data_ != nullptr; }
  // The memory does not go back: nothing tells when the device is done with it.
  void Abandon() { data_ = nullptr; }

 private:
  void* data_ = nullptr;
  CudaStream stream_ = nullptr;
  DeviceMemory* memory_ = nullptr;
};

class CudaDevice;
class DriverPool;
class PinnedRing;

// A table in device memory, ready to be launched any number of times. Its memory goes back when the last launch is
// done; a graph that launches it must not outlive it.
class UploadedTable {
 public:
  UploadedTable() = default;
  UploadedTable(UploadedTable&& other) noexcept { *this = std::move(other); }
  UploadedTable& operator=(UploadedTable&& other) noexcept;
  ~UploadedTable();

  int bases() const { return bases_; }
  explicit operator bool() const { return static_cast<bool>(memory_); }

 private:
  friend class CudaDevice;
  // Launches on a stream that were not captured.
  struct Use {
    CudaStream stream = nullptr;
    CudaEvent last = nullptr;  // behind the last of them
  };
  CudaDevice* device_ = nullptr;
  DeviceBlock memory_;  // the entries, then the chunk numbers
  std::vector<Use> uses_;
  int64_t chunk_numbers_at_ = 0;
  uint32_t entries_ = 0;
  uint32_t chunks_ = 0;
  int bases_ = 0;
  CudaFunction kernel_ = nullptr;
};

class CudaDevice {
 public:
  // `memory`, for Allocate, null: the driver's pool. `image`: the compiled kernels. Both `api` and `memory` must
  // outlive the device, and the device everything made of it. InvalidArgument: no such device. Unimplemented: this
  // build has no kernels for it (built without the CUDA toolkit, or a device older than sm_80). Otherwise what the
  // driver reports.
  static absl::StatusOr<std::unique_ptr<CudaDevice>> Open(const CudaApi& api, int ordinal,
                                                          DeviceMemory* memory = nullptr,
                                                          const void* image = KernelImage());
  ~CudaDevice();

  const CudaApi& api() const { return api_; }
  int ordinal() const { return ordinal_; }
  const std::string& name() const { return name_; }

  // Makes the context current while it lives.
  class Current {
   public:
    explicit Current(const CudaDevice& device);
    ~Current();
    Current(const Current&) = delete;
    Current& operator=(const Current&) = delete;

   private:
    const CudaApi& api_;
    bool pushed_ = false;
  };

  // While it lives, lets this thread make calls that would otherwise invalidate a capture of its own or of others:
  // calls that touch neither a captured stream nor what is recorded there.
  class BesideCapture {
   public:
    explicit BesideCapture(const CudaDevice& device);
    ~BesideCapture();
    BesideCapture(const BesideCapture&) = delete;
    BesideCapture& operator=(const BesideCapture&) = delete;

   private:
    const CudaApi& api_;
    int before_;
  };

  // 0 bytes give a block without memory. The stream should outlive the block: freeing memory whose stream is gone takes
  // a wait for the whole device.
  absl::StatusOr<DeviceBlock> Allocate(int64_t bytes, CudaStream stream);
  // The same, in the form that communicators return.
  absl::StatusOr<Memory> AllocateMemory(int64_t bytes, CudaStream stream);
  absl::Status Copy(void* to, const void* from, int64_t bytes, CudaStream stream);

  // Uploads a table and blocks until it is there. Do not call it while a stream of this thread is captured.
  absl::StatusOr<UploadedTable> Upload(const CopyTable& table);
  absl::StatusOr<UploadedTable> Upload(const ReduceTable& table);
  // Launches one kernel. `bases` has table.bases() addresses.
  absl::Status Launch(UploadedTable& table, absl::Span<void* const> bases, CudaStream stream);

  absl::StatusOr<bool> IsCapturing(CudaStream stream) const;

  // Number of this library's kernels launched so far: tests count them.
  int64_t launches() const { return launches_.load(); }

 private:
  CudaDevice(const CudaApi& api, int ordinal);
  absl::Status Start(DeviceMemory* memory, const void* image);
  friend class UploadedTable;
  absl::StatusOr<CudaEvent> EventBehindUse(UploadedTable& table, CudaStream stream);
  absl::StatusOr<UploadedTable> Upload(const void* entries, int64_t entry_bytes, absl::Span<const uint32_t> first_chunk,
                                       int bases);

  const CudaApi& api_;
  const int ordinal_;
  std::string name_;
  CudaDeviceHandle handle_ = 0;
  CudaContext context_ = nullptr;
  CudaStream own_stream_ = nullptr;  // of the tables
  CudaModule module_ = nullptr;
  CudaFunction copy_kernel_ = nullptr;
  CudaFunction reduce_kernel_ = nullptr;
  std::unique_ptr<PinnedRing> pinned_;
  std::unique_ptr<DriverPool> pool_;
  DeviceMemory* memory_ = nullptr;
  std::atomic<int64_t> launches_{0};
};

}  // namespace reshard::cuda

#endif  // RESHARD_RUNTIME_CUDA_DEVICE_H_
