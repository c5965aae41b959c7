// FakeNccl: what is right gives the right values.
#include <string>
#include <vector>

#include "runtime/host/half.h"
#include "tests/catch.h"
#include "tests/fakes/fake_rank.h"

namespace reshard::testing {
namespace {

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
  CHECK(Wrongs() == "");
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
  CHECK(Wrongs() == "");
}

template <typename T>
std::vector<T> Reduced(NcclDataType type, NcclRedOp op, const std::vector<std::vector<T>>& inputs) {
  const int ranks = static_cast<int>(inputs.size());
  std::vector<std::vector<T>> out(ranks);
  OnRanks(ranks, [&](Rank& self) {
    Array<T> data(self.rank, inputs[self.rank]);
    Nccl().AllReduce(data.data, data.data, data.size, type, op, self.comm, self.stream);
    Cuda().StreamSynchronize(self.stream);
    out[self.rank] = data.values();
  });
  for (int rank = 1; rank < ranks; ++rank) CHECK(out[rank] == out[0]);
  return out[0];
}

TEST_CASE("fake nccl: reductions of all types") {
  FakeWorld world(3);
  using F = std::vector<float>;
  CHECK(Reduced<float>(kNcclFloat32, kNcclSum, {F{1, 2}, F{3, 4}, F{0.5f, -1}}) == F{4.5f, 5});
  CHECK(Reduced<float>(kNcclFloat32, kNcclAvg, {F{1, 2}, F{3, 4}, F{2, -3}}) == F{2, 1});
  using D = std::vector<double>;
  CHECK(Reduced<double>(kNcclFloat64, kNcclProd, {D{1.5, 2}, D{3, 4}, D{2, -1}}) == D{9, -8});
  using B = std::vector<int8_t>;
  CHECK(Reduced<int8_t>(kNcclInt8, kNcclSum, {B{100, -1}, B{100, 1}, B{1, 0}}) == B{-55, 0});
  CHECK(Reduced<int8_t>(kNcclInt8, kNcclMin, {B{100, -1}, B{-100, 1}, B{1, 0}}) == B{-100, -1});
  using U = std::vector<uint8_t>;
  CHECK(Reduced<uint8_t>(kNcclUint8, kNcclMax, {U{200, 1}, U{100, 2}, U{1, 3}}) == U{200, 3});
  using I = std::vector<int32_t>;
  CHECK(Reduced<int32_t>(kNcclInt32, kNcclAvg, {I{-9, 9}, I{0, 0}, I{0, 1}}) == I{-3, 3});
  using V = std::vector<uint32_t>;
  CHECK(Reduced<uint32_t>(kNcclUint32, kNcclProd, {V{1u << 31}, V{2}, V{1}}) == V{0});
  using L = std::vector<int64_t>;
  CHECK(Reduced<int64_t>(kNcclInt64, kNcclSum, {L{int64_t{1} << 40}, L{-1}, L{0}}) == L{(int64_t{1} << 40) - 1});
  using M = std::vector<uint64_t>;
  CHECK(Reduced<uint64_t>(kNcclUint64, kNcclMax, {M{~uint64_t{0}}, M{1}, M{0}}) == M{~uint64_t{0}});
  // 2048 + 1 is not an f16, but 2048 + 1 + 1 is: rounded once, at the end.
  using H = std::vector<uint16_t>;
  const auto half = [](float value) { return host::FloatToHalf(value); };
  CHECK(Reduced<uint16_t>(kNcclFloat16, kNcclSum, {H{half(2048)}, H{half(1)}, H{half(1)}}) == H{half(2050)});
  const auto brain = [](float value) { return host::FloatToBFloat16(value); };
  CHECK(Reduced<uint16_t>(kNcclBfloat16, kNcclSum, {H{brain(256)}, H{brain(1)}, H{brain(1)}}) == H{brain(258)});
  CHECK(Wrongs() == "");
}

TEST_CASE("fake nccl: CommSplit by colors and keys") {
  const bool blocking = GENERATE(true, false);
  constexpr int kRanks = 5;
  FakeWorld world(kRanks);
  std::vector<std::vector<int>> got(kRanks);
  std::vector<int> null(kRanks);
  OnRanks(
      kRanks,
      [&](Rank& self) {
        // Ranks 0, 2 and 1, 3, both in reverse; rank 4 is in none.
        const int color = self.rank == 4 ? kNcclSplitNoColor : self.rank % 2;
        NcclComm part = self.comm;
        const NcclResult result = Nccl().CommSplit(self.comm, color, -self.rank, &part, nullptr);
        if (result == kNcclInProgress) {
          null[self.rank] = part == nullptr;  // until it is ready
          Ready(self.comm);
        }
        if (part == nullptr) return;
        Array<int> own(self.rank, {self.rank});
        Array<int> all(self.rank, {-1, -1});
        if (Nccl().AllGather(own.data, all.data, 1, kNcclInt32, part, self.stream) == kNcclInProgress) Ready(part);
        Cuda().StreamSynchronize(self.stream);
        got[self.rank] = all.values();
        Nccl().CommDestroy(part);
      },
      blocking);
  CHECK(got[0] == std::vector<int>{2, 0});
  CHECK(got[1] == std::vector<int>{3, 1});
  CHECK(got[2] == got[0]);
  CHECK(got[3] == got[1]);
  CHECK(got[4].empty());
  if (!blocking) CHECK(null == std::vector<int>(kRanks, 1));
  CHECK(FakeNccl::Operations(0).at(0).ranks == 2);
  CHECK(Wrongs() == "");
}

TEST_CASE("fake nccl: a captured exchange, launched again and again") {
  FakeWorld world(2);
  FakeCuda::Jitter(Seed() | 1);
  std::vector<std::vector<int>> got(2);
  OnRanks(2, [&](Rank& self) {
    const int peer = 1 - self.rank;
    Array<int> from(self.rank, {self.rank});
    Array<int> to(self.rank, {-1});
    Cuda().StreamBeginCapture(self.stream, cuda::kCudaCaptureThreadLocal);
    Nccl().GroupStart();
    Nccl().Send(from.data, 1, kNcclInt32, peer, self.comm, self.stream);
    Nccl().Recv(to.data, 1, kNcclInt32, peer, self.comm, self.stream);
    Nccl().GroupEnd();
    // What came is what goes next time.
    Cuda().MemcpyAsync(reinterpret_cast<cuda::CudaPointer>(from.data), reinterpret_cast<cuda::CudaPointer>(to.data), 4,
                       self.stream);
    Nccl().AllReduce(from.data, from.data, 1, kNcclInt32, kNcclSum, self.comm, self.stream);
    cuda::CudaGraph graph = nullptr;
    cuda::CudaGraphExec exec = nullptr;
    Cuda().StreamEndCapture(self.stream, &graph);
    Cuda().GraphInstantiateWithFlags(&exec, graph, 0);
    if (FakeNccl::Groups(self.rank) != 0) return;  // nothing ran yet
    for (int i = 0; i < 3; ++i) {
      Cuda().GraphLaunch(exec, self.stream);
      Cuda().StreamSynchronize(self.stream);
      got[self.rank].push_back(to.data[0]);
      got[self.rank].push_back(from.data[0]);
    }
    Cuda().GraphExecDestroy(exec);
    Cuda().GraphDestroy(graph);
  });
  CHECK(got[0] == std::vector<int>{1, 1, 1, 2, 2, 4});
  CHECK(got[1] == std::vector<int>{0, 1, 1, 2, 2, 4});
  CHECK(FakeNccl::Groups(0) == 6);
  CHECK(Wrongs() == "");
}

TEST_CASE("fake nccl: one communicator's groups run in the order of issue, on whatever streams") {
  FakeWorld world(2);
  FakeCuda::Jitter(Seed() | 1);
  std::vector<int> got(2, -1);
  OnRanks(2, [&](Rank& self) {
    cuda::CudaStream second = nullptr;
    Cuda().StreamCreate(&second, cuda::kCudaStreamNonBlocking);
    Array<int> data(self.rank, {1, 2, 0, 0});
    for (int i = 0; i < 2; ++i) {
      cuda::CudaStream stream = i == self.rank ? second : self.stream;
      if (self.rank == 0) Nccl().Send(data.data + i, 1, kNcclInt32, 1, self.comm, stream);
      if (self.rank == 1) Nccl().Recv(data.data + 2 + i, 1, kNcclInt32, 0, self.comm, stream);
    }
    // A group on both streams: starts when both have come to it.
    Nccl().GroupStart();
    if (self.rank == 0) {
      Nccl().Recv(data.data + 2, 1, kNcclInt32, 1, self.comm, self.stream);
      Nccl().Recv(data.data + 3, 1, kNcclInt32, 1, self.comm, second);
    } else {
      Nccl().Send(data.data + 2, 1, kNcclInt32, 0, self.comm, self.stream);
      Nccl().Send(data.data + 3, 1, kNcclInt32, 0, self.comm, self.stream);
    }
    Nccl().GroupEnd();
    Cuda().StreamSynchronize(second);
    Cuda().StreamSynchronize(self.stream);
    got[self.rank] = 10 * data.data[2] + data.data[3];
    Cuda().StreamDestroy(second);
  });
  CHECK(got == std::vector<int>{12, 12});
  CHECK(Wrongs() == "");
}

TEST_CASE("fake nccl: a group waits for the groups before it, also on another stream") {
  FakeWorld world(1);
  OnRanks(1, [&](Rank& self) {
    cuda::CudaStream second = nullptr;
    Cuda().StreamCreate(&second, cuda::kCudaStreamNonBlocking);
    Gate gate;
    gate.Shut(self.stream);
    Array<int> data(0, {1});
    Nccl().AllReduce(data.data, data.data, 1, kNcclInt32, kNcclSum, self.comm, self.stream);
    Nccl().AllReduce(data.data, data.data, 1, kNcclInt32, kNcclSum, self.comm, second);
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    CHECK(Cuda().StreamQuery(second) == cuda::kCudaNotReady);
    gate.Open();
    CHECK(Cuda().StreamSynchronize(second) == cuda::kCudaSuccess);
    Cuda().StreamDestroy(second);
  });
  CHECK(Wrongs() == "");
}

TEST_CASE("fake nccl: without AlltoAll where the library is too old") {
  FakeWorld world(1, {.all_to_all = false});
  CHECK(Nccl().AlltoAll == nullptr);
  CHECK(Nccl().AllGather != nullptr);
}

}  // namespace
}  // namespace reshard::testing
