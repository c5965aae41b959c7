// What carries bytes between the GPUs of a world: all that a backend has to provide. device_step.h does the rest.
//
// Everything is enqueued on `stream`, in the order of the calls, which is the same on all ranks. The k-th message that
// a rank sends to a peer in an exchange is the k-th that the peer receives from it there, with the same number of
// bytes. No message is empty and none goes to its sender.
#ifndef RESHARD_RUNTIME_CUDA_DEVICE_TRANSPORT_H_
#define RESHARD_RUNTIME_CUDA_DEVICE_TRANSPORT_H_

#include <cstdint>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "reshard/layout/dtype.h"
#include "reshard/layout/layout.h"
#include "reshard/planner/plan.h"
#include "reshard/runtime/program.h"
#include "runtime/cuda/cuda_api.h"

namespace reshard::cuda {

struct DeviceSend {
  int64_t peer = 0;  // device id
  const void* data = nullptr;
  int64_t bytes = 0;
};
struct DeviceReceive {
  int64_t peer = 0;  // device id
  void* data = nullptr;
  int64_t bytes = 0;
};

// Calls exchange(sends, receives) for rounds of an exchange's messages in which no rank sends to, or receives from,
// more than `max_peers` others; 0: once, with all. Rounds without messages are left out. A message is in the same round
// on both sides: that of the distance from its sender to its receiver, counted around the world. Messages between the
// same two ranks keep their order. The first error ends it.
absl::Status InRounds(
    absl::Span<const DeviceSend> sends, absl::Span<const DeviceReceive> receives, int64_t rank, int64_t world,
    int64_t max_peers,
    absl::FunctionRef<absl::Status(absl::Span<const DeviceSend>, absl::Span<const DeviceReceive>)> exchange);

// One call of a collective over a group of n members, in the order of StepProgram::group.
//   all-gather      `send` has count elements, `receive` n times as many, member i's at i * count
//   all-to-all      both have n * count elements; those at i * count go to, and come from, member i
//   reduce-scatter  `send` has n * count elements, `receive` count: member i gets the combination of all i-th parts
//   all-reduce      both have count
struct DeviceCollective {
  const void* send = nullptr;
  void* receive = nullptr;
  int64_t count = 0;
  DType dtype = DType::kU8;  // moves are bytes
  ReduceOp reduce = ReduceOp::kSum;
};

class DeviceTransport {
 public:
  virtual ~DeviceTransport() = default;

  // One group of sends and receives.
  virtual absl::Status Exchange(absl::Span<const DeviceSend> sends, absl::Span<const DeviceReceive> receives,
                                CudaStream stream) = 0;

  // The backend's own communicator for the groups of this step; null where it has none, and on ranks outside all
  // groups. Collective over all ranks of the world, for every step with a scope, with the same answer (null or not) on
  // all members of a group.
  virtual absl::StatusOr<void*> GroupFor(const StepProgram& step) = 0;
  // Whether the backend combines elements like this. The same on all ranks.
  virtual bool Reduces(ReduceOp op, DType dtype) const = 0;
  // All calls as one launch, over a group from GroupFor. `op` is AllGather, AllToAll, ReduceScatter or AllReduce.
  virtual absl::Status Collect(Op op, void* group, absl::Span<const DeviceCollective> calls, CudaStream stream) = 0;
};

}  // namespace reshard::cuda

#endif  // RESHARD_RUNTIME_CUDA_DEVICE_TRANSPORT_H_
