// What the subcommands that run over MPI share.
#ifndef RESHARD_TOOLS_RESHARD_MPI_AS_RANK_H_
#define RESHARD_TOOLS_RESHARD_MPI_AS_RANK_H_

#include <functional>
#include <vector>

#include "absl/status/status.h"
#include "reshard/runtime/communicator.h"

namespace reshard::tool {

// Calls work(communicator, rank, ranks) in an MPI program, and returns its exit code.
int AsRank(const std::function<int(Communicator& comm, int rank, int ranks)>& work);

// If all ranks have the error and are still alive, one of them prints it. Otherwise each rank that can prints it, and
// the program ends without waiting for the others. Returns the code.
int FailAsRank(const absl::Status& status, int code, Communicator& comm, int rank);

// Collective, and without a deadline. For each number, the largest of any rank; in ascending order.
std::vector<double> LargestSorted(std::vector<double> seconds);
// Requires at least one number.
double MedianOf(const std::vector<double>& sorted);

}  // namespace reshard::tool

#endif  // RESHARD_TOOLS_RESHARD_MPI_AS_RANK_H_
