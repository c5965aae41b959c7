// Ranks of one host: every kind of plan through shared memory, threads and processes, and what happens to those that
// wait for one that dies, sleeps, fails or runs another plan.
#include "runtime/shared/shared_memory_transport.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <deque>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "runtime/packed/step_copies.h"
#include "runtime/shared/waiter.h"
#include "tests/catch.h"
#include "tests/runtime/cases.h"
#include "tests/runtime/packed/check_rank.h"
#include "tests/runtime/shared/shared_memory_world.h"
#include "tests/sanitized.h"

namespace reshard {
namespace {

using testing::Case;
using testing::CheckAllOk;
using testing::CheckRank;
using testing::DevicesOf;
using testing::kMoves;
using testing::kReductions;
using testing::PlanOf;
using testing::RunSharedMemoryProcesses;
using testing::RunSharedMemoryThreads;
using testing::SharedMemoryCommunicator;

void CheckPlan(const Plan& plan) {
  const absl::StatusOr<self_test::LogicalContent> content = self_test::LogicalContent::Create(plan, 1);
  REQUIRE(content.ok());
  for (const bool strided : {false, true}) {
    CheckAllOk(RunSharedMemoryThreads(
        DevicesOf(plan), [&](SharedMemoryCommunicator& comm) { return CheckRank(plan, *content, comm, strided); }));
  }
}

TEST_CASE("what is packed before ranks agree arrives once they do, and is gone if they do not") {
  const uint64_t seed = testing::Seed();
  INFO("RESHARD_TEST_SEED=" << seed);
  // Packed for each, once for all, more than fits, and combined; between meetings of the same ranks.
  const Case cases[] = {{"{X:3}", "[<X>30, 7]", "[30, <X>7]"},         {"{X:3}", "[<X>30, 7]", "[30, 7]"},
                        {"{X:3}", "[<X>1100, 901]", "[1100, <X>901]"}, {"{X:3}", "[<X>700, 901]", "[700, 901]"},
                        {"{X:3}", "[701, 91] sum<X>", "[701, <X>91]"}, {"{X:3}", "[701, 91] sum<X>", "[701, 91]"},
                        {"{X:3}", "[7, 91] sum<X>", "[7, 91]"},        {"{X:3}", "[2801, 391] sum<X>", "[2801, 391]"}};
  std::vector<Plan> plans;
  std::vector<self_test::LogicalContent> contents;
  for (const Case& c : cases) {
    const absl::StatusOr<Plan> plan = PlanOf(c, DType::kF32);
    REQUIRE(plan.ok());
    plans.push_back(*plan);
    contents.push_back(self_test::LogicalContent::Create(*plan, 1).value());
  }
  CheckAllOk(RunSharedMemoryThreads({0, 1, 2}, [&](SharedMemoryCommunicator& comm) -> absl::Status {
    std::mt19937_64 random(seed);  // the same on all
    for (int round = 0; round < (testing::kSanitized ? 50 : 200); ++round) {
      const size_t k = random() % plans.size();
      const bool strided = random() % 2 == 0;
      const uint64_t refusing = random() % 6;
      comm.Refuse(static_cast<uint64_t>(comm.rank()) == refusing);
      const absl::Status status = CheckRank(plans[k], contents[k], comm, strided, Agreement::kEveryCall);
      if (refusing < 3 ? !absl::IsAborted(status) : !status.ok()) {
        return absl::InternalError(absl::StrCat("round ", round, ", case ", k, ": ", status.ToString()));
      }
    }
    return absl::OkStatus();
  }));
}

TEST_CASE("ranks that share memory move every case element by element") {
  testing::ForEachPlan(kMoves, {DType::kI8, DType::kF32, DType::kC128}, CheckPlan);
}

TEST_CASE("ranks that share memory reduce every case") {
  testing::ForEachPlan(kReductions, {DType::kI32, DType::kBF16, DType::kF64}, CheckPlan);
}

// Many slots a ring, cut within rows and between them.
const Case kLarge[] = {
    {"{X:3}", "[<X>1100, 901]", "[1100, <X>901]"},  {"{X:2}", "[<X>700, 901]", "[700, 901]"},
    {"{X:4}", "[<X>90001, 3]", "[90001, <X>3]"},    {"{X:3}", "[701, 901] sum<X>", "[701, <X>901]"},
    {"{X:4}", "[701, 901] sum<X>", "[701, 901]"},   {"{X:4}", "[<2,~X>1601, 303]", "[1601, <X>303]"},
    {"{X:2}", "[3001, 901] sum<X>", "[3001, 901]"}, {"{X:2,Y:2}", "[<X>1402, 901] sum<Y>", "[<X>1402, 901]"},
};

TEST_CASE("what does not fit the slots goes through them in turns") {
  testing::ForEachPlan(kLarge, {DType::kBF16, DType::kF32}, CheckPlan);
}

TEST_CASE("processes find each other and move the same") {
  for (const Case& c : kLarge) {
    CAPTURE(c.mesh, c.from, c.to);
    const absl::StatusOr<Plan> plan = PlanOf(c, DType::kF32);
    REQUIRE(plan.ok());
    const absl::StatusOr<self_test::LogicalContent> content = self_test::LogicalContent::Create(*plan, 1);
    REQUIRE(content.ok());
    CheckAllOk(
        RunSharedMemoryProcesses(static_cast<int64_t>(DevicesOf(*plan).size()), [&](SharedMemoryCommunicator& comm) {
          absl::Status status = CheckRank(*plan, *content, comm, false);
          for (int k = 0; k < (testing::kSanitized ? 6 : 20) && status.ok(); ++k) {
            status = CheckRank(*plan, *content, comm, k % 2 == 0);
          }
          return status;
        }));
  }
}

TEST_CASE("what was packed once for two stays until the slower one has read it") {
  // Rank 1 is the first that rank 0 sends to: the slots of its ring are those that both read.
  constexpr int64_t kBytes = 750000;
  const StridedCopy whole({{{0, 0, kBytes}}}, 1, {1}, {1});
  const auto expect = [&](const std::vector<char>& got, char value) {
    const bool all = std::all_of(got.begin(), got.end(), [&](char c) { return c == value; });
    return all ? absl::OkStatus() : absl::DataLossError("other bytes than were sent");
  };
  CheckAllOk(RunSharedMemoryThreads({0, 1, 2}, [&](SharedMemoryCommunicator& comm) -> absl::Status {
    MoveStats stats;
    packed::Stopwatch stopwatch;
    const auto move = [&](const std::vector<packed::MessagePart>& sends,
                          const std::vector<packed::MessagePart>& receives) {
      return comm.transport().Move(
          sends, receives, CopyMode::kCached, [](int) {}, &stats, &stopwatch);
    };
    std::vector<char> first(kBytes, comm.rank() == 0 ? 'a' : '.');
    std::vector<char> second(kBytes, comm.rank() == 0 ? 'b' : '.');
    absl::Status status;
    if (comm.rank() == 0) {
      status = move({{1, first.data(), &whole, kBytes, 0}, {2, first.data(), &whole, kBytes, 0}}, {});
      return status.ok() ? move({{1, second.data(), &whole, kBytes, 0}}, {}) : status;
    }
    if (comm.rank() == 2) std::this_thread::sleep_for(std::chrono::milliseconds(300));
    status = move({}, {{0, first.data(), &whole, kBytes, 0}});
    if (status.ok()) status = expect(first, 'a');
    if (status.ok() && comm.rank() == 1) status = move({}, {{0, second.data(), &whole, kBytes, 0}});
    return status.ok() && comm.rank() == 1 ? expect(second, 'b') : status;
  }));
}

// What a rank has in one operation in which all combine for all: any number of pieces of any lengths, chosen by who
// combines them.
class ForAll {
 public:
  // lengths[m] are those of the pieces that rank m combines. The same on all ranks.
  ForAll(int64_t rank, std::vector<std::vector<int64_t>> lengths, int64_t salt)
      : rank_(rank), lengths_(std::move(lengths)), salt_(salt) {
    for (size_t m = 0; m < lengths_.size(); ++m) {
      for (size_t k = 0; k < lengths_[m].size(); ++k) {
        std::vector<char>& own = values_.emplace_back(static_cast<size_t>(lengths_[m][k]));
        for (size_t i = 0; i < own.size(); ++i) own[i] = Value(rank_, m, k, i);
        std::vector<char>& out = outs_.emplace_back(own.size(), '.');
        const auto bytes = static_cast<int64_t>(own.size());
        const StridedCopy* const whole = copies_.Bytes(0, 0, bytes);
        const auto peer = static_cast<int64_t>(m);
        if (peer == rank_) own_.push_back(&own);
        if (peer != rank_) sends.push_back({peer, own.data(), whole, bytes, 0});
        (peer == rank_ ? results : takes).push_back({peer, out.data(), whole, bytes, 0});
      }
      if (static_cast<int64_t>(m) != rank_) senders.push_back(static_cast<int64_t>(m));
    }
  }
  void Combine(size_t piece, int64_t begin, int64_t end, absl::Span<const char* const> from, char* to) const {
    for (int64_t i = begin; i < end; ++i) {
      char value = (*own_[piece])[i];
      for (const char* const of : from) value = static_cast<char>(value + of[i - begin]);
      to[i - begin] = value;
    }
  }
  absl::Status Check() const {
    auto out = outs_.begin();
    for (size_t m = 0; m < lengths_.size(); ++m) {
      for (size_t k = 0; k < lengths_[m].size(); ++k, ++out) {
        for (size_t i = 0; i < out->size(); ++i) {
          char sum = 0;
          for (size_t r = 0; r < lengths_.size(); ++r) {
            sum = static_cast<char>(sum + Value(static_cast<int64_t>(r), m, k, i));
          }
          if ((*out)[i] != sum) return absl::DataLossError(absl::StrCat("byte ", i, " of piece ", k, " of rank ", m));
        }
      }
    }
    return absl::OkStatus();
  }

