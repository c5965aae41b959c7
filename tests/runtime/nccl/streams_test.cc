// Operations of one communicator on several streams: kernels of NCCL that are on a device at once may wait for each
// other forever, so each begins when the one before has ended, whatever stream it is on.
#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include "tests/catch.h"
#include "tests/fakes/nccl_world.h"
#include "tests/runtime/nccl/rank_redistribution.h"

namespace reshard {
namespace {

using testing::FakeNccl;
using testing::FakeWorld;
using testing::RankRedistribution;
using testing::RunNcclRanks;

constexpr int kRanks = 4;

TEST_CASE("steps over all ranks and over groups, on a stream each, follow each other") {
  const FakeWorld fakes(kRanks);
  std::atomic<int> enqueued{0};
  const std::vector<absl::Status> statuses = RunNcclRanks(kRanks, {}, [&](NcclCommunicator& comm) {
    const std::string mesh = "{X:2,Y:2}";
    RankRedistribution all(comm, {mesh, "[<X,Y>8, 8]", "[8, <X,Y>8]"});
    RankRedistribution along_y(comm, {mesh, "[<X,Y>8, 8]", "[<X>8, 8]"});
    RankRedistribution along_x(comm, {mesh, "[8, <X>8]", "[8, 8]"});
    absl::Status status;
    for (RankRedistribution* one : {&all, &along_y, &along_x}) status.Update(one->Run());  // splits off the groups
    if (!status.ok()) return status;
    // The last rank comes when the others have enqueued everything: nothing over all ranks can have ended before.
    while (comm.rank() == kRanks - 1 && enqueued < kRanks - 1) std::this_thread::yield();
    for (RankRedistribution* one : {&all, &along_y, &all, &along_x}) status.Update(one->Enqueue());
    ++enqueued;
    status.Update(comm.Wait());
    return status;
  });
  for (const absl::Status& status : statuses) CHECK(status.ToString() == "OK");
  CHECK(FakeNccl::Complaints() == std::vector<std::string>());
}

}  // namespace
}  // namespace reshard
