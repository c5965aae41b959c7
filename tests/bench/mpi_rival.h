// What else moves a matrix of floats between the processes of an MPI program, for comparison. Two layouts, in which
// each process has one box of the matrix at most; what can be prepared is prepared once.
#ifndef RESHARD_TESTS_BENCH_MPI_RIVAL_H_
#define RESHARD_TESTS_BENCH_MPI_RIVAL_H_

#include <memory>
#include <vector>

#include "reshard/layout/layout.h"

namespace reshard::bench {

// Of one process along each dimension.
using Box = std::vector<Interval>;
Box BoxOf(const Layout& layout, int64_t device);

class MpiRival {
 public:
  virtual ~MpiRival() = default;
  virtual void Run(const float* source, float* target) = 0;
};

// By hand: one MPI_Alltoallw with datatypes.
std::unique_ptr<MpiRival> MakeAllToAllW(const Layout& from, const Layout& to, int rank);

// COSTA (eth-cscs/COSTA). Null where this was built without it, and for what it cannot express: replicas.
std::unique_ptr<MpiRival> MakeCosta(const Layout& from, const Layout& to, int rank);

}  // namespace reshard::bench

#endif  // RESHARD_TESTS_BENCH_MPI_RIVAL_H_
