// Communicators that end, or are lost, while graphs that were captured over them are still there: NCCL waits for the
// graphs, and nobody else may.
#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/time/clock.h"
#include "reshard/nccl/nccl_communicator.h"
#include "tests/catch.h"
#include "tests/fakes/fake_rank.h"
#include "tests/fakes/nccl_world.h"
#include "tests/runtime/nccl/rank_redistribution.h"

namespace reshard {
namespace {

using testing::Cuda;
using testing::FakeCuda;
using testing::FakeCurrent;
using testing::FakeNccl;
using testing::FakeWorld;
using testing::RankRedistribution;
using testing::RunNcclRanks;

constexpr int kRanks = 3;
const testing::Case kCase = {"{X:3}", "[<X>9, 9]", "[9, <X>9]"};
// Long before anything that waits for a graph gives up.
constexpr absl::Duration kInTime = absl::Seconds(20);

using Graphs = std::vector<cuda::CudaGraphExec>;

void Destroy(const Graphs& graphs) {
  for (size_t rank = 0; rank < graphs.size(); ++rank) {
    const FakeCurrent current(static_cast<int>(rank));
    CHECK(graphs[rank] != nullptr);
    CHECK(Cuda().GraphExecDestroy(graphs[rank]) == cuda::kCudaSuccess);
  }
}

TEST_CASE("a communicator goes while a graph of it is there, and ends as ever after the graph") {
  const bool graph_first = GENERATE(true, false);
  const FakeWorld fakes(kRanks);
  Graphs graphs(kRanks);
  const absl::Time begin = absl::Now();
  for (const absl::Status& status : RunNcclRanks(kRanks, {}, [&](NcclCommunicator& comm) {
         RankRedistribution redistribution(comm, kCase);
         absl::Status ran = redistribution.Run();
         cuda::CudaGraphExec& graph = graphs[comm.rank()];
         if (ran.ok()) graph = redistribution.Capture();
         if (!graph_first) return ran;
         const cuda::CudaDevice::Current current(comm.device());
         Cuda().GraphExecDestroy(graph);
         return ran;
       })) {
    CHECK(status.ToString() == "OK");
  }
  CHECK(absl::Now() - begin < kInTime);
  const std::vector<std::string> leaks = FakeNccl::Leaks();
  if (graph_first) {
    CHECK(leaks == std::vector<std::string>());
  } else {
    CHECK_FALSE(leaks.empty());  // the communicators, and what is in the graphs
    Destroy(graphs);
  }
  CHECK(FakeNccl::Complaints() == std::vector<std::string>());
}

TEST_CASE("a rank that stays away is named while a graph is there") {
  const FakeWorld fakes(kRanks);
  Graphs graphs(kRanks);
  NcclOptions options;
  options.timeout = absl::Milliseconds(250);
  const absl::Time begin = absl::Now();
  const std::vector<absl::Status> statuses = RunNcclRanks(kRanks, options, [&](NcclCommunicator& comm) {
    RankRedistribution redistribution(comm, kCase);
    absl::Status ran = redistribution.Run();
    if (ran.ok()) graphs[comm.rank()] = redistribution.Capture();
    if (!ran.ok() || comm.rank() == 2) return ran.ok() ? absl::CancelledError("elsewhere") : ran;
    ran = redistribution.Run();
    const absl::Status later = redistribution.Run();
    return later.ok() ? absl::InternalError("a lost communicator works") : ran;
  });
  CHECK(absl::Now() - begin < kInTime);
  for (int rank = 0; rank < 2; ++rank) {
    INFO(statuses[rank]);
    CHECK(absl::StrContains(statuses[rank].message(), "rank 2"));
  }
  Destroy(graphs);
  CHECK(FakeNccl::Complaints() == std::vector<std::string>());
}

}  // namespace
}  // namespace reshard
