// The rules of FakeNccl: what is right gives the right values, what is wrong is told.
#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "runtime/core/half.h"
#include "tests/catch.h"
#include "tests/nccl/fake_cuda.h"
#include "tests/nccl/fake_nccl.h"
#include "tests/nccl/fake_world.h"

namespace reshard::testing {
namespace {

const CudaApi& Cuda() { return FakeCuda::Api(); }
const NcclApi& Nccl() { return FakeNccl::Api(); }

// Polls until a non-blocking communicator is ready or has an error.
NcclResult Ready(NcclComm comm) {
  NcclResult error = kNcclInProgress;
  while (error == kNcclInProgress) {
    if (const NcclResult result = Nccl().CommGetAsyncError(comm, &error)) return result;
    if (error == kNcclInProgress) std::this_thread::yield();
  }
  return error;
}

// What a rank has: its device's context, a stream, a communicator with everybody.
struct Rank {
  Rank(int own_rank, int all, const NcclUniqueId& id, bool blocking = true)
      : rank(own_rank), ranks(all), current(own_rank) {
    Cuda().StreamCreate(&stream, kCudaStreamNonBlocking);
    NcclConfig config;
    config.blocking = blocking ? 1 : 0;
    made = Nccl().CommInitRankConfig(&comm, ranks, id, rank, &config);
    if (!blocking && made == kNcclInProgress) made = Ready(comm);
  }
  ~Rank() {
    if (aborts) {
      Nccl().CommAbort(comm);
    } else {
      Cuda().StreamSynchronize(stream);
      Nccl().CommDestroy(comm);
    }
    Cuda().StreamSynchronize(stream);
    Cuda().StreamDestroy(stream);
  }
  // The communicator's error, as soon as it has one.
  NcclResult Error() const {
    NcclResult error = kNcclSuccess;
    while (error == kNcclSuccess) {
      Nccl().CommGetAsyncError(comm, &error);
      std::this_thread::yield();
    }
    return error;
  }
  const int rank;
  const int ranks;
  FakeCurrent current;
  CudaStream stream = nullptr;
  NcclComm comm = nullptr;
  NcclResult made = kNcclSuccess;
  bool aborts = false;
};

NcclUniqueId NewId() {
  NcclUniqueId id;
  Nccl().GetUniqueId(&id);
  return id;
}

// Runs body(rank) on all ranks with a communicator.
template <typename Body>
void OnRanks(int ranks, const Body& body, bool blocking = true) {
  const NcclUniqueId id = NewId();
  RunRanks(ranks, [&](int rank) {
    Rank self(rank, ranks, id, blocking);
    body(self);
  });
}

std::string All(const std::vector<std::string>& lines) {
  std::string out;
  for (const std::string& line : lines) out += line + "\n";
  return out;
}
// Empty when nothing is wrong, so that a test prints what is.
std::string Wrongs() { return All(FakeNccl::Complaints()) + All(FakeNccl::Leaks()); }

bool Complained(const std::string& words) {
  const std::string all = All(FakeNccl::Complaints());
  INFO(all);
  return all.find(words) != std::string::npos;
}

// Device memory of a rank, full of values.
template <typename T>
struct Array {
  Array(int device, std::vector<T> values) : size(values.size()) {
    data = static_cast<T*>(FakeCuda::Allocate(device, static_cast<int64_t>(std::max<size_t>(1, size) * sizeof(T))));
    if (size > 0) std::memcpy(data, values.data(), size * sizeof(T));
  }
  ~Array() { FakeCuda::Free(data); }
  std::vector<T> values() const { return std::vector<T>(data, data + size); }
  T* data = nullptr;
  const size_t size;
};

TEST_CASE("fake nccl: every rank sends to every rank, also nothing and to itself") {
  const bool blocking = GENERATE(true, false);
  constexpr int kRanks = 4;
  FakeWorld world(kRanks);
  FakeCuda::Jitter(Seed() | 1);
  std::vector<std::vector<int>> got(kRanks);
  OnRanks(
      kRanks,
      [&](Rank& self) {
        // To rank r go r values: none to rank 0.
        Array<int> from(self.rank, std::vector<int>(kRanks * kRanks, 100 * self.rank));
        for (int i = 0; i < kRanks * kRanks; ++i) from.data[i] += i;
        Array<int> to(self.rank, std::vector<int>(kRanks * self.rank, -1));
        Nccl().GroupStart();
        for (int peer = 0; peer < kRanks; ++peer) {
          Nccl().Send(from.data + kRanks * peer, peer, kNcclInt32, peer, self.comm, self.stream);
          Nccl().Recv(to.data + peer * self.rank, self.rank, kNcclInt32, peer, self.comm, self.stream);
        }
        const NcclResult result = Nccl().GroupEnd();
        if (result == kNcclInProgress) Ready(self.comm);
        Cuda().StreamSynchronize(self.stream);
        got[self.rank] = to.values();
      },
      blocking);
  for (int rank = 0; rank < kRanks; ++rank) {
    std::vector<int> expected;
    for (int peer = 0; peer < kRanks; ++peer) {
      for (int i = 0; i < rank; ++i) expected.push_back(100 * peer + kRanks * rank + i);
    }
    CHECK(got[rank] == expected);
    CHECK(FakeNccl::Groups(rank) == 1);
    CHECK(FakeNccl::Operations(rank).size() == 2 * kRanks);
    CHECK(FakeNccl::Calls(rank, "Send") == kRanks);
  }
  CHECK(Wrongs().empty());
}

TEST_CASE("fake nccl: collectives, out of place and in place") {
  constexpr int kRanks = 3;
  FakeWorld world(kRanks);
  FakeCuda::Jitter(Seed() | 1);
  struct Got {
    std::vector<int> gathered, scattered, reduced, exchanged, in_place;
  };
  std::vector<Got> got(kRanks);
  OnRanks(kRanks, [&](Rank& self) {
    const int r = self.rank;
    Array<int> two(r, {10 * r, 10 * r + 1});
    Array<int> six(r, {r, r + 1, r + 2, r + 3, r + 4, r + 5});
    Array<int> gathered(r, std::vector<int>(6)), scattered(r, {0, 0}), reduced(r, {0, 0}),
        exchanged(r, std::vector<int>(6));
    Nccl().AllGather(two.data, gathered.data, 2, kNcclInt32, self.comm, self.stream);
    Nccl().ReduceScatter(six.data, scattered.data, 2, kNcclInt32, kNcclSum, self.comm, self.stream);
    Nccl().AllReduce(two.data, reduced.data, 2, kNcclInt32, kNcclMax, self.comm, self.stream);
    Nccl().AlltoAll(six.data, exchanged.data, 2, kNcclInt32, self.comm, self.stream);
    Array<int> own(r, std::vector<int>(6));
    own.data[2 * r] = own.data[2 * r + 1] = r + 1;
    Nccl().AllGather(own.data + 2 * r, own.data, 2, kNcclInt32, self.comm, self.stream);
    Nccl().AllReduce(own.data, own.data, 6, kNcclInt32, kNcclSum, self.comm, self.stream);
    Nccl().ReduceScatter(own.data, own.data + 2 * r, 2, kNcclInt32, kNcclSum, self.comm, self.stream);
    Cuda().StreamSynchronize(self.stream);
    got[r] = {gathered.values(),
              scattered.values(),
              reduced.values(),
              exchanged.values(),
              {own.data[2 * r], own.data[2 * r + 1]}};
  });
  for (int r = 0; r < kRanks; ++r) {
    CHECK(got[r].gathered == std::vector<int>{0, 1, 10, 11, 20, 21});
    CHECK(got[r].scattered == std::vector<int>{3 + 6 * r, 6 + 6 * r});
    CHECK(got[r].reduced == std::vector<int>{20, 21});
    CHECK(got[r].exchanged == std::vector<int>{2 * r, 2 * r + 1, 2 * r + 1, 2 * r + 2, 2 * r + 2, 2 * r + 3});
    CHECK(got[r].in_place == std::vector<int>{9 * (r + 1), 9 * (r + 1)});
  }
  CHECK(Wrongs().empty());
}

TEST_CASE("fake nccl: counts that differ end both sides, which are named") {
  FakeWorld world(2);
  std::vector<NcclResult> errors(2);
  OnRanks(2, [&](Rank& self) {
    Array<char> data(self.rank, std::vector<char>(8));
    if (self.rank == 0) Nccl().Send(data.data, 4, kNcclInt8, 1, self.comm, self.stream);
    if (self.rank == 1) Nccl().Recv(data.data, 8, kNcclInt8, 0, self.comm, self.stream);
    errors[self.rank] = self.Error();
    self.aborts = true;
  });
  CHECK(errors == std::vector<NcclResult>{kNcclInvalidUsage, kNcclInvalidUsage});
  CHECK(
      Complained("rank 0 of communicator 0 does Send of 4 elements of type 0 as #0 to rank 1, which does Recv of "
                 "8 elements"));
}

}  // namespace
}  // namespace reshard::testing
