// One rank of a LocalWorld, and what all ranks of a run share.
#ifndef RESHARD_RUNTIME_LOCAL_LOCAL_COMMUNICATOR_H_
#define RESHARD_RUNTIME_LOCAL_LOCAL_COMMUNICATOR_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "reshard/runtime/communicator.h"
#include "runtime/local/rendezvous.h"

namespace reshard::local {

// A piece of the work of one rank in one step, small enough that another rank may take it over.
struct LocalTask {
  enum class Kind {
    kPull,    // part `begin` of `end` parts of receive `index`
    kReduce,  // elements [begin, end) of the output of tensor `index`, from all contributions
    kGather,  // elements [begin, end) of the output of tensor `index`, from the output of member `peer`
  };
  Kind kind = Kind::kPull;
  int32_t index = 0;
  int32_t peer = 0;  // index of the rank in the world
  int64_t begin = 0;
  int64_t end = 0;
};

// What a rank brings to the step in progress. Written by its owner before the ranks meet, read by all afterwards; the
// owner changes it again only after they have met at the end of the step.
struct alignas(64) LocalSlot {
  const StepProgram* step = nullptr;
  absl::Span<const ConstTensorView> inputs;
  absl::Span<const TensorView> outputs;
  bool dense = true;  // all of them
  // An AllReduce has two phases with a meeting between them, everything else has one.
  std::vector<LocalTask> tasks[2];
  std::atomic<size_t> next_task[2] = {0, 0};
  // A peer whose fragment is not what the program expects, or -1.
  std::atomic<int64_t> misfit{-1};

  // What it brings to Agree.
  absl::Status own_status;
  const Signature* problem = nullptr;
};

struct LocalShared {
  LocalShared(const std::vector<int64_t>& ids, absl::Duration timeout);

  // The index of the rank with this device id, or -1.
  int64_t IndexOf(int64_t device_id) const;

  const std::vector<int64_t>& device_ids;  // ascending
  Rendezvous rendezvous;
  AccessGate gate;
  std::vector<LocalSlot> slots;
  // All tasks of the slots before this one have been taken.
  alignas(64) std::atomic<size_t> first_open_slot{0};
  // Bytes that the ranks are about to write in this step, and how: decided by the last rank to arrive.
  std::atomic<int64_t> step_bytes{0};
  CopyMode mode = CopyMode::kCached;
  // The outcome of the last Agree.
  absl::Status verdict;
};

class LocalCommunicator final : public Communicator {
 public:
  LocalCommunicator(LocalShared* shared, size_t index) : shared_(shared), index_(index) {}

  int64_t rank() const override { return shared_->device_ids[index_]; }
  int64_t world_size() const override { return static_cast<int64_t>(shared_->slots.size()); }
  bool has_rank(int64_t device_id) const override { return shared_->IndexOf(device_id) >= 0; }
  CopyFor copies() const override { return CopyFor::kPull; }
  absl::Status Agree(const absl::Status& own, const Signature& problem) override;
  absl::StatusOr<MoveStats> ExecuteStep(const StepProgram& step, absl::Span<const ConstTensorView> inputs,
                                        absl::Span<const TensorView> outputs, std::unique_ptr<StepMemo>* memo) override;
  absl::Status Barrier() override;

 private:
  absl::Status Prepare(const StepProgram& step, absl::Span<const ConstTensorView> inputs,
                       absl::Span<const TensorView> outputs, MoveStats* moved);
  // Prepare the tensors that are moved, and those that are reduced.
  absl::Status PreparePulls(const StepProgram& step, MoveStats* moved);
  absl::Status PrepareReductions(const StepProgram& step, MoveStats* moved);
  absl::Status RendezvousAndWork(const StepProgram& step, int64_t bytes);
  void Work(int phase);

  LocalShared* shared_;
  size_t index_;
};

// Does one task of the rank that owns `slot`. False when a peer's fragment is not what the program expects; then
// nothing was written and slot.misfit names the peer.
bool RunLocalTask(const LocalShared& shared, LocalSlot& slot, const LocalTask& task, CopyMode mode);

}  // namespace reshard::local

#endif  // RESHARD_RUNTIME_LOCAL_LOCAL_COMMUNICATOR_H_
