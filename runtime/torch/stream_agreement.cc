#include "runtime/torch/stream_agreement.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

namespace reshard {

StreamRecord MakeStreamRecord(const absl::Status& own, const Signature& problem, int64_t sequence) {
  StreamRecord mine;
  mine.record.status_code = static_cast<int64_t>(own.raw_code());
  mine.record.sequence = sequence;
  mine.record.fingerprint = problem.fingerprint;
  const std::string details = Details(own, problem);
  mine.length = std::min<int64_t>(static_cast<int64_t>(details.size()), StreamRecord::kDetails);
  std::memcpy(mine.details, details.data(), static_cast<size_t>(mine.length));
  return mine;
}

absl::Status CompareStreamRecords(absl::Span<const StreamRecord> records) {
  std::vector<AgreementRecord> heads;
  heads.reserve(records.size());
  for (const StreamRecord& record : records) heads.push_back(record.record);
  if (AllAgree(heads)) return absl::OkStatus();
  std::vector<int64_t> ranks;
  std::vector<std::string> details;
  for (const StreamRecord& record : records) {
    ranks.push_back(static_cast<int64_t>(ranks.size()));
    const int64_t length = std::clamp<int64_t>(record.length, 0, StreamRecord::kDetails);
    details.emplace_back(record.details, static_cast<size_t>(length));
  }
  return Verdict(ranks, heads, details);
}

// Pinned memory of the host, [own record][all records], and the same on the device.
struct StreamAgreement::Round {
  explicit Round(CudaDevice* its_device) : device(*its_device) {}
  ~Round() {
    const CudaDevice::Current current(device);
    if (host != nullptr) device.api().MemFreeHost(host);
  }
  StreamRecord* records() const { return static_cast<StreamRecord*>(host); }

  CudaDevice& device;
  void* host = nullptr;
  DeviceBlock block;
};

StreamAgreement::StreamAgreement(int64_t size, CudaDevice* device, DeviceTransport* transport)
    : size_(size), device_(*device), transport_(*transport) {}
StreamAgreement::~StreamAgreement() = default;

absl::StatusOr<StreamAgreement::Round*> StreamAgreement::Take(CudaStream stream) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (!free_.empty()) {
    Round* const round = free_.back();
    free_.pop_back();
    return round;
  }
  auto round = std::make_unique<Round>(&device_);
  const int64_t bytes = (size_ + 1) * static_cast<int64_t>(sizeof(StreamRecord));
  {
    const CudaDevice::Current current(device_);
    const absl::Status pinned =
        CudaStatus(device_.api(), device_.api().MemAllocHost(&round->host, static_cast<size_t>(bytes)),
                   "pinned memory for the records of agreement");
    if (!pinned.ok()) return pinned;
  }
  absl::StatusOr<DeviceBlock> block = device_.Allocate(bytes, stream);
  if (!block.ok()) return block.status();
  round->block = *std::move(block);
  rounds_.push_back(std::move(round));
  return rounds_.back().get();
}

absl::StatusOr<StreamAgreement::Round*> StreamAgreement::Enqueue(const StreamRecord& own, void* group,
                                                                 CudaStream stream) {
  absl::StatusOr<Round*> round = Take(stream);
  if (!round.ok()) return round;
  constexpr auto kBytes = static_cast<int64_t>(sizeof(StreamRecord));
  std::memcpy((*round)->records(), &own, sizeof(StreamRecord));
  char* const mine = (*round)->block.data();
  char* const all = mine + kBytes;
  absl::Status status = device_.Copy(mine, (*round)->records(), kBytes, stream);
  if (status.ok()) {
    const DeviceCollective gather{mine, all, kBytes, DType::kU8, ReduceOp::kSum};
    status = transport_.Collect(Op::kAllGather, group, {&gather, 1}, stream);
  }
  if (status.ok()) status = device_.Copy((*round)->records() + 1, all, size_ * kBytes, stream);
  // Its memory may be in use until the end, then.
  if (!status.ok()) return status;
  return round;
}

absl::Status StreamAgreement::Conclude(Round* round) {
  const absl::Status status = CompareStreamRecords({round->records() + 1, static_cast<size_t>(size_)});
  const std::lock_guard<std::mutex> lock(mutex_);
  free_.push_back(round);
  return status;
}

}  // namespace reshard
