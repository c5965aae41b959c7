#include "runtime/cuda/stream_agreement.h"

#include <utility>

#include "status/macros.h"

namespace reshard::cuda {
namespace {

constexpr int64_t kMessageBytes = sizeof(execute::AgreementMessage);

}  // namespace

// This rank's message, then those of all ranks.
struct StreamAgreement::Room {
  explicit Room(const CudaDevice& its_device) : device(its_device) {}
  ~Room() {
    if (memory == nullptr || in_use) return;
    const CudaDevice::Current current(device);
    device.api().MemFreeHost(memory);
  }
  execute::AgreementMessage* own() const { return static_cast<execute::AgreementMessage*>(memory); }
  execute::AgreementMessage* all() const { return own() + 1; }

  const CudaDevice& device;
  void* memory = nullptr;
  bool in_use = false;  // by the device
};

StreamAgreement::StreamAgreement(int64_t size, CudaDevice* device, DeviceTransport* transport)
    : size_(size), device_(*device), transport_(*transport) {}
StreamAgreement::~StreamAgreement() = default;

absl::StatusOr<StreamAgreement::Room*> StreamAgreement::Take() {
  const status::MutexLock lock(mutex_);
  if (!free_.empty()) {
    Room* const room = free_.back();
    free_.pop_back();
    return room;
  }
  auto room = std::make_unique<Room>(device_);
  const CudaDevice::Current current(device_);
  RETURN_IF_ERROR(CudaStatus(
      device_.api(), device_.api().MemAllocHost(&room->memory, static_cast<size_t>((size_ + 1) * kMessageBytes)),
      "pinning memory for an agreement"));
  rooms_.push_back(std::move(room));
  return rooms_.back().get();
}

absl::Status StreamAgreement::Enqueue(Room* room, const execute::AgreementMessage& own, void* world,
                                      CudaStream stream) {
  *room->own() = own;
  room->in_use = true;
  ASSIGN_OR_RETURN(DeviceBlock block, device_.Allocate((size_ + 1) * kMessageBytes, stream));
  char* const all = block.data() + kMessageBytes;
  absl::Status status = device_.Copy(block.data(), room->own(), kMessageBytes, stream);
  if (!status.ok()) return status;
  const DeviceCollective gather{block.data(), all, kMessageBytes};
  status = transport_.Collect(Op::kAllGather, world, {&gather, 1}, stream);
  return status.ok() ? device_.Copy(room->all(), all, size_ * kMessageBytes, stream) : status;
}

absl::Status StreamAgreement::Judge(Room* room) {
  const absl::Status verdict = execute::VerdictOf({room->all(), static_cast<size_t>(size_)});
  room->in_use = false;
  const status::MutexLock lock(mutex_);
  free_.push_back(room);
  return verdict;
}

}  // namespace reshard::cuda
