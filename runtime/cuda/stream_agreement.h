// Agreement without waiting: messages travel on the stream, in front of the data, and are judged when they arrive.
#ifndef RESHARD_RUNTIME_CUDA_STREAM_AGREEMENT_H_
#define RESHARD_RUNTIME_CUDA_STREAM_AGREEMENT_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "runtime/cuda/device.h"
#include "runtime/cuda/device_transport.h"
#include "runtime/execute/agreement.h"
#include "status/mutex.h"

namespace reshard::cuda {

class StreamAgreement {
 public:
  // Both must outlive it.
  StreamAgreement(int64_t size, CudaDevice* device, DeviceTransport* transport);
  // Rooms that have been enqueued and not judged stay: nothing tells whether the device still writes to them.
  ~StreamAgreement();

  // Host memory for the messages of one agreement, which the device reads and writes. Used again once it has been
  // judged.
  struct Room;
  absl::StatusOr<Room*> Take();
  // Enqueues this rank's message and the all-gather of all messages, over the transport's communicator of all ranks.
  absl::Status Enqueue(Room* room, const execute::AgreementMessage& own, void* world, CudaStream stream);
  // Call it once the stream has passed. Returns what all ranks conclude.
  absl::Status Judge(Room* room);

 private:
  const int64_t size_;
  CudaDevice& device_;
  DeviceTransport& transport_;
  status::Mutex mutex_;
  std::vector<std::unique_ptr<Room>> rooms_ ABSL_GUARDED_BY(mutex_);
  std::vector<Room*> free_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace reshard::cuda

#endif  // RESHARD_RUNTIME_CUDA_STREAM_AGREEMENT_H_
