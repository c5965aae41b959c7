#include "runtime/cuda/device.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/cuda/device_pool.h"
#include "status/macros.h"
#include "status/no_throw.h"

namespace reshard::cuda {

CudaDevice::Current::Current(const CudaDevice& device) : api_(device.api_) {
  pushed_ = device.context_ != nullptr && api_.CtxPushCurrent(device.context_) == kCudaSuccess;
}

CudaDevice::Current::~Current() {
  CudaContext popped = nullptr;
  if (pushed_) api_.CtxPopCurrent(&popped);
}

CudaDevice::BesideCapture::BesideCapture(const CudaDevice& device) : api_(device.api_), before_(kCudaCaptureRelaxed) {
  api_.ThreadExchangeStreamCaptureMode(&before_);
}

CudaDevice::BesideCapture::~BesideCapture() { api_.ThreadExchangeStreamCaptureMode(&before_); }

UploadedTable& UploadedTable::operator=(UploadedTable&& other) noexcept {
  std::swap(device_, other.device_);
  std::swap(memory_, other.memory_);
  std::swap(uses_, other.uses_);
  std::swap(chunk_numbers_at_, other.chunk_numbers_at_);
  std::swap(entries_, other.entries_);
  std::swap(chunks_, other.chunks_);
  std::swap(bases_, other.bases_);
  std::swap(kernel_, other.kernel_);
  return *this;
}

UploadedTable::~UploadedTable() {
  if (uses_.empty()) return;
  const CudaDevice::Current current(*device_);
  for (const Use& use : uses_) {
    if (device_->api().StreamWaitEvent(device_->own_stream_, use.last, 0) != kCudaSuccess) memory_.Abandon();
    device_->api().EventDestroy(use.last);
  }
}

CudaDevice::CudaDevice(const CudaApi& api, int ordinal) : api_(api), ordinal_(ordinal) {}

absl::StatusOr<std::unique_ptr<CudaDevice>> CudaDevice::Open(const CudaApi& api, int ordinal, DeviceMemory* memory,
                                                             const void* image) {
  std::unique_ptr<CudaDevice> device(new CudaDevice(api, ordinal));
  RETURN_IF_ERROR(device->Start(memory, image));
  return device;
}

absl::Status CudaDevice::Start(DeviceMemory* memory, const void* image) {
  const auto check = [this](CudaResult result, absl::string_view what) { return CudaStatus(api_, result, what); };
  int count = 0;
  absl::Status status = check(api_.DeviceGetCount(&count), "counting the GPUs");
  if (!status.ok()) return status;
  if (ordinal_ < 0 || ordinal_ >= count) {
    return absl::InvalidArgumentError(absl::StrCat("there is no GPU ", ordinal_, ": this process sees ", count));
  }
  status = check(api_.DeviceGet(&handle_, ordinal_), absl::StrCat("opening GPU ", ordinal_));
  if (!status.ok()) return status;
  std::array<char, 256> name = {};
  int major = 0;
  int minor = 0;
  status = check(api_.DeviceGetName(name.data(), static_cast<int>(name.size()), handle_), "the name of the GPU");
  if (status.ok()) status = check(api_.DeviceGetAttribute(&major, kCudaAttributeMajor, handle_), "its generation");
  if (status.ok()) status = check(api_.DeviceGetAttribute(&minor, kCudaAttributeMinor, handle_), "its generation");
  if (!status.ok()) return status;
  name_ = name.data();
  constexpr int kOldest = 8;
  if (major < kOldest) {
    return absl::UnimplementedError(
        absl::StrCat("GPU ", ordinal_, " (", name_, ") is sm_", major, minor, "; the kernels need sm_80 or newer"));
  }
  if (image == nullptr) {
    return absl::UnimplementedError(
        "this library was built without the CUDA toolkit and has no kernels; build it where nvcc is");
  }
  status = check(api_.DevicePrimaryCtxRetain(&context_, handle_), absl::StrCat("using GPU ", ordinal_));
  if (!status.ok()) {
    context_ = nullptr;
    return status;
  }
  const Current current(*this);
  status = check(api_.StreamCreate(&own_stream_, kCudaStreamNonBlocking), "making a stream");
  if (status.ok()) status = check(api_.ModuleLoadData(&module_, image), "loading the kernels");
  if (status.ok()) status = check(api_.ModuleGetFunction(&copy_kernel_, module_, kCopyKernel), "the copy kernel");
  if (status.ok()) status = check(api_.ModuleGetFunction(&reduce_kernel_, module_, kReduceKernel), "the reduce kernel");
  if (!status.ok()) return status;
  pinned_ = std::make_unique<PinnedRing>(*this);
  ASSIGN_OR_RETURN(std::unique_ptr<DriverPool> pool, DriverPool::Create(*this));
  pool_ = std::move(pool);
  memory_ = memory != nullptr ? memory : pool_.get();
  return absl::OkStatus();
}

CudaDevice::~CudaDevice() {
  if (context_ == nullptr) return;
  {
    const Current current(*this);
    if (own_stream_ != nullptr) api_.StreamSynchronize(own_stream_);
    pinned_.reset();
    pool_.reset();
    if (module_ != nullptr) api_.ModuleUnload(module_);
    if (own_stream_ != nullptr) api_.StreamDestroy(own_stream_);
  }
  api_.DevicePrimaryCtxRelease(handle_);
}

absl::StatusOr<DeviceBlock> CudaDevice::Allocate(int64_t bytes, CudaStream stream) {
  if (bytes == 0) return DeviceBlock();
  ASSIGN_OR_RETURN(void* const memory, memory_->Allocate(bytes, stream));
  return DeviceBlock(memory, stream, memory_);
}

absl::StatusOr<Memory> CudaDevice::AllocateMemory(int64_t bytes, CudaStream stream) {
  return status::NoThrow("allocating on the device", [&]() -> absl::StatusOr<Memory> {
    ASSIGN_OR_RETURN(DeviceBlock block, Allocate(bytes, stream));
    auto held = std::make_shared<DeviceBlock>(std::move(block));
    void* const data = held->data();
    return Memory(data, [held = std::move(held)](void*) mutable { held.reset(); });
  });
}

absl::Status CudaDevice::Copy(void* to, const void* from, int64_t bytes, CudaStream stream) {
  if (bytes == 0) return absl::OkStatus();
  const Current current(*this);
  return CudaStatus(api_,
                    api_.MemcpyAsync(reinterpret_cast<CudaPointer>(to), reinterpret_cast<CudaPointer>(from),
                                     static_cast<size_t>(bytes), stream),
                    absl::StrCat("copying ", bytes, " bytes"));
}

absl::StatusOr<bool> CudaDevice::IsCapturing(CudaStream stream) const {
  const Current current(*this);
  int status = kCudaCaptureNone;
  RETURN_IF_ERROR(CudaStatus(api_, api_.StreamIsCapturing(stream, &status), "asking whether it is captured"));
  return status != kCudaCaptureNone;
}

absl::StatusOr<UploadedTable> CudaDevice::Upload(const CopyTable& table) {
  absl::StatusOr<UploadedTable> uploaded =
      Upload(table.entries.data(), static_cast<int64_t>(table.entries.size() * sizeof(CopyEntry)), table.first_chunk,
             table.bases);
  if (uploaded.ok()) uploaded->kernel_ = copy_kernel_;
  return uploaded;
}

absl::StatusOr<UploadedTable> CudaDevice::Upload(const ReduceTable& table) {
  absl::StatusOr<UploadedTable> uploaded =
      Upload(table.entries.data(), static_cast<int64_t>(table.entries.size() * sizeof(ReduceEntry)), table.first_chunk,
             table.bases);
  if (uploaded.ok()) uploaded->kernel_ = reduce_kernel_;
  return uploaded;
}

absl::StatusOr<UploadedTable> CudaDevice::Upload(const void* entries, int64_t entry_bytes,
                                                 absl::Span<const uint32_t> first_chunk, int bases) {
  UploadedTable table;
  table.bases_ = bases;
  if (entry_bytes == 0) return table;
  table.entries_ = static_cast<uint32_t>(first_chunk.size() - 1);
  table.chunks_ = first_chunk.back();
  table.chunk_numbers_at_ = entry_bytes;
  const auto number_bytes = static_cast<int64_t>(first_chunk.size() * sizeof(uint32_t));
  // Ordered by a separate stream: the caller's may be gone when the table goes.
  ASSIGN_OR_RETURN(void* const memory, pool_->Allocate(entry_bytes + number_bytes, own_stream_));
  table.memory_ = DeviceBlock(memory, own_stream_, pool_.get());
  table.device_ = this;
  absl::Status status = Copy(table.memory_.data(), entries, entry_bytes, own_stream_);
  if (status.ok()) status = Copy(table.memory_.data() + entry_bytes, first_chunk.data(), number_bytes, own_stream_);
  if (!status.ok()) return status;
  const Current current(*this);
  status = CudaStatus(api_, api_.StreamSynchronize(own_stream_), "uploading a table");
  if (!status.ok()) return status;
  return table;
}

// The event that the next launch on the stream is to record.
absl::StatusOr<CudaEvent> CudaDevice::EventBehindUse(UploadedTable& table, CudaStream stream) {
  for (const UploadedTable::Use& use : table.uses_) {
    if (use.stream == stream) return use.last;
  }
  // The table remembers its uses on this many streams one by one.
  constexpr size_t kMostStreams = 8;
  if (table.uses_.size() == kMostStreams) {
    const CudaEvent oldest = table.uses_.front().last;
    RETURN_IF_ERROR(CudaStatus(api_, api_.StreamWaitEvent(own_stream_, oldest, 0), "waiting for an earlier launch"));
    api_.EventDestroy(oldest);
    table.uses_.erase(table.uses_.begin());
  }
  CudaEvent made = nullptr;
  RETURN_IF_ERROR(CudaStatus(api_, api_.EventCreate(&made, kCudaEventDisableTiming), "making an event"));
  table.uses_.push_back({stream, made});
  return made;
}

absl::Status CudaDevice::Launch(UploadedTable& table, absl::Span<void* const> bases, CudaStream stream) {
  if (!table) return absl::OkStatus();
  if (static_cast<int>(bases.size()) != table.bases_) {
    return absl::InternalError(absl::StrCat("a launch with ", bases.size(), " addresses for ", table.bases_));
  }
  const Current current(*this);
  KernelBases addresses = {};
  DeviceBlock list;
  if (bases.size() <= static_cast<size_t>(KernelBases::kInline)) {
    for (size_t i = 0; i < bases.size(); ++i) addresses.few[i] = reinterpret_cast<uint64_t>(bases[i]);
  } else {
    const auto bytes = static_cast<int64_t>(bases.size() * sizeof(void*));
    ASSIGN_OR_RETURN(DeviceBlock memory, Allocate(bytes, stream));
    list = std::move(memory);
    RETURN_IF_ERROR(pinned_->Send(list.data(), bases.data(), bytes, stream));
    addresses.all = reinterpret_cast<const uint64_t*>(list.data());
  }
  const void* entries = table.memory_.data();
  const void* first_chunk = table.memory_.data() + table.chunk_numbers_at_;
  uint32_t entry_count = table.entries_;
  std::array<void*, 4> parameters = {&entries, &first_chunk, &entry_count, &addresses};
  ASSIGN_OR_RETURN(const bool captured, IsCapturing(stream));
  CudaEvent used = nullptr;
  if (!captured) {
    ASSIGN_OR_RETURN(used, EventBehindUse(table, stream));
  }
  RETURN_IF_ERROR(CudaStatus(
      api_,
      api_.LaunchKernel(table.kernel_, table.chunks_, 1, 1, kBlockThreads, 1, 1, 0, stream, parameters.data(), nullptr),
      "launching a kernel"));
  launches_.fetch_add(1);
  if (captured) return absl::OkStatus();
  const absl::Status recorded = CudaStatus(api_, api_.EventRecord(used, stream), "recording an event");
  if (!recorded.ok()) table.memory_.Abandon();
  return recorded;
}

}  // namespace reshard::cuda
