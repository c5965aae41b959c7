// A step as a list of actions on a stream: what a rank enqueues for it, with addresses left open. Prepared once for the
// strides of the views, run at every call.
#ifndef RESHARD_RUNTIME_CUDA_DEVICE_PROGRAM_H_
#define RESHARD_RUNTIME_CUDA_DEVICE_PROGRAM_H_

#include <cstdint>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "reshard/runtime/communicator.h"
#include "reshard/runtime/program.h"
#include "reshard/runtime/tensor_view.h"
#include "runtime/cuda/copy_table.h"
#include "runtime/cuda/device.h"
#include "runtime/cuda/device_transport.h"
#include "runtime/packed/step_copies.h"
#include "runtime/packed/wire_messages.h"

namespace reshard::cuda {

// Somewhere in one of the memories of a step, which are numbered: the inputs of its T tensors are 0 .. T-1, the outputs
// T .. 2T-1, blocks of staging follow.
struct MemoryOffset {
  int base = 0;
  int64_t offset = 0;  // bytes
};

struct LaunchCopies {
  CopyTable table;
  UploadedTable uploaded;
};
struct LaunchReductions {
  ReduceTable table;
  UploadedTable uploaded;
};
struct CopyBytes {
  MemoryOffset from;
  MemoryOffset to;
  int64_t bytes = 0;
};
struct ExchangeMessages {
  struct Message {
    int64_t peer = 0;
    MemoryOffset place;
    int64_t bytes = 0;
  };
  std::vector<Message> sends;
  std::vector<Message> receives;
};
struct CallCollective {
  struct Call {
    MemoryOffset send;
    MemoryOffset receive;
    int64_t count = 0;
    DType dtype = DType::kU8;
    ReduceOp reduce = ReduceOp::kSum;
  };
  Op op = Op::kAllGather;
  void* group = nullptr;
  std::vector<Call> calls;
};
using DeviceAction = std::variant<LaunchCopies, LaunchReductions, CopyBytes, ExchangeMessages, CallCollective>;

struct DeviceProgram final : StepMemo {
  std::vector<Dims> strides;     // of the views that it was prepared for, inputs before outputs
  std::vector<int64_t> staging;  // bytes of each block
  std::vector<DeviceAction> actions;
  MoveStats stats;  // of every call; no times
};

// What the parts of preparing share.
struct DevicePreparation {
  const StepProgram& step;
  int64_t rank = 0;
  absl::Span<const ConstTensorView> inputs;
  absl::Span<const TensorView> outputs;
  void* group = nullptr;  // the backend's communicator for the step's groups, if it has one
  DeviceProgram program;
  packed::StepCopies copies;

  int Input(int tensor) const { return tensor; }
  int Output(int tensor) const { return static_cast<int>(step.tensors.size()) + tensor; }
  // A new block of staging.
  int Stage(int64_t bytes);
  // Nothing when there are no jobs.
  void Launch(const std::vector<CopyJob>& jobs);
  // Copies `own` when there is no pack or unpack launch to take it along: a few single runs as bytes, else with a
  // launch.
  void CopyOwn(const std::vector<CopyJob>& own);
  // Pack, exchange, unpack. A piece's `tensor` is the number of the memory that its fragment lies in. `own` goes with
  // one of the launches.
  void Exchange(const std::vector<packed::MessagePart>& sends, const std::vector<packed::MessagePart>& receives,
                std::vector<CopyJob> own);
};

// True when the copies are runs that follow each other in the fragment, `bytes` each, in the order given. `offset` is
// from_offset or to_offset: the side that the fragment is on.
bool FollowEachOther(const std::vector<const StridedCopy*>& copies, int64_t (StridedCopy::*offset)() const,
                     int64_t bytes);

// Contributions to an output lie in a block of staging, one after the other in the order of the ranks.
struct ContributionBlock {
  int base = 0;
  int64_t pitch = 0;    // bytes from one to the next
  int64_t members = 0;  // 0: the output is not reduced
  int64_t placed = 0;   // of them
};
// Makes room for what is contributed to the tensors of the step, which is not an AllReduce: one block per tensor.
std::vector<ContributionBlock> StageContributions(DevicePreparation& preparation);
// Adds the launch that combines what has arrived.
void CombineContributions(DevicePreparation& preparation, const std::vector<ContributionBlock>& blocks);

// Each adds the actions of a step of its kind. One exchange, which is any step but an AllReduce:
void PrepareExchange(DevicePreparation& preparation);
// The same by a collective of the backend. Returns false and adds nothing if the members do not trade equal parts.
bool PrepareCollectiveMoves(DevicePreparation& preparation);
bool PrepareCollectiveReduceScatter(DevicePreparation& preparation);
// `native`: the backend combines elements of these types.
void PrepareAllReduce(DevicePreparation& preparation, bool native);

}  // namespace reshard::cuda

#endif  // RESHARD_RUNTIME_CUDA_DEVICE_PROGRAM_H_
