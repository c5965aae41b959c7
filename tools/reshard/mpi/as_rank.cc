#include "tools/reshard/mpi/as_rank.h"

#include <mpi.h>

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "reshard/mpi/mpi_communicator.h"
#include "tools/reshard/exit_code.h"

namespace reshard::tool {

int AsRank(const std::function<int(Communicator& comm, int rank, int ranks)>& work) {
  MPI_Init(nullptr, nullptr);
  int rank = 0, ranks = 1, code = kOk;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  {
    const auto created = MpiCommunicator::Create(MPI_COMM_WORLD);
    code = created.ok() ? work(**created, rank, ranks) : Fail(created.status(), Stage::kRun);
  }
  MPI_Finalize();
  return code;
}

int FailAsRank(const absl::Status& status, int code, Communicator& comm, int rank) {
  if (comm.Barrier().ok()) return rank == 0 ? Fail(static_cast<ExitCode>(code), std::string(status.message())) : code;
  Fail(static_cast<ExitCode>(code), absl::StrCat("rank ", rank, ": ", status.message()));
  MPI_Abort(MPI_COMM_WORLD, code);
  return code;
}

std::vector<double> LargestSorted(std::vector<double> seconds) {
  MPI_Allreduce(MPI_IN_PLACE, seconds.data(), static_cast<int>(seconds.size()), MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
  std::sort(seconds.begin(), seconds.end());
  return seconds;
}

double MedianOf(const std::vector<double>& sorted) {
  return (sorted[(sorted.size() - 1) / 2] + sorted[sorted.size() / 2]) / 2;
}

}  // namespace reshard::tool