  std::vector<packed::MessagePart> sends;
  std::vector<int64_t> senders;
  std::vector<packed::MessagePart> results;
  std::vector<packed::MessagePart> takes;

 private:
  char Value(int64_t rank, size_t m, size_t k, size_t i) const {
    return static_cast<char>(salt_ + rank * 31 + static_cast<int64_t>(m * 7 + k * 3 + i * 5 + i / 257));
  }
  const int64_t rank_;
  const std::vector<std::vector<int64_t>> lengths_;
  const int64_t salt_;
  packed::StepCopies copies_;
  std::deque<std::vector<char>> values_;
  std::deque<std::vector<char>> outs_;
  std::vector<const std::vector<char>*> own_;  // of each piece that this rank combines
};

absl::Status CombineForAll(SharedMemoryCommunicator& comm, const ForAll& all, CopyMode mode) {
  MoveStats stats;
  packed::Stopwatch stopwatch;
  const auto combine = [&](auto... what) { all.Combine(what...); };
  return comm.transport().CombineForAll(all.sends, all.senders, all.results, combine, all.takes, mode, &stats,
                                        &stopwatch);
}

TEST_CASE("what ranks combine for all comes to all, however uneven their parts") {
  const uint64_t seed = testing::Seed();
  INFO("RESHARD_TEST_SEED=" << seed);
  const int64_t ranks = GENERATE(2, 3, 5);
  std::vector<int64_t> all;
  for (int64_t r = 0; r < ranks; ++r) all.push_back(r);
  CheckAllOk(RunSharedMemoryThreads(all, [&](SharedMemoryCommunicator& comm) -> absl::Status {
    std::mt19937_64 random(seed);  // the same on all
    for (int64_t round = 0; round < (testing::kSanitized ? 12 : 40); ++round) {
      std::vector<std::vector<int64_t>> lengths(static_cast<size_t>(ranks));
      for (std::vector<int64_t>& of : lengths) {
        // Nothing, many small ones, or some that take several slots.
        const uint64_t kind = random() % 3;
        const uint64_t count = kind == 0 ? 0 : kind == 1 ? random() % 300 : random() % 3;
        for (uint64_t k = 0; k < count; ++k) {
          of.push_back(1 + static_cast<int64_t>(random() % (kind == 1 ? 700 : 800000)));
        }
      }
      const uint64_t ahead = random() % static_cast<uint64_t>(2 * ranks);  // of one rank, or of none
      const CopyMode mode = random() % 2 == 0 ? CopyMode::kCached : CopyMode::kStreaming;
      const ForAll mine(comm.rank(), std::move(lengths), round);
      const auto tag = static_cast<uint64_t>(round);
      if (ahead == static_cast<uint64_t>(comm.rank())) comm.transport().Prepack(tag, mine.sends, /*for_all=*/true);
      comm.transport().SetTag(tag);
      absl::Status status = CombineForAll(comm, mine, mode);
      if (status.ok()) status = mine.Check();
      if (!status.ok()) return absl::InternalError(absl::StrCat("round ", round, ": ", status.ToString()));
    }
    return absl::OkStatus();
  }));
}

TEST_CASE("one that dies or stays while it combines for all is told by those that wait") {
  const bool dies = GENERATE(true, false);
  const std::vector<std::vector<int64_t>> lengths(3, {3000000});
  // How many of those that wait have an answer: whoever stays, stays until all have.
  void* const shared =
      mmap(nullptr, sizeof(std::atomic<int>), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  REQUIRE(shared != MAP_FAILED);
  auto* const answered = new (shared) std::atomic<int>(0);
  const auto stay = [answered] {
    while (answered->load() < 2) usleep(1000);
  };
  const std::vector<absl::Status> statuses = RunSharedMemoryProcesses(
      3,
      [&](SharedMemoryCommunicator& comm) -> absl::Status {
        const ForAll mine(comm.rank(), lengths, 0);
        int blocks = 0;
        MoveStats stats;
        packed::Stopwatch stopwatch;
        const auto combine = [&](auto... what) {
          if (comm.rank() == 1 && ++blocks == 20) {
            if (dies) raise(SIGKILL);
            stay();
          }
          mine.Combine(what...);
        };
        absl::Status status = comm.transport().CombineForAll(mine.sends, mine.senders, mine.results, combine,
                                                             mine.takes, CopyMode::kCached, &stats, &stopwatch);
        if (!dies && comm.rank() != 1) {
          ++*answered;
          stay();  // not gone before the other one's deadline
        }
        return status;
      },
      dies ? absl::Seconds(20) : absl::Milliseconds(500));
  // A rank may run dry of what rank 1 sent and wait for the other one alone, which waits for rank 1 (nobody can be
  // asked here). They cannot both wait for each other alone.
  int64_t told_of_rank_1 = 0;
  for (const size_t rank : {0, 2}) {
    INFO(statuses[rank]);
    CHECK(statuses[rank].code() == (dies ? absl::StatusCode::kUnavailable : absl::StatusCode::kDeadlineExceeded));
    const auto says = [&](absl::string_view what) {
      return statuses[rank].message().find(what) != absl::string_view::npos;
    };
    const bool of_rank_1 = says("rank 1") || (!dies && says("several ranks"));
    CHECK((of_rank_1 || says(rank == 0 ? "rank 2" : "rank 0")));
    told_of_rank_1 += of_rank_1 ? 1 : 0;
  }
  CHECK(told_of_rank_1 > 0);
  munmap(shared, sizeof(std::atomic<int>));
}

TEST_CASE("records of any length are gathered, again and again") {
  CheckAllOk(RunSharedMemoryThreads({0, 1, 2, 3, 4}, [](SharedMemoryCommunicator& comm) -> absl::Status {
    for (const int64_t bytes : {int64_t{1}, int64_t{64}, shared::kMailboxBytes, shared::kMailboxBytes * 3 + 5}) {
      for (int round = 0; round < 200; ++round) {
        std::vector<char> records(static_cast<size_t>(5 * bytes));
        const auto value = [&](int64_t rank, int64_t at) { return static_cast<char>(rank * 50 + at + round); };
        for (int64_t at = 0; at < bytes; ++at) {
          records[comm.rank() * bytes + at] = value(comm.rank(), at);
        }
        const absl::Status gathered = comm.transport().AllGather(records.data(), bytes);
        if (!gathered.ok()) return gathered;
        for (int64_t k = 0; k < 5 * bytes; ++k) {
          if (records[k] != value(k / bytes, k % bytes)) return absl::DataLossError("wrong byte");
        }
      }
    }
    return absl::OkStatus();
  }));
}

// Rank 1 does something else while the others execute this plan.
absl::StatusOr<Plan> Gather() { return PlanOf({"{X:3}", "[<X>3000, 100]", "[3000, 100]"}); }

absl::Status Execute(const Plan& plan, SharedMemoryCommunicator& comm) {
  const absl::StatusOr<self_test::LogicalContent> content = self_test::LogicalContent::Create(plan, 1);
  return content.ok() ? CheckRank(plan, *content, comm, false) : content.status();
}

TEST_CASE("a process that is killed is missed by all, long before the deadline") {
  const Plan plan = Gather().value();
  std::vector<shared::SocketName> names;
  const std::vector<absl::Status> statuses = RunSharedMemoryProcesses(
      3,
      [&](SharedMemoryCommunicator& comm) -> absl::Status {
        absl::Status status = Execute(plan, comm);
        if (comm.rank() == 1) raise(SIGKILL);
        return status.ok() ? Execute(plan, comm) : status;
      },
      absl::Seconds(20), &names);
  CHECK(absl::IsUnknown(statuses[1]));
  for (const size_t rank : {0, 2}) {
    INFO(statuses[rank]);
    CHECK(absl::IsUnavailable(statuses[rank]));
    CHECK(statuses[rank].message().find("rank 1 is gone") != absl::string_view::npos);
  }
  // Nothing of them is left: under their names nobody can be reached.
  shared::Bootstrap late = shared::Bootstrap::Listen(3).value();
  REQUIRE(late.Offer(names).ok());
  CHECK_FALSE(late.TakeSegment());
}

TEST_CASE("one that has own_results all it owes may end while the others wait for somebody else") {
  constexpr int64_t kBytes = 4000;
  const StridedCopy whole({{{0, 0, kBytes}}}, 1, {1}, {1});
  CheckAllOk(RunSharedMemoryThreads({0, 1, 2}, [&](SharedMemoryCommunicator& comm) -> absl::Status {
    MoveStats stats;
    packed::Stopwatch stopwatch;
    std::vector<char> mine(kBytes, static_cast<char>(comm.rank()));
    const packed::MessagePart piece{0, mine.data(), &whole, kBytes, 0};
    if (comm.rank() > 0) {
      if (comm.rank() == 2) std::this_thread::sleep_for(std::chrono::milliseconds(300));
      const absl::Status status = comm.transport().Combine(
          {piece}, {}, {}, [](auto&&...) {}, &stats, &stopwatch);
      comm.transport().Leave();
      return status;
    }
    int combined = 0;
    const auto combine = [&](size_t, int64_t, int64_t, absl::Span<const char* const> from) {
      if (from[0][0] == 1 && from[1][0] == 2) ++combined;
    };
    const absl::Status status = comm.transport().Combine({}, {1, 2}, {kBytes}, combine, &stats, &stopwatch);
    return combined == 1 || !status.ok() ? status : absl::DataLossError("not combined");
  }));
}

TEST_CASE("what came just before its sender ended is looked for once more") {
  std::atomic<shared::SharedMemoryTransport*> sender{nullptr};
  std::atomic<bool> done{false};
  CheckAllOk(RunSharedMemoryThreads({0, 1}, [&](SharedMemoryCommunicator& comm) -> absl::Status {
    if (comm.rank() == 1) {
      sender = &comm.transport();
      while (!done.load()) std::this_thread::yield();
      return absl::OkStatus();
    }
    while (sender.load() == nullptr) std::this_thread::yield();
    // Every round finds nothing; the sender ends after the one that Pause is called for.
    shared::Waiter waiter(comm.transport().awaited());
    const auto begin = std::chrono::steady_clock::now();
    absl::Status status;
    while (status.ok() && std::chrono::steady_clock::now() - begin < std::chrono::milliseconds(100)) {
      status = waiter.Pause([](size_t) { return true; });
    }
    sender.load()->Leave();
    if (status.ok()) status = waiter.Pause([](size_t) { return true; });
    const absl::Status second = waiter.Pause([](size_t) { return true; });
    done = true;
    return absl::IsUnavailable(second) ? status : absl::InternalError("it is waited for on and on");
  }));
}

TEST_CASE("one whose children keep its connections open is missed, too") {
  const Plan plan = Gather().value();
  const std::vector<absl::Status> statuses = RunSharedMemoryProcesses(
      3,
      [&](SharedMemoryCommunicator& comm) -> absl::Status {
        if (comm.rank() == 1) {
          if (fork() == 0) {
            usleep(4000000);  // longer than the others wait
            _exit(0);
          }
          raise(SIGKILL);
        }
        return Execute(plan, comm);
      },
      absl::Seconds(2));
  for (const size_t rank : {0, 2}) {
    INFO(statuses[rank]);
    CHECK(absl::IsUnavailable(statuses[rank]));
  }
}

TEST_CASE("one that does not come is waited for until the deadline") {
  const Plan plan = Gather().value();
  std::atomic<int> waiting{0};
  const std::vector<absl::Status> statuses = RunSharedMemoryThreads(
      {0, 1, 2},
      [&](SharedMemoryCommunicator& comm) -> absl::Status {
        if (comm.rank() == 1) {
          while (waiting.load() < 2) std::this_thread::yield();
          return absl::OkStatus();
        }
        const absl::Status status = Execute(plan, comm);
        ++waiting;
        return status;
      },
      absl::Milliseconds(300));
  for (const size_t rank : {0, 2}) {
    INFO(statuses[rank]);
    CHECK(absl::IsDeadlineExceeded(statuses[rank]));
  }
}

TEST_CASE("a wait ends when it is told to") {
  const Plan plan = Gather().value();
  std::vector<std::atomic<shared::SharedMemoryTransport*>> transports(3);
  std::thread teller([&] {
    for (const size_t rank : {0, 2}) {
      while (transports[rank].load() == nullptr) std::this_thread::yield();
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    for (const size_t rank : {0, 2}) transports[rank].load()->Abort();
  });
  std::atomic<int> ended{0};
  const std::vector<absl::Status> statuses =
      RunSharedMemoryThreads({0, 1, 2}, [&](SharedMemoryCommunicator& comm) -> absl::Status {
        if (comm.rank() == 1) {
          while (ended.load() < 2) std::this_thread::yield();
          return absl::OkStatus();
        }
        transports[comm.rank()] = &comm.transport();
        const absl::Status status = Execute(plan, comm);
        if (Execute(plan, comm).ok()) return absl::InternalError("it goes on");
        if (++ended == 2) return status;
        while (ended.load() < 2) std::this_thread::yield();
        return status;
      });
  teller.join();
  for (const size_t rank : {0, 2}) CHECK(absl::IsDeadlineExceeded(statuses[rank]));
}

TEST_CASE("ranks with different plans find out") {
  const Plan plan = Gather().value();
  const Plan other = PlanOf({"{X:3}", "[<X>3000, 104]", "[3000, 104]"}).value();
  std::atomic<int> ended{0};
  const std::vector<absl::Status> statuses = RunSharedMemoryThreads({0, 1, 2}, [&](SharedMemoryCommunicator& comm) {
    const absl::Status status = Execute(comm.rank() == 1 ? other : plan, comm);
    ++ended;
    while (ended.load() < 3) std::this_thread::yield();
    return status;
  });
  for (const absl::Status& status : statuses) {
    INFO(status);
    CHECK(absl::IsFailedPrecondition(status));
    CHECK(status.message().find("they run different plans") != absl::string_view::npos);
  }
}

TEST_CASE("memory that could be made shorter, or is something else, is not mapped") {
  const auto of = [](int64_t bytes, int seals) {
    shared::Descriptor memory(memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING));
    REQUIRE(ftruncate(memory.get(), bytes) == 0);
    REQUIRE(fcntl(memory.get(), F_ADD_SEALS, seals) == 0);
    return shared::Segment::Map(std::move(memory)).status();
  };
  constexpr int kAll = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;
  CHECK(of(1 << 20, kAll).message() == "not memory of a rank: it begins with something else");
  CHECK(of(16, kAll).message() == "not memory of a rank: it is too short");
  CHECK(of(1 << 20, F_SEAL_SEAL).message() == "not memory of a rank: it could be made shorter");
  const shared::Segment segment = shared::Segment::Create(3, {1, 2}).value();
  CHECK(shared::Segment::Map(shared::Descriptor(dup(segment.descriptor()))).ok());
  CHECK(segment.IndexOfRingTo(2) == 1);
  CHECK(segment.IndexOfRingTo(3) == -1);
  segment.head().slots = 1 << 19;
  CHECK(shared::Segment::Map(shared::Descriptor(dup(segment.descriptor()))).status().message() ==
        "not memory of a rank: its sizes do not agree");
}

TEST_CASE("a rank that has no memory to share says so, and lives") {
  const std::vector<absl::Status> statuses = RunSharedMemoryProcesses(1, [](SharedMemoryCommunicator&) {
    const rlimit limit{1 << 16, 1 << 16};
    if (setrlimit(RLIMIT_FSIZE, &limit) != 0) return absl::InternalError("no limit can be set");
    return shared::Segment::Create(0, {1}).status();
  });
  CHECK(absl::IsResourceExhausted(statuses[0]));
  CHECK(statuses[0].message().find("RLIMIT_FSIZE: File too large") != absl::string_view::npos);
}

TEST_CASE("a forked child that lets go of everything takes nothing from its parent") {
  const Plan plan = Gather().value();
  CheckAllOk(RunSharedMemoryProcesses(3, [&](SharedMemoryCommunicator& comm) {
    const pid_t child = fork();
    if (child == 0) {
      comm.transport().Leave();
      _exit(0);
    }
    waitpid(child, nullptr, 0);
    return Execute(plan, comm);
  }));
}

TEST_CASE("untrusted and silent processes are not let in") {
  shared::Bootstrap a = shared::Bootstrap::Listen(0).value();
  shared::Bootstrap b = shared::Bootstrap::Listen(1).value();
  // Connects and says nothing.
  shared::Bootstrap silent = shared::Bootstrap::Listen(2).value();
  const std::vector<shared::SocketName> names = {a.name(), b.name(), shared::SocketName{}};
  REQUIRE(a.Offer(names).ok());
  REQUIRE(b.Offer(names).ok());
  // A third rank that claims to be one of a world of two.
  REQUIRE(silent.Offer(absl::MakeConstSpan(names).first(2)).ok());
  a.Accept();
  b.Accept();
  CHECK(a.mapped(1));
  CHECK(b.mapped(0));
  CHECK_FALSE(a.mapped(2));
  const std::vector<shared::LocalPeer> kept = a.Keep({false, true, false});
  REQUIRE(kept.size() == 1);
  CHECK(kept[0].rank == 1);
  CHECK(a.TakeSegment().IndexOfRingTo(1) == 0);
}

}  // namespace
}  // namespace reshard
