// FakeNccl: what is wrong is told, and does not hang.
#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include "tests/catch.h"
#include "tests/fakes/fake_rank.h"

namespace reshard::testing {
namespace {

using Results = std::vector<NcclResult>;

TEST_CASE("fake nccl: counts that differ end both sides, which are named") {
  FakeWorld world(2);
  std::vector<NcclResult> errors(2);
  OnRanks(2, [&](Rank& self) {
    Array<char> data(self.rank, std::vector<char>(8));
    if (self.rank == 0) Nccl().Send(data.data, 4, kNcclInt8, 1, self.comm, self.stream);
    if (self.rank == 1) Nccl().Recv(data.data, 8, kNcclInt8, 0, self.comm, self.stream);
    errors[self.rank] = self.Error();
    self.Abort();
  });
  CHECK(errors == std::vector<NcclResult>{kNcclInvalidUsage, kNcclInvalidUsage});
  CHECK(
      Complained("rank 0 of communicator 0 does Send of 4 elements of type 0 as #0 to rank 1, which does Recv of "
                 "8 elements"));
}

TEST_CASE("fake nccl: types that differ, also of nothing") {
  FakeWorld world(2);
  Results errors(2);
  OnRanks(2, [&](Rank& self) {
    if (self.rank == 0) Nccl().Send(nullptr, 0, kNcclInt8, 1, self.comm, self.stream);
    if (self.rank == 1) Nccl().Recv(nullptr, 0, kNcclUint8, 0, self.comm, self.stream);
    errors[self.rank] = self.Error();
    self.Abort();
  });
  CHECK(errors == Results{kNcclInvalidUsage, kNcclInvalidUsage});
  CHECK(Complained("to rank 1, which does Recv of 0 elements of type 1"));
}

TEST_CASE("fake nccl: a send to itself without its receive") {
  FakeWorld world(1);
  Results results;
  OnRanks(1, [&](Rank& self) {
    Array<char> data(0, {1, 2});
    results.push_back(Nccl().Send(data.data, 1, kNcclInt8, 0, self.comm, self.stream));
    results.push_back(Nccl().Recv(data.data, 1, kNcclInt8, 0, self.comm, self.stream));  // the communicator is broken
    self.Abort();
  });
  CHECK(results == Results{kNcclInvalidUsage, kNcclInvalidUsage});
  CHECK(Complained("sends to itself without receiving"));
  CHECK(FakeNccl::Groups(0) == 0);
}

TEST_CASE("fake nccl: collectives that are not the same on all ranks") {
  const int kind = GENERATE(0, 1, 2, 3);
  FakeWorld world(3);
  Results errors(3);
  OnRanks(3, [&](Rank& self) {
    Array<int> data(self.rank, std::vector<int>(12));
    const bool odd = self.rank == 1;
    int* const out = data.data + 4;
    if (kind == 3 && odd) {
      Nccl().AllGather(data.data, out, 2, kNcclInt32, self.comm, self.stream);
    } else {
      Nccl().AllReduce(data.data, out, odd && kind == 0 ? 3 : 2, odd && kind == 1 ? kNcclUint32 : kNcclInt32,
                       odd && kind == 2 ? kNcclMax : kNcclSum, self.comm, self.stream);
    }
    errors[self.rank] = self.Error();
    self.Abort();
  });
  CHECK(errors == Results(3, kNcclInvalidUsage));
  CHECK(Complained("as collective #0, while rank "));
}

TEST_CASE("fake nccl: sends before receives wait for each other in a circle") {
  FakeWorld world(3);
  FakeCuda::Jitter(Seed() | 1);
  Results errors(3);
  OnRanks(3, [&](Rank& self) {
    Array<int> data(self.rank, {1, 2});
    Nccl().Send(data.data, 1, kNcclInt32, (self.rank + 1) % 3, self.comm, self.stream);
    Nccl().Recv(data.data + 1, 1, kNcclInt32, (self.rank + 2) % 3, self.comm, self.stream);
    errors[self.rank] = self.Error();
    self.Abort();
  });
  CHECK(errors == Results(3, kNcclInvalidUsage));
  CHECK(Complained(
      "rank 0 of communicator 0: Send #0 to rank 1 (1 elements); rank 1 of communicator 0: Send #0 to rank 2 "
      "(1 elements); rank 2 of communicator 0: Send #0 to rank 0 (1 elements)"));
}

TEST_CASE("fake nccl: two communicators in another order on one rank") {
  FakeWorld world(2);
  Results errors(2);
  const NcclUniqueId second = NewId();
  OnRanks(2, [&](Rank& self) {
    NcclComm other = nullptr;
    Nccl().CommInitRankConfig(&other, 2, second, self.rank, nullptr);
    Array<int> data(self.rank, {1});
    NcclComm order[] = {self.comm, other};
    if (self.rank == 1) std::swap(order[0], order[1]);
    for (NcclComm comm : order) Nccl().AllReduce(data.data, data.data, 1, kNcclInt32, kNcclSum, comm, self.stream);
    errors[self.rank] = PollWhile(order[0], kNcclSuccess);
    Nccl().CommAbort(other);
    self.Abort();
  });
  CHECK(errors == Results(2, kNcclInvalidUsage));
  CHECK(Complained("these wait for each other"));
}

// What a rank has besides: a communicator, a stream, an event.
struct Besides {
  Besides(int rank, const NcclUniqueId& id) {
    Nccl().CommInitRankConfig(&comm, 2, id, rank, nullptr);
    Cuda().StreamCreate(&stream, cuda::kCudaStreamNonBlocking);
    Cuda().EventCreate(&event, cuda::kCudaEventDisableTiming);
  }
  ~Besides() {
    Cuda().StreamSynchronize(stream);
    Cuda().EventDestroy(event);
    Cuda().StreamDestroy(stream);
  }
  // What comes on its stream follows what is on that one now.
  void Follow(cuda::CudaStream first) const {
    Cuda().EventRecord(event, first);
    Cuda().StreamWaitEvent(stream, event, 0);
  }
  NcclComm comm = nullptr;
  cuda::CudaStream stream = nullptr;
  cuda::CudaEvent event = nullptr;
};

TEST_CASE("fake nccl: a circle through events of two streams") {
  FakeWorld world(2);
  Results errors(2);
  const NcclUniqueId second_id = NewId();
  OnRanks(2, [&](Rank& self) {
    const Besides other(self.rank, second_id);
    Array<int> data(self.rank, {1, 2});
    // Each on a stream of its own, but one after the other: rank 1 has them the other way round.
    const bool swap = self.rank == 1;
    NcclComm const order[] = {swap ? other.comm : self.comm, swap ? self.comm : other.comm};
    Nccl().AllReduce(data.data, data.data, 1, kNcclInt32, kNcclSum, order[0], self.stream);
    other.Follow(self.stream);
    Nccl().AllReduce(data.data + 1, data.data + 1, 1, kNcclInt32, kNcclSum, order[1], other.stream);
    errors[self.rank] = PollWhile(order[0], kNcclSuccess);
    Nccl().CommAbort(other.comm);
    self.Abort();
    Cuda().StreamSynchronize(other.stream);  // before the data is gone
  });
  CHECK(errors == Results(2, kNcclInvalidUsage));
  CHECK(Complained("a wait for an event of stream"));
}

TEST_CASE("fake nccl: two communicators of a device on two streams that nothing orders") {
  const bool ordered = GENERATE(true, false);
  FakeWorld world(2);
  const NcclUniqueId second_id = NewId();
  std::atomic<int> issued{0};
  OnRanks(2, [&](Rank& self) {
    const Besides other(self.rank, second_id);
    Array<int> data(self.rank, {1, 2});
    // Rank 1 comes when rank 0 has called both: then neither has ended.
    while (self.rank == 1 && issued == 0) std::this_thread::yield();
    Nccl().AllReduce(data.data, data.data, 1, kNcclInt32, kNcclSum, self.comm, self.stream);
    if (ordered) other.Follow(self.stream);
    Nccl().AllReduce(data.data + 1, data.data + 1, 1, kNcclInt32, kNcclSum, other.comm, other.stream);
    ++issued;
    Cuda().StreamSynchronize(self.stream);
    Cuda().StreamSynchronize(other.stream);
    Nccl().CommDestroy(other.comm);
  });
  CHECK(Complained("rank 0 of communicator 1: nothing orders what is called behind what rank 0 of communicator 0 has "
                   "under way on another stream") == !ordered);
}

TEST_CASE("fake nccl: a receive from a rank that has left") {
  FakeWorld world(2);
  NcclResult error = kNcclSuccess;
  OnRanks(2, [&](Rank& self) {
    if (self.rank == 1) return;  // destroys its communicator
    Array<int> data(self.rank, {1});
    Nccl().Recv(data.data, 1, kNcclInt32, 1, self.comm, self.stream);
    error = self.Error();
    self.Abort();
  });
  CHECK(error == kNcclInvalidUsage);
  CHECK(Complained("or for a rank that has gone: rank 0 of communicator 0: Recv #0 from rank 1 (1 elements)"));
}

TEST_CASE("fake nccl: a failed call in a group: nothing of the group runs") {
  FakeWorld world(1);
  Results results;
  OnRanks(1, [&](Rank& self) {
    Array<int> data(0, {1, 2});
    Nccl().GroupStart();
    results.push_back(Nccl().AllReduce(data.data, data.data, 1, kNcclInt32, kNcclSum, self.comm, self.stream));
    results.push_back(Nccl().Send(data.data, 1, kNcclInt32, 5, self.comm, self.stream));
    results.push_back(Nccl().GroupEnd());
    // The communicator is as good as before.
    results.push_back(Nccl().AllReduce(data.data, data.data, 1, kNcclInt32, kNcclSum, self.comm, self.stream));
    Cuda().StreamSynchronize(self.stream);
  });
  CHECK(results == Results{kNcclSuccess, kNcclInvalidArgument, kNcclInvalidArgument, kNcclSuccess});
  CHECK(FakeNccl::Groups(0) == 1);
  CHECK(Complained("no such peer: 5"));
}

TEST_CASE("fake nccl: a group that an earlier test left open is forgotten") {
  {
    FakeWorld world(1);
    CHECK(Nccl().GroupStart() == kNcclSuccess);
  }
  FakeWorld world(1);
  CHECK(Nccl().GroupEnd() == kNcclInvalidUsage);
}

TEST_CASE("fake nccl: a split while the parent has work on the device") {
  FakeWorld world(2);
  OnRanks(2, [&](Rank& self) {
    Array<int> data(self.rank, {1, 2});
    NcclComm part = nullptr;
    // Rank 0's send cannot end before rank 1 receives, which it does after the split.
    if (self.rank == 0) Nccl().Send(data.data, 1, kNcclInt32, 1, self.comm, self.stream);
    Nccl().CommSplit(self.comm, 0, self.rank, &part, nullptr);
    if (self.rank == 1) Nccl().Recv(data.data, 1, kNcclInt32, 0, self.comm, self.stream);
    Cuda().StreamSynchronize(self.stream);
    Nccl().CommDestroy(part);
  });
  CHECK(Complained("rank 0 of communicator 0, CommSplit: what it has on the device has not ended"));
}

TEST_CASE("fake nccl: calls that come when they may not") {
  FakeWorld world(2);
  const auto once = [&](const std::string& told, NcclResult expected, const auto& body) {
    INFO(told);
    NcclResult result = kNcclSuccess;
    OnRanks(1, [&](Rank& self) { result = body(self); });
    CHECK(result == expected);
    CHECK(Complained(told));
  };
  once("GroupEnd without GroupStart", kNcclInvalidUsage, [](Rank&) { return Nccl().GroupEnd(); });
  once("CommSplit between GroupStart and GroupEnd", kNcclInvalidUsage, [](Rank& self) {
    NcclComm part = nullptr;
    Nccl().GroupStart();
    const NcclResult result = Nccl().CommSplit(self.comm, 0, 0, &part, nullptr);
    Nccl().GroupEnd();
    return result;
  });
  once("AllGather: it was finalized before", kNcclInvalidUsage, [](Rank& self) {
    Array<int> data(0, {1, 2});
    Nccl().CommFinalize(self.comm);
    return Nccl().AllGather(data.data, data.data, 1, kNcclInt32, self.comm, self.stream);
  });
  once("AllReduce: source and target overlap", kNcclInvalidArgument, [](Rank& self) {
    Array<int> data(0, {1, 2, 3});
    return Nccl().AllReduce(data.data, data.data + 1, 2, kNcclInt32, kNcclSum, self.comm, self.stream);
  });
  once("AlltoAll: source and target overlap", kNcclInvalidArgument, [](Rank& self) {
    Array<int> data(0, {1, 2, 3});
    return Nccl().AlltoAll(data.data, data.data, 2, kNcclInt32, self.comm, self.stream);
  });
  once("Recv: the target is null", kNcclInvalidArgument,
       [](Rank& self) { return Nccl().Recv(nullptr, 1, kNcclInt8, 0, self.comm, self.stream); });
  once("Send: the stream is not there", kNcclUnhandledCudaError, [](Rank& self) {
    Array<char> data(0, {1});
    const NcclResult result = Nccl().Send(data.data, 1, kNcclInt8, 0, self.comm, &self);
    self.Abort();
    return result;
  });
  once("Send: it was destroyed or aborted before", kNcclInvalidArgument, [](Rank& self) {
    const NcclComm old = self.comm;
    Nccl().CommDestroy(old);
    Nccl().CommInitRankConfig(&self.comm, 1, NewId(), 0, nullptr);
    return Nccl().Send(nullptr, 0, kNcclInt8, 0, old, self.stream);
  });
}

TEST_CASE("fake nccl: a non-blocking communicator is not used before it is ready") {
  FakeWorld world(2);
  const NcclUniqueId id = NewId();
  Results results(2), late(2);
  std::atomic<bool> alone{true};
  RunRanks(2, [&](int rank) {
    FakeCurrent current(rank);
    if (rank == 1) {
      while (alone) std::this_thread::yield();
    }
    NcclConfig config;
    config.blocking = 0;
    NcclComm comm = nullptr;
    results[rank] = Nccl().CommInitRankConfig(&comm, 2, id, rank, &config);
    NcclResult error = kNcclSuccess;
    // Not before the other one is there, however often it is asked.
    for (int i = 0; i < 10 && rank == 0; ++i) Nccl().CommGetAsyncError(comm, &error);
    if (rank == 0) late[0] = error;
    if (rank == 0) late[1] = Nccl().Send(nullptr, 0, kNcclInt8, 1, comm, nullptr);
    alone = false;
    Ready(comm);
    Nccl().CommDestroy(comm);
  });
  CHECK(results == Results{kNcclInProgress, kNcclInProgress});
  CHECK(late == Results{kNcclInProgress, kNcclInvalidArgument});
  CHECK(Complained("what was called before is still in progress"));
}

TEST_CASE("fake nccl: two ranks on one device") {
  FakeWorld world(2);
  const NcclUniqueId id = NewId();
  Results results(2);
  RunRanks(2, [&](int rank) {
    NcclComm comm = nullptr;
    results[rank] = Nccl().CommInitRankConfig(&comm, 2, id, rank, nullptr);  // no context is current: device 0
    Nccl().CommAbort(comm);
  });
  CHECK(results == Results{kNcclInvalidUsage, kNcclInvalidUsage});
  CHECK(Complained("duplicate GPU"));
}

TEST_CASE("fake nccl: two threads use a communicator at once") {
  FakeWorld world(1);
  NcclResult other = kNcclSuccess;
  OnRanks(1, [&](Rank& self) {
    Array<int> data(0, {1});
    Nccl().GroupStart();
    Nccl().AllReduce(data.data, data.data, 1, kNcclInt32, kNcclSum, self.comm, self.stream);
    std::thread second(
        [&] { other = Nccl().AllReduce(data.data, data.data, 1, kNcclInt32, kNcclSum, self.comm, self.stream); });
    second.join();
    Nccl().GroupEnd();
    Cuda().StreamSynchronize(self.stream);  // before the data is gone
  });
  CHECK(other == kNcclInvalidUsage);
  CHECK(Complained("another thread uses the communicator at the same time"));
}

TEST_CASE("fake nccl: buffers that are freed, too short, another device's, or written twice") {
  FakeWorld world(2);
  NcclResult error = kNcclSuccess;
  const auto once = [&](const std::string& told, const auto& body) {
    INFO(told);
    OnRanks(1, [&](Rank& self) {
      body(self);
      error = self.Error();
      self.Abort();
    });
    CHECK(error == kNcclUnhandledCudaError);
    CHECK(Complained(told));
  };
  SECTION("freed") {
    once("is used after it was freed", [](Rank& self) {
      const int* freed = Array<int>(0, {1}).data;
      Array<int> to(0, {1});
      Nccl().AllReduce(freed, to.data, 1, kNcclInt32, kNcclSum, self.comm, self.stream);
      Cuda().StreamSynchronize(self.stream);
    });
  }
  SECTION("written twice") {
    OnRanks(1, [&](Rank& self) {
      Array<int> data(0, {1, 2, 3});
      Nccl().GroupStart();
      for (int i = 0; i < 2; ++i) {
        Nccl().Send(data.data + i, 1, kNcclInt32, 0, self.comm, self.stream);
        Nccl().Recv(data.data + 2, 1, kNcclInt32, 0, self.comm, self.stream);
      }
      Nccl().GroupEnd();
      Cuda().StreamSynchronize(self.stream);
    });
    CHECK(Complained("buffers overlap that a group writes"));
  }
}

}  // namespace
}  // namespace reshard::testing
