// Agreement without waiting: records travel on the stream, in front of the data, and are compared when they arrive.
#ifndef RESHARD_RUNTIME_TORCH_STREAM_AGREEMENT_H_
#define RESHARD_RUNTIME_TORCH_STREAM_AGREEMENT_H_

#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "reshard/runtime/signature.h"
#include "runtime/core/agreement.h"
#include "runtime/cuda/device.h"
#include "runtime/cuda/device_transport.h"

namespace reshard {

// What one rank sends: the record, and as much of the details behind it as fits, since there is no second exchange.
struct StreamRecord {
  static constexpr int64_t kDetails = 1024 - sizeof(AgreementRecord) - sizeof(int64_t);
  AgreementRecord record;
  int64_t length = 0;
  char details[kDetails] = {};
};
static_assert(sizeof(StreamRecord) == 1024);

StreamRecord MakeStreamRecord(const absl::Status& own, const Signature& problem, int64_t sequence);
// What the ranks 0, 1, .. conclude from their records, see Communicator::Agree.
absl::Status CompareStreamRecords(absl::Span<const StreamRecord> records);

class StreamAgreement {
 public:
  // Everything must outlive it.
  StreamAgreement(int64_t size, CudaDevice* device, DeviceTransport* transport);
  // What was enqueued must be done.
  ~StreamAgreement();

  // Records under way: memory of the host and the device, which is used again when they have arrived.
  struct Round;
  // Enqueues this rank's record and the gathering of all. The round must be given back by Conclude.
  absl::StatusOr<Round*> Enqueue(const StreamRecord& own, void* group, CudaStream stream);
  // Once the stream has passed: what all ranks concluded.
  absl::Status Conclude(Round* round);

 private:
  absl::StatusOr<Round*> Take(CudaStream stream);

  const int64_t size_;
  CudaDevice& device_;
  DeviceTransport& transport_;
  std::mutex mutex_;
  std::vector<std::unique_ptr<Round>> rounds_;
  std::vector<Round*> free_;  // guarded by mutex_
};

}  // namespace reshard

#endif  // RESHARD_RUNTIME_TORCH_STREAM_AGREEMENT_H_
