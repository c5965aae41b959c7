// A communicator for tensors in host memory over a c10d process group: Gloo, MPI, or anything else that sends and
// receives.
//
// Data moves as point-to-point messages of bytes that are posted all at once and packed at most once on each side. Gloo
// serves these on the caller's thread and takes a deadline for each; its collectives do neither. Backends that
// coalesce get one group of sends and receives per step. Small exchanges between most ranks are one all-to-all instead
// (see docs/design/runtime.md). Reductions are combined by this library, in rank order, so that every backend gives the
// same bits. No sub-groups are created: messages only go where a step needs them.
//
// Ranks of one host exchange through shared memory instead, and need no messages (also in docs/design/runtime.md).
//
// Device ids are ranks of the group. The group's own timeout is not used: every wait ends after `timeout`.
//
// Failure (see Communicator): when a wait fails or times out, the rank asks its peer, over a separate socket, what the
// peer is waiting for, and follows the answers to the culprit. Then it tells all others, so that they need not wait for
// their own deadlines. The group's connections cannot be used afterwards.
#ifndef RESHARD_TORCH_C10D_COMMUNICATOR_H_
#define RESHARD_TORCH_C10D_COMMUNICATOR_H_

#include <memory>
#include <string>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <vector>

#include "absl/status/statusor.h"
#include "reshard/runtime/communicator.h"
#include "reshard/runtime/peer_options.h"
#include "reshard/runtime/recent_operations.h"

namespace reshard {

// Options of a C10dCommunicator.
using C10dOptions = PeerOptions;

// See above. The overrides behave as documented in Communicator.
class C10dCommunicator final : public Communicator {
 public:
  // Local: ranks first communicate in the first call. Does not keep the group alive; once the group has been destroyed
  // every call returns Unavailable.
  // FailedPrecondition: the group has no backend for host memory.
  static absl::StatusOr<std::unique_ptr<C10dCommunicator>> Create(const c10::intrusive_ptr<c10d::ProcessGroup>& group,
                                                                  C10dOptions options = {});
  ~C10dCommunicator() override;

  int64_t rank() const override;
  int64_t world_size() const override;
  CopyFor copies() const override { return CopyFor::kMessages; }
  absl::Status Agree(const absl::Status& own, const Signature& problem) override;
  absl::Status AgreeBefore(const StepProgram& next, absl::Span<const ConstTensorView> inputs,
                           const Signature& problem) override;
  // Unimplemented: fragments that are not in host memory.
  absl::StatusOr<MoveStats> ExecuteStep(const StepProgram& step, absl::Span<const ConstTensorView> inputs,
                                        absl::Span<const TensorView> outputs, std::unique_ptr<StepMemo>* memo) override;
  absl::Status Barrier() override;
  std::vector<int64_t> FindGone(absl::Span<const int64_t> ranks) override;

  // True while its group exists and Close has not been called.
  bool alive() const;
  const RecentOperations* recent_operations() const override;
  // Closes the socket on which peers ask, and ends its thread unless another communicator of this process needs it.
  // Returns the memory that it shares, at the latest when the call in progress ends.
  void Close() override;

 private:
  struct Impl;
  explicit C10dCommunicator(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace reshard

#endif  // RESHARD_TORCH_C10D_COMMUNICATOR_H_
