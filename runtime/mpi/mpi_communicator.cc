#include "reshard/mpi/mpi_communicator.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/mpi/mpi_messages.h"
#include "runtime/peers/peer_communicator.h"
#include "status/macros.h"
#include "status/no_throw.h"

namespace reshard {
namespace {

absl::Status Check(int error, const char* doing) {
  if (error == MPI_SUCCESS) return absl::OkStatus();
  return absl::InternalError(absl::StrCat(doing, ": ", mpi::TextOf(error)));
}

// A communicator of the same ranks that returns errors.
absl::StatusOr<MPI_Comm> Duplicate(MPI_Comm comm) {
  if (!mpi::IsRunning()) return absl::FailedPreconditionError("MPI is not running: call MPI_Init before");
  if (comm == MPI_COMM_NULL) return absl::InvalidArgumentError("the MPI communicator is MPI_COMM_NULL");
  int between_groups = 0;
  RETURN_IF_ERROR(Check(MPI_Comm_test_inter(comm, &between_groups), "looking at the MPI communicator"));
  if (between_groups != 0) return absl::InvalidArgumentError("the MPI communicator is an intercommunicator");
  MPI_Comm own = MPI_COMM_NULL;
  RETURN_IF_ERROR(Check(MPI_Comm_dup(comm, &own), "duplicating the MPI communicator"));
  RETURN_IF_ERROR(Check(MPI_Comm_set_errhandler(own, MPI_ERRORS_RETURN), "setting how MPI reports errors"));
  return own;
}

int RankIn(MPI_Comm comm) {
  int rank = 0;
  MPI_Comm_rank(comm, &rank);
  return rank;
}

int SizeOf(MPI_Comm comm) {
  int size = 0;
  MPI_Comm_size(comm, &size);
  return size;
}

}  // namespace

struct MpiCommunicator::Impl {
  Impl(MPI_Comm comm, const MpiOptions& options)
      : ranks(RankIn(comm), SizeOf(comm), options, [&](peers::PeerBoard& board, peers::FindCulprit find_culprit) {
          return std::make_unique<mpi::MpiMessages>(comm, options.timeout, &board, std::move(find_culprit));
        }) {}

  peers::PeerCommunicator ranks;
};

MpiCommunicator::MpiCommunicator(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
MpiCommunicator::~MpiCommunicator() = default;

absl::StatusOr<std::unique_ptr<MpiCommunicator>> MpiCommunicator::Create(MPI_Comm comm, MpiOptions options) {
  return status::NoThrow("making a communicator", [&]() -> absl::StatusOr<std::unique_ptr<MpiCommunicator>> {
    ASSIGN_OR_RETURN(const MPI_Comm own, Duplicate(comm));
    return std::unique_ptr<MpiCommunicator>(new MpiCommunicator(std::make_unique<Impl>(own, options)));
  });
}

int64_t MpiCommunicator::rank() const { return impl_->ranks.rank(); }
int64_t MpiCommunicator::world_size() const { return impl_->ranks.world_size(); }
void MpiCommunicator::Close() { impl_->ranks.Close(); }
std::vector<int64_t> MpiCommunicator::FindGone(absl::Span<const int64_t> ranks) { return impl_->ranks.FindGone(ranks); }
const RecentOperations* MpiCommunicator::recent_operations() const { return impl_->ranks.recent_operations(); }

absl::Status MpiCommunicator::Agree(const absl::Status& own, const Signature& problem) {
  return impl_->ranks.Agree(own, problem);
}

absl::Status MpiCommunicator::AgreeBefore(const StepProgram& next, absl::Span<const ConstTensorView> inputs,
                                          const Signature& problem) {
  return impl_->ranks.AgreeBefore(next, inputs, problem);
}

absl::Status MpiCommunicator::Barrier() { return impl_->ranks.Barrier(); }

absl::StatusOr<MoveStats> MpiCommunicator::ExecuteStep(const StepProgram& step,
                                                       absl::Span<const ConstTensorView> inputs,
                                                       absl::Span<const TensorView> outputs,
                                                       std::unique_ptr<StepMemo>* memo) {
  return impl_->ranks.ExecuteStep(step, inputs, outputs, memo);
}

}  // namespace reshard
