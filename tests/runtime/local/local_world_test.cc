// Ranks as threads: steps made by hand, failures of every kind, and many worlds at once.
#include "reshard/runtime/local_world.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <numeric>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "reshard/runtime/executor.h"
#include "tests/catch.h"

namespace reshard {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

bool Says(const absl::Status& status, const std::string& text) {
  return std::string(status.message()).find(text) != std::string::npos;
}

// "rank 2 did not arrive ..." names rank 2; so does "ranks 0, 2 did not arrive ...", which a busy machine may bring
// about.
bool NamesAsMissing(const absl::Status& status, int64_t rank) {
  const std::string text(status.message());
  const std::string ranks = text.substr(0, text.find(" did not arrive within"));
  return ranks != text && ranks.find(std::to_string(rank)) != std::string::npos;
}

double SecondsSince(steady_clock::time_point start) {
  return std::chrono::duration<double>(steady_clock::now() - start).count();
}

// Rank r of n holds `block` ints for every rank and gets one block from every rank: an all-to-all.
Program AllToAll(int64_t rank, int64_t n, int64_t block) {
  Program program;
  program.rank = rank;
  program.world = n;
  program.signature = Signature({{"block", std::to_string(block)}});
  const int64_t bytes = n * block * 4;
  program.buffers = {{true, {n * block}, bytes, -1, DType::kI32}, {true, {n * block}, bytes, -1, DType::kI32}};
  StepProgram step;
  step.op = Op::kAllToAll;
  step.tensors = {{0, 1, DType::kI32, Op::kExchange, ReduceOp::kSum}};
  const auto block_from = [&](int64_t from, int64_t to) {
    return std::make_shared<const Region>(Region{{{from * block, to * block, block}}});
  };
  for (int64_t peer = 0; peer < n; ++peer) {
    Transfer receive{peer, 0, block_from(rank, peer), block * 4, {}};
    receive.copy = StridedCopy(*receive.region, 4, {1}, {1});
    step.receives.push_back(receive);
    if (peer != rank) step.sends.push_back({peer, 0, block_from(peer, rank), block * 4, {}});
  }
  step.recv_bytes = (n - 1) * block * 4;
  program.steps = {step};
  return program;
}

// Runs `rounds` all-to-alls of a rank and checks every element. `before_round` may fail.
absl::Status ExchangeRounds(Communicator& comm, int rounds, int64_t block,
                            absl::FunctionRef<absl::Status(int)> before_round) {
  const int64_t n = comm.world_size();
  absl::StatusOr<Executor> executor =
      Executor::Create(std::make_shared<const Program>(AllToAll(comm.rank(), n, block)), &comm);
  if (!executor.ok()) return executor.status();
  std::vector<int32_t> source(static_cast<size_t>(n * block));
  std::vector<int32_t> target(source.size());
  for (int round = 0; round < rounds; ++round) {
    const absl::Status ready = before_round(round);
    if (!ready.ok()) return ready;
    // Element i of the block from rank r to rank s in this round.
    const auto value = [&](int64_t r, int64_t s, int64_t i) {
      return static_cast<int32_t>(((round * n + r) * n + s) * block + i);
    };
    for (int64_t s = 0; s < n; ++s) {
      for (int64_t i = 0; i < block; ++i) source[s * block + i] = value(comm.rank(), s, i);
    }
    const absl::StatusOr<ExecuteResult> result =
        executor->Execute(DenseView(static_cast<const void*>(source.data()), DType::kI32, {n * block}),
                          DenseView(static_cast<void*>(target.data()), DType::kI32, {n * block}));
    if (!result.ok()) return result.status();
    if (result->moved.received != (n - 1) * block * 4 || result->moved.copied_local != block * 4) {
      return absl::DataLossError("wrong byte counts");
    }
    for (int64_t r = 0; r < n; ++r) {
      for (int64_t i = 0; i < block; ++i) {
        if (target[r * block + i] != value(r, comm.rank(), i)) {
          return absl::DataLossError("wrong element");
        }
      }
    }
  }
  return absl::OkStatus();
}

absl::Status Ready(int) { return absl::OkStatus(); }

TEST_CASE("ranks exchange again and again") {
  for (int64_t n : {1, 2, 3, 4, 7, 8, 33}) {
    for (int64_t block : {int64_t{1}, int64_t{777}, int64_t{300000} / n}) {
      CAPTURE(n, block);
      LocalWorld world(n);
      const absl::Status status = world.Run([&](Communicator& comm) { return ExchangeRounds(comm, 5, block, Ready); });
      INFO(status);
      REQUIRE(status.ok());
    }
  }
}

TEST_CASE("hundreds of ranks on few cores neither hang nor spin") {
  LocalWorld world(256, {absl::Seconds(60)});
  const absl::Status status = world.Run([&](Communicator& comm) -> absl::Status {
    for (int i = 0; i < 20; ++i) {
      const absl::Status met = comm.Barrier();
      if (!met.ok()) return met;
    }
    return absl::OkStatus();
  });
  REQUIRE(status.ok());
}

TEST_CASE("a world may have any device ids") {
  std::vector<std::atomic<int>> seen(100);
  LocalWorld world(std::vector<int64_t>{70, 3, 12});
  CHECK(world.device_ids() == std::vector<int64_t>{3, 12, 70});
  REQUIRE(world
              .Run([&](Communicator& comm) {
                ++seen[comm.rank()];
                return comm.world_size() == 3 ? comm.Barrier() : absl::InternalError("size");
              })
              .ok());
  CHECK(seen[3] == 1);
  CHECK(seen[12] == 1);
  CHECK(seen[70] == 1);
}

TEST_CASE("a rank that returns an error or throws fails all others, by name") {
  enum class Way { kError, kThrow, kBadAlloc };
  for (Way way : {Way::kError, Way::kThrow, Way::kBadAlloc}) {
    for (int64_t n : {2, 3, 4, 8}) {
      for (int fatal_round : {0, 1, 3}) {
        const int64_t culprit = n - 1 - fatal_round % n;
        CAPTURE(static_cast<int>(way), n, fatal_round, culprit);
        LocalWorld world(n, {absl::Seconds(30)});
        const auto body = [&](Communicator& comm) {
          return ExchangeRounds(comm, 5, 1000, [&](int round) -> absl::Status {
            if (comm.rank() != culprit || round != fatal_round) return absl::OkStatus();
            if (way == Way::kThrow) throw std::runtime_error("the disk is full");
            if (way == Way::kBadAlloc) throw std::bad_alloc();
            return absl::DataLossError("the disk is full");
          });
        };
        const auto start = steady_clock::now();
        const std::vector<absl::Status> statuses = world.RunEach(body);
        CHECK(SecondsSince(start) < 20);  // not by waiting for the timeout
        const std::string name = "rank " + std::to_string(culprit);
        for (int64_t r = 0; r < n; ++r) {
          const absl::Status& status = statuses[r];
          INFO(status);
          if (r == culprit) {
            CHECK(status.code() == (way == Way::kError   ? absl::StatusCode::kDataLoss
                                    : way == Way::kThrow ? absl::StatusCode::kInternal
                                                         : absl::StatusCode::kResourceExhausted));
          } else {
            CHECK(status.code() == absl::StatusCode::kAborted);
            CHECK(Says(status, name + " failed"));
            if (way != Way::kBadAlloc) CHECK(Says(status, "the disk is full"));
          }
        }
        const absl::Status all = world.Run(body);
        INFO(all);
        CHECK(Says(all, name + ": "));
        CHECK(all.code() == statuses[culprit].code());
        // The next run starts afresh.
        CHECK(world.Run([&](Communicator& comm) { return ExchangeRounds(comm, 2, 10, Ready); }).ok());
      }
    }
  }
}

TEST_CASE("a rank that leaves early is named") {
  LocalWorld world(3, {absl::Seconds(30)});
  const auto start = steady_clock::now();
  const std::vector<absl::Status> statuses =
      world.RunEach([&](Communicator& comm) { return ExchangeRounds(comm, comm.rank() == 1 ? 2 : 4, 10, Ready); });
  CHECK(SecondsSince(start) < 20);
  CHECK(statuses[1].ok());
  for (size_t r : {0u, 2u}) {
    CHECK(statuses[r].code() == absl::StatusCode::kUnavailable);
    CHECK(Says(statuses[r], "rank 1 left"));
  }
}

TEST_CASE("a rank that does not come is named when the time is up") {
  LocalWorld world(4, {absl::Seconds(1)});
  std::atomic<int> done{0};
  const auto start = steady_clock::now();
  const std::vector<absl::Status> statuses = world.RunEach([&](Communicator& comm) -> absl::Status {
    if (comm.rank() == 2) {
      while (done < 3) std::this_thread::sleep_for(milliseconds(5));
      // Too late: everybody is gone.
      return comm.Barrier();
    }
    const absl::Status status = comm.Barrier();
    const absl::Status again = comm.Barrier();  // at once from then on
    ++done;
    return again == status ? status : absl::InternalError("another error");
  });
  CHECK(SecondsSince(start) < 10);
  for (const absl::Status& status : statuses) {
    CHECK(status.code() == absl::StatusCode::kDeadlineExceeded);
    INFO(status);
    CHECK(NamesAsMissing(status, 2));
    CHECK(Says(status, "within 1s at a barrier"));
  }
}

TEST_CASE("a late rank inside a step is named, and its memory is safe") {
  LocalWorld world(3, {absl::Seconds(2)});
  std::atomic<int> done{0};
  const std::vector<absl::Status> statuses = world.RunEach([&](Communicator& comm) {
    const absl::Status status = ExchangeRounds(comm, 3, 5000, [&](int round) {
      while (comm.rank() == 0 && round == 1 && done < 2) std::this_thread::sleep_for(milliseconds(5));
      return absl::OkStatus();
    });
    ++done;
    return status;
  });
  for (const absl::Status& status : statuses) {
    INFO(status);
    CHECK(status.code() == absl::StatusCode::kDeadlineExceeded);
    CHECK(NamesAsMissing(status, 0));
  }
}

TEST_CASE("ranks agree, or learn who brought what, and go on") {
  LocalWorld world(4, {absl::Seconds(30)});
  const std::vector<absl::Status> statuses = world.RunEach([&](Communicator& comm) -> absl::Status {
    const Signature ours({{"source", "[<X>8]"}, {"target", "[8]"}});
    Signature::Field target{"target", "[8]"};
    if (comm.rank() == 2) target.value = "[<X>8]";
    const Signature other({{"source", "[<X>8]"}, target});
    const absl::Status first = comm.Agree(absl::OkStatus(), ours);
    if (!first.ok()) return first;
    const absl::Status second = comm.Agree(absl::OkStatus(), other);
    if (second.code() != absl::StatusCode::kFailedPrecondition) return absl::InternalError("not noticed");
    if (!Says(second, "ranks disagree on target: ranks 0, 1, 3 have [8]; rank 2 has another target: [<X>8]")) {
      return second;
    }
    const absl::Status own = comm.rank() == 3 ? absl::InvalidArgumentError("no such tensor") : absl::OkStatus();
    const absl::Status third = comm.Agree(own, ours);
    if (comm.rank() == 3 ? third != own : !(absl::IsAborted(third) && Says(third, "rank 3 failed: no such tensor"))) {
      return absl::InternalError("wrong outcome");
    }
    return comm.Agree(absl::OkStatus(), ours);
  });
  for (const absl::Status& status : statuses) {
    INFO(status);
    CHECK(status.ok());
  }
}

TEST_CASE("programs of different plans do not read beyond a fragment") {
  LocalWorld world(2, {absl::Seconds(30)});
  absl::Status later;
  const std::vector<absl::Status> statuses = world.RunEach([&](Communicator& comm) -> absl::Status {
    const int64_t block = comm.rank() == 0 ? 1000 : 10;
    auto program = std::make_shared<const Program>(AllToAll(comm.rank(), 2, block));
    absl::StatusOr<Executor> executor = Executor::Create(program, &comm, Agreement::kOff);
    if (!executor.ok()) return executor.status();
    std::vector<int32_t> source(static_cast<size_t>(2 * block));
    std::vector<int32_t> target(source.size());
    const ConstTensorView from = DenseView(static_cast<const void*>(source.data()), DType::kI32, {2 * block});
    const TensorView to = DenseView(static_cast<void*>(target.data()), DType::kI32, {2 * block});
    const absl::Status status = executor->Execute(from, to).status();
    if (comm.rank() == 0) later = executor->Execute(from, to).status();
    return status;
  });
  CHECK(later.code() == absl::StatusCode::kFailedPrecondition);
  CHECK(Says(later, "lost earlier"));
  CHECK(statuses[0].code() == absl::StatusCode::kFailedPrecondition);
  CHECK(Says(statuses[0], "rank 1 has another fragment than rank 0 expects"));
}

TEST_CASE("an executor checks the tensors it is given, and all ranks hear of it") {
  LocalWorld world(2, {absl::Seconds(30)});
  const absl::Status status = world.Run([&](Communicator& comm) -> absl::Status {
    auto program = std::make_shared<const Program>(AllToAll(comm.rank(), 2, 3));
    absl::StatusOr<Executor> executor = Executor::Create(program, &comm);
    if (!executor.ok()) return executor.status();
    std::vector<int32_t> memory(24);
    const ConstTensorView source = DenseView(static_cast<const void*>(memory.data()), DType::kI32, {6});
    const TensorView target = DenseView(static_cast<void*>(memory.data() + 12), DType::kI32, {6});
    struct Case {
      ConstTensorView source;
      TensorView target;
      std::string says;
    };
    ConstTensorView float_source = source;
    float_source.dtype = DType::kF32;
    TensorView short_target = target;
    short_target.shape = {5};
    TensorView folded = target;
    folded.strides = {0};
    TensorView null = target;
    null.data = nullptr;
    const TensorView same = DenseView(static_cast<void*>(memory.data() + 5), DType::kI32, {6});
    for (const Case& c : {Case{float_source, target, "f32"}, Case{source, short_target, "[5]"},
                          Case{source, folded, "overlap"}, Case{source, null, "null"}, Case{source, same, "share"}}) {
      // Rank 1 makes the mistake.
      const absl::StatusOr<ExecuteResult> result =
          comm.rank() == 1 ? executor->Execute(c.source, c.target) : executor->Execute(source, target);
      const auto code = comm.rank() == 1 ? absl::StatusCode::kInvalidArgument : absl::StatusCode::kAborted;
      if (result.status().code() != code || !Says(result.status(), c.says)) return result.status();
    }
    return executor->Execute(source, target).status();
  });
  INFO(status);
  CHECK(status.ok());
}

TEST_CASE("strided fragments are read and written in place") {
  LocalWorld world(2);
  const absl::Status status = world.Run([&](Communicator& comm) -> absl::Status {
    auto program = std::make_shared<const Program>(AllToAll(comm.rank(), 2, 3));
    absl::StatusOr<Executor> executor = Executor::Create(program, &comm);
    if (!executor.ok()) return executor.status();
    std::vector<int32_t> source(12, -1);
    std::vector<int32_t> target(18, -1);
    for (int i = 0; i < 6; ++i) source[2 * i] = static_cast<int32_t>(comm.rank() * 6 + i);
    const absl::StatusOr<ExecuteResult> result =
        executor->Execute({source.data(), DType::kI32, {6}, {2}}, {target.data(), DType::kI32, {6}, {3}});
    if (!result.ok()) return result.status();
    for (int i = 0; i < 18; ++i) {
      const int64_t block = i / 3 / 3;
      const int64_t expected = i % 3 != 0 ? -1 : block * 6 + comm.rank() * 3 + i / 3 % 3;
      if (target[i] != expected) return absl::DataLossError("wrong element");
    }
    return absl::OkStatus();
  });
  INFO(status);
  CHECK(status.ok());
}

TEST_CASE("many worlds run at once") {
  std::vector<std::thread> threads;
  std::atomic<int> failures{0};
  for (int i = 0; i < 6; ++i) {
    threads.emplace_back([&, i] {
      LocalWorld world(2 + i % 3);
      for (int run = 0; run < 5; ++run) {
        if (!world.Run([&](Communicator& comm) { return ExchangeRounds(comm, 3, 64, Ready); }).ok()) ++failures;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(failures == 0);
}

}  // namespace
}  // namespace reshard
