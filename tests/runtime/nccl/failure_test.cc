// What ranks see when something goes wrong: every call of NCCL and of the driver fails once, operations stall or fail
// on the device, ranks stay away, disagree, or bring errors. Every rank returns an error, in time, that says who it
// was.
#include <chrono>
#include <memory>
#include <optional>
#include <vector>

#include "absl/strings/match.h"
#include "absl/synchronization/notification.h"
#include "reshard/runtime/redistributor.h"
#include "tests/catch.h"
#include "tests/fakes/nccl_world.h"
#include "tests/runtime/cases.h"
#include "tests/runtime/nccl/rank_run.h"

namespace reshard {
namespace {

using testing::Case;
using testing::FakeCuda;
using testing::FakeNccl;
using testing::FakeWorld;
using testing::PlanOf;
using testing::RunNcclRanks;
using testing::RunOnRank;

constexpr int kRanks = 3;
constexpr absl::Duration kTimeout = absl::Milliseconds(250);
// What a rank may take on a busy machine beyond its deadlines: making a communicator, one operation, and finding the
// culprit.
constexpr absl::Duration kInTime = absl::Seconds(20);

// Plans that use every kind of call: a group split off with a collective, sends and receives with packing, a reduction
// of NCCL, one that ranks combine.
struct Work {
  std::vector<Plan> plans;
  std::vector<self_test::LogicalContent> contents;

