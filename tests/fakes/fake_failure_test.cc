// FakeNccl: aborts, and errors that tests plan.
#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

#include "tests/catch.h"
#include "tests/fakes/fake_rank.h"

namespace reshard::testing {
namespace {

using Results = std::vector<NcclResult>;

TEST_CASE("fake nccl: an abort ends what hangs, and the stream goes on") {
  const bool notice = GENERATE(false, true);
  FakeWorld world(2, {.peers_notice_abort = notice});
  int after = 0;
  Results errors(2);
  std::atomic<bool> aborted{false};
  OnRanks(2, [&](Rank& self) {
    if (self.rank == 1) {
      while (!aborted) std::this_thread::yield();
      Nccl().CommGetAsyncError(self.comm, &errors[1]);
      self.Abort();
      return;
    }
    Array<int> data(0, {1, 2});
    Nccl().Recv(data.data, 1, kNcclInt32, 1, self.comm, self.stream);
    Cuda().MemcpyAsync(reinterpret_cast<cuda::CudaPointer>(data.data),
                       reinterpret_cast<cuda::CudaPointer>(data.data + 1), 4, self.stream);
    CHECK(Cuda().StreamQuery(self.stream) == cuda::kCudaNotReady);
    self.Abort();
    aborted = true;
    after = data.data[0];
  });
  CHECK(after == 2);
  CHECK(errors[1] == (notice ? kNcclRemoteError : kNcclSuccess));
  CHECK(Wrongs() == "");
}

TEST_CASE("fake nccl: an operation that stalls, one that fails, a call that fails") {
  FakeWorld world(2);
  Results errors(2);
  SECTION("stalls until it is aborted") {
    FakeNccl::Stall(1, 1);
    std::atomic<bool> first{false};
    std::vector<cuda::CudaResult> queried(2);
    OnRanks(2, [&](Rank& self) {
      Array<int> data(self.rank, {1});
      Nccl().AllReduce(data.data, data.data, 1, kNcclInt32, kNcclSum, self.comm, self.stream);
      Cuda().StreamSynchronize(self.stream);
      if (data.data[0] == 2) first = true;
      Nccl().AllReduce(data.data, data.data, 1, kNcclInt32, kNcclSum, self.comm, self.stream);
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      queried[self.rank] = Cuda().StreamQuery(self.stream);
      Nccl().CommGetAsyncError(self.comm, &errors[self.rank]);
      self.Abort();
    });
    CHECK(first);
    CHECK(queried == std::vector<cuda::CudaResult>(2, cuda::kCudaNotReady));
    CHECK(errors == Results{kNcclSuccess, kNcclSuccess});
    CHECK(Wrongs() == "");
  }
  SECTION("fails") {
    FakeNccl::FailAsync(0, 0, kNcclSystemError);
    std::atomic<bool> failed{false};
    OnRanks(2, [&](Rank& self) {
      Array<int> data(self.rank, {1});
      Nccl().AllReduce(data.data, data.data, 1, kNcclInt32, kNcclSum, self.comm, self.stream);
      if (self.rank == 0) errors[0] = self.Error();
      failed = failed || self.rank == 0;
      while (!failed) std::this_thread::yield();
      Nccl().CommGetAsyncError(self.comm, &errors[self.rank]);
      self.Abort();
    });
    CHECK(errors == Results{kNcclSystemError, kNcclSuccess});
    CHECK(Wrongs() == "");
  }
  SECTION("calls") {
    FakeNccl::FailAt(0, "AllReduce", 1, kNcclSystemError);
    // After CommInitRankConfig and the first AllReduce.
    FakeNccl::FailAt(1, 2, kNcclInvalidArgument);
    std::vector<Results> got(2);
    OnRanks(2, [&](Rank& self) {
      Array<int> data(self.rank, {1});
      for (int i = 0; i < 2; ++i) {
        got[self.rank].push_back(
            Nccl().AllReduce(data.data, data.data, 1, kNcclInt32, kNcclSum, self.comm, self.stream));
      }
      Cuda().StreamSynchronize(self.stream);
      if (self.rank == 0) self.Abort();
    });
    CHECK(got[0] == Results{kNcclSuccess, kNcclSystemError});
    CHECK(got[1] == Results{kNcclSuccess, kNcclInvalidArgument});
    CHECK(FakeNccl::Calls(0) == 4);  // and CommAbort
    CHECK(FakeNccl::Groups(0) == 1);
    CHECK(Wrongs() == "");
  }
}

}  // namespace
}  // namespace reshard::testing
