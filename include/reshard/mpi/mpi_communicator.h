// A communicator for tensors in host memory between the processes of an MPI program.
//
// Data moves as point-to-point messages of bytes, packed at most once on each side; ranks of one host exchange through
// shared memory instead, whatever MPI would use there. Reductions are combined by this library, in rank order, as on
// every other backend.
//
// Device ids are ranks of the communicator. It is duplicated, so that MPI cannot mistake a message of the program for
// one of this library. Only the calling thread makes MPI calls, one at a time; MPI_THREAD_FUNNELED suffices if that is
// the main thread.
//
// Failure (see Communicator): every wait ends after `timeout` with an error that names the culprit, which the rank
// finds by asking over sockets, not through MPI. The launcher acts first: it ends all processes when one of them dies
// (Open MPI's does unless given `--enable-recovery`). Messages in flight after a failure are cancelled. MPI grants that
// for receives that no message has reached; if it still holds on to others after two seconds, the error says so, and
// what was passed to the call must stay where it is.
#ifndef RESHARD_MPI_MPI_COMMUNICATOR_H_
#define RESHARD_MPI_MPI_COMMUNICATOR_H_

#include <mpi.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "reshard/runtime/communicator.h"
#include "reshard/runtime/peer_options.h"
#include "reshard/runtime/recent_operations.h"

namespace reshard {

// Options of an MpiCommunicator.
using MpiOptions = PeerOptions;

// See above. The overrides behave as documented in Communicator.
class MpiCommunicator final : public Communicator {
 public:
  // Collective over `comm`, which is duplicated. FailedPrecondition: MPI is not running. InvalidArgument: `comm` is an
  // intercommunicator or null. Internal: what MPI reports.
  static absl::StatusOr<std::unique_ptr<MpiCommunicator>> Create(MPI_Comm comm, MpiOptions options = {});
  // Destroy it before MPI_Finalize; otherwise the duplicate is left to MPI_Finalize.
  ~MpiCommunicator() override;

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
  const RecentOperations* recent_operations() const override;
  void Close() override;

 private:
  struct Impl;
  explicit MpiCommunicator(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace reshard

#endif  // RESHARD_MPI_MPI_COMMUNICATOR_H_