  Work() {
    const Case cases[] = {{"{X:3}", "[4, <X>6]", "[4, 6]"},
                          {"{X:3}", "[4, <X>6, 3]", "[4, 6, <X>3]"},
                          {"{X:3}", "[6, 4] sum<X>", "[<X>6, 4]"},
                          {"{X:3}", "[6, 4] max<X>", "[6, 4]"}};
    for (const Case& c : cases) {
      plans.push_back(PlanOf(c, DType::kF32).value());
      contents.push_back(self_test::LogicalContent::Create(plans.back(), 1).value());
    }
  }
  absl::Status Run(NcclCommunicator& comm) const {
    for (size_t i = 0; i < plans.size(); ++i) {
      const absl::Status status = RunOnRank(plans[i], contents[i], comm, {false, Agreement::kEveryCall});
      if (!status.ok()) return status;
    }
    return absl::OkStatus();
  }
};

NcclOptions Options(absl::Duration timeout = kTimeout) {
  NcclOptions options;
  options.timeout = timeout;
  return options;
}

// The errors of all ranks, which must come in time.
std::vector<absl::Status> RunTimed(const std::function<absl::Status(NcclCommunicator&)>& body,
                                   absl::Duration timeout = kTimeout) {
  const absl::Time start = absl::Now();
  std::vector<absl::Status> statuses = RunNcclRanks(kRanks, Options(timeout), body);
  CHECK(absl::Now() - start < kInTime);
  return statuses;
}

// Everybody has an error, or, where what failed was needed by nobody, nobody has.
void CheckAllOrNone(const std::vector<absl::Status>& statuses) {
  int errors = 0;
  for (const absl::Status& status : statuses) errors += status.ok() ? 0 : 1;
  for (size_t rank = 0; rank < statuses.size(); ++rank) UNSCOPED_INFO("rank " << rank << ": " << statuses[rank]);
  CHECK((errors == 0 || errors == static_cast<int>(statuses.size())));
}

TEST_CASE("every call of NCCL fails once on every rank") {
  const Work work;
  std::vector<int64_t> calls(kRanks);
  {
    const FakeWorld fakes(kRanks);
    for (const absl::Status& status : RunTimed(
             [&](NcclCommunicator& comm) {
               const absl::Status status = work.Run(comm);
               calls[comm.rank()] = FakeNccl::Calls(static_cast<int>(comm.rank()));
               return status;
             },
             absl::Seconds(10))) {
      REQUIRE(status.ok());
    }
  }
  int injected = 0;
  for (int rank = 0; rank < kRanks; ++rank) {
    for (int64_t call = 0; call < calls[rank]; ++call) {
      CAPTURE(rank, call);
      const FakeWorld fakes(kRanks);
      FakeNccl::FailAt(rank, call, call % 2 == 0 ? kNcclSystemError : kNcclInvalidUsage);
      const std::vector<absl::Status> statuses = RunTimed([&](NcclCommunicator& comm) { return work.Run(comm); });
      CheckAllOrNone(statuses);
      CHECK_FALSE(statuses[rank].ok());
      ++injected;
    }
  }
  CHECK(injected > 100);
}

TEST_CASE("every call of the driver fails once") {
  const Work work;
  constexpr int kVictim = 1;
  int64_t calls = 0;
  {
    const FakeWorld fakes(kRanks);
    for (const absl::Status& status : RunTimed(
             [&](NcclCommunicator& comm) {
               const absl::Status status = work.Run(comm);
               if (comm.rank() == kVictim) calls = FakeCuda::Calls(kVictim);
               return status;
             },
             absl::Seconds(10))) {
      REQUIRE(status.ok());
    }
  }
  REQUIRE(calls > 100);
  for (int64_t call = 0; call < calls; ++call) {
    CAPTURE(call);
    const FakeWorld fakes(kRanks);
    FakeCuda::FailAt(kVictim, call, call % 2 == 0 ? cuda::kCudaOutOfMemory : 700);
    CheckAllOrNone(RunTimed([&](NcclCommunicator& comm) { return work.Run(comm); }));
  }
}

TEST_CASE("operations that stall or fail on the device end everywhere") {
  const Work work;
  size_t operations = 0;
  {
    const FakeWorld fakes(kRanks);
    for (const absl::Status& status :
         RunTimed([&](NcclCommunicator& comm) { return work.Run(comm); }, absl::Seconds(10))) {
      REQUIRE(status.ok());
    }
    operations = FakeNccl::Operations(1).size();
  }
  REQUIRE(operations > 8);
  for (int64_t operation = 0; operation < static_cast<int64_t>(operations); operation += 2) {
    for (const bool stall : {true, false}) {
      CAPTURE(operation, stall);
      const FakeWorld fakes(kRanks);
      stall ? FakeNccl::Stall(1, operation) : FakeNccl::FailAsync(1, operation, kNcclRemoteError);
      for (const absl::Status& status : RunTimed([&](NcclCommunicator& comm) { return work.Run(comm); })) {
        CHECK_FALSE(status.ok());
      }
    }
  }
}

TEST_CASE("a rank that does not come is named") {
  const Work work;
  SECTION("it never makes a communicator") {
    const FakeWorld fakes(kRanks);
    FakeCuda::FailAt(2, "DeviceGetCount", 0, cuda::kCudaNoDevice);
    const std::vector<absl::Status> statuses = RunTimed([&](NcclCommunicator& comm) { return work.Run(comm); });
    for (size_t rank = 0; rank < 2; ++rank) {
      INFO(statuses[rank]);
      CHECK(absl::StrContains(statuses[rank].message(), "rank 2 did not arrive within 250 ms to make a communicator"));
    }
    CHECK_FALSE(statuses[2].ok());
  }
  SECTION("it goes on to something else") {
    const FakeWorld fakes(kRanks);
    absl::Notification over;
    const std::vector<absl::Status> statuses = RunTimed([&](NcclCommunicator& comm) -> absl::Status {
      if (comm.rank() != 2) {
        const absl::Status status = work.Run(comm);
        if (comm.rank() == 0) over.Notify();
        return status;
      }
      over.WaitForNotification();
      return absl::OkStatus();
    });
    for (size_t rank = 0; rank < 2; ++rank) {
      INFO(statuses[rank]);
      CHECK((absl::IsDeadlineExceeded(statuses[rank]) || absl::IsAborted(statuses[rank])));
      CHECK(absl::StrContains(statuses[rank].message(), "rank 2 did not arrive within 250 ms at agreement"));
    }
    INFO(statuses[2]);
    CHECK(absl::StrContains(statuses[2].message(), "rank 2 did not arrive"));
  }
}

// Runs one problem, a different one on some ranks.
std::vector<absl::Status> RunProblems(const std::vector<Problem>& problems) {
  return RunTimed([&](NcclCommunicator& comm) -> absl::Status {
    RedistributorOptions options;
    options.agreement = Agreement::kEveryCall;
    Redistributor redistributor(&comm, options);
    const auto prepared = redistributor.Prepare(problems[comm.rank()]);
    std::vector<ConstTensorView> sources;
    std::vector<TensorView> targets;
    cuda::DeviceBlock memory;
    if (prepared.ok()) {
      const Buffer& from = (*prepared)->source();
      const Buffer& to = (*prepared)->target();
      absl::StatusOr<cuda::DeviceBlock> block = comm.device().Allocate(from.bytes + to.bytes, nullptr);
      if (!block.ok()) return block.status();
      memory = *std::move(block);
      TensorView source = DenseView(static_cast<void*>(memory.data()), from.dtype, from.shape);
      TensorView target = DenseView(static_cast<void*>(memory.data() + from.bytes), to.dtype, to.shape);
      source.memory = target.memory = MemoryKind::kCuda;
      sources.push_back(source);
      targets.push_back(target);
    }
    const absl::StatusOr<ExecuteResult> result = redistributor.Run(prepared, sources, targets);
    if (!result.ok()) return result.status();
    const absl::Status waited = comm.Wait();
    if (!waited.ok()) {
      // From now on every call says so at once.
      const absl::StatusOr<ExecuteResult> again = redistributor.Run(prepared, sources, targets);
      if (again.ok()) return absl::InternalError("a lost communicator went on");
    }
    return waited;
  });
}

TEST_CASE("ranks that disagree are told on what") {
  const FakeWorld fakes(kRanks);
  const Problem usual = testing::ProblemOf("{X:3}", "[<X>6, 6]", "[6, <X>6]");
  const Problem other = testing::ProblemOf("{X:3}", "[<X>6, 6]", "[6, 6]");
  for (const absl::Status& status : RunProblems({usual, other, usual})) {
    INFO(status);
    CHECK(absl::IsFailedPrecondition(status));
    CHECK(absl::StrContains(status.message(),
                            "ranks disagree on target: ranks 0, 2 have [6, 2<X>6]; rank 1 has another target: [6, 6]"));
  }
}

TEST_CASE("a rank that brings an error tells the others") {
  const FakeWorld fakes(kRanks);
  const Problem usual = testing::ProblemOf("{X:3}", "[<X>6, 6]", "[6, <X>6]");
  const Problem bad = testing::ProblemOf("{X:3}", "[<X>6, 6]", "[6, <X>9]");
  const std::vector<absl::Status> statuses = RunProblems({usual, usual, bad});
  CHECK(absl::IsInvalidArgument(statuses[2]));
  for (size_t rank = 0; rank < 2; ++rank) {
    INFO(statuses[rank]);
    CHECK(absl::IsAborted(statuses[rank]));
    CHECK(absl::StrContains(statuses[rank].message(), "rank 2 failed: "));
    CHECK(absl::StrContains(statuses[rank].message(), "different shapes"));
  }
}

TEST_CASE("fragments in host memory are refused before anything is enqueued") {
  const absl::StatusOr<Plan> plan = PlanOf({"{X:3}", "[<X>6]", "[6]"}, DType::kF32);
  REQUIRE(plan.ok());
  const FakeWorld fakes(kRanks);
  for (const absl::Status& status : RunNcclRanks(kRanks, Options(absl::Seconds(10)), [&](NcclCommunicator& comm) {
         auto program = std::make_shared<const Program>(CompileProgram(*plan, comm.rank(), {comm.copies()}).value());
         absl::StatusOr<Executor> executor = Executor::Create(program, &comm, Agreement::kOff);
         std::vector<float> in(2);
         std::vector<float> out(6);
         const absl::Status refused = executor
                                          ->Execute(DenseView(static_cast<const void*>(in.data()), DType::kF32, {2}),
                                                    DenseView(static_cast<void*>(out.data()), DType::kF32, {6}))
                                          .status();
         return absl::IsInvalidArgument(refused) && absl::StrContains(refused.message(), "host memory")
                    ? absl::OkStatus()
                    : absl::InternalError(refused.message());
       })) {
    INFO(status);
    CHECK(status.ok());
  }
}

}  // namespace
}  // namespace reshard
