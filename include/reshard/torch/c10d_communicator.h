// A communicator over a c10d process group: Gloo, MPI, NCCL's host side, or anything else that sends and receives.
//
// Moves are point-to-point messages of bytes, posted all at once, packed at most once on each side. Gloo serves these
// on the caller's thread and takes a deadline for each, neither of which its collectives do; groups that coalesce
// (NCCL) get one group of sends and receives a step. Nothing is asked of the group but send and receive, so that every
// backend gives the same bytes, and reductions, which this library combines itself in the order of the ranks, the same
// bits. No sub-groups are needed: messages only go where a step needs them.
//
// Device ids are ranks of the group. The group's own timeout does not matter: every wait ends after `timeout`.
//
// Failure (see Communicator): when a wait fails or ends, the rank asks its neighbour, over a socket of its own, what it
// is waiting for, and follows the answers to the rank that is to blame. Then it tells all others, so that they need not
// wait for their own deadlines. The group's connections are of no use afterwards.
#ifndef RESHARD_TORCH_C10D_COMMUNICATOR_H_
#define RESHARD_TORCH_C10D_COMMUNICATOR_H_

#include <memory>
#include <string>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "reshard/runtime/communicator.h"
#include "reshard/runtime/recent_operations.h"

namespace reshard {

struct C10dOptions {
  // How long a rank waits for another at any one place.
  absl::Duration timeout = DefaultTimeout();
};

class C10dCommunicator final : public Communicator {
 public:
  // Local: the ranks meet at the first call. Does not keep the group alive; once it has been destroyed every call
  // returns Unavailable.
  // FailedPrecondition: the group has no backend for host memory.
  static absl::StatusOr<std::unique_ptr<C10dCommunicator>> Create(const c10::intrusive_ptr<c10d::ProcessGroup>& group,
                                                                  C10dOptions options = {});
  ~C10dCommunicator() override;

  int64_t rank() const override;
  int64_t world_size() const override;
  CopyFor copies() const override { return CopyFor::kMessages; }
  absl::Status Agree(const absl::Status& own, const Signature& problem) override;
  // Unimplemented: fragments that are not in host memory.
  absl::StatusOr<MoveStats> ExecuteStep(const StepProgram& step, absl::Span<const ConstTensorView> inputs,
                                        absl::Span<const TensorView> outputs, std::unique_ptr<StepMemo>* memo) override;
  absl::Status Barrier() override;

  // True while the group that it was made from exists.
  bool alive() const;
  const RecentOperations& recent_operations() const;

 private:
  struct Impl;
  explicit C10dCommunicator(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace reshard

#endif  // RESHARD_TORCH_C10D_COMMUNICATOR_H_
