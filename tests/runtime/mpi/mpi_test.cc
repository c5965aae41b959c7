// Ranks that MPI started: every kind of plan by messages and through shared memory, agreement, and what happens to
// those that wait for one that is late, fails or dies.
#include <mpi.h>
#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "reshard/mpi/mpi_communicator.h"
#include "reshard/runtime/redistributor.h"
#include "tests/catch.h"
#include "tests/runtime/chunk_cases.h"
#include "tests/runtime/packed/check_rank.h"

namespace reshard {
namespace {

using testing::Case;
using testing::CheckRank;
using testing::DevicesOf;

int WorldSize() {
  int size = 0;
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  return size;
}

std::unique_ptr<MpiCommunicator> Connect(MpiOptions options = {}) {
  auto made = MpiCommunicator::Create(MPI_COMM_WORLD, options);
  INFO(made.status());
  REQUIRE(made.ok());
  return *std::move(made);
}

// Whether all devices of the plan are ranks here.
bool Fits(const Plan& plan) { return DevicesOf(plan).back() < WorldSize(); }

void CheckPlan(const Plan& plan, Communicator& comm) {
  const absl::StatusOr<self_test::LogicalContent> content = self_test::LogicalContent::Create(plan, 1);
  REQUIRE(content.ok());
  for (const bool strided : {false, true}) {
    const absl::Status status = CheckRank(plan, *content, comm, strided);
    INFO("rank " << comm.rank() << ": " << status);
    CHECK(status.ok());
  }
}

TEST_CASE("moves, reductions and chunks between processes") {
  for (const bool shared_memory : {true, false}) {
    MpiOptions options;
    options.shared_memory = shared_memory;
    const std::unique_ptr<MpiCommunicator> comm = Connect(options);
    int64_t checked = 0;
    const auto check = [&](const Plan& plan) {
      if (!Fits(plan)) return;
      CheckPlan(plan, *comm);
      ++checked;
    };
    testing::ForEachPlan(testing::kMoves, {DType::kI8, DType::kF32, DType::kC128}, check);
    testing::ForEachPlan(testing::kReductions, {DType::kI32, DType::kBF16}, check);
    for (const Case& c : testing::kInChunks) check(testing::PlanInChunks(c, DType::kF32));
    CHECK(checked >= (WorldSize() < 4 ? 3 : 80));
  }
}

// Beyond what MPI sends without asking the receiver, in one piece and in many.
TEST_CASE("large messages") {
  const std::string mesh = "{X:" + std::to_string(WorldSize()) + "}";
  MpiOptions options;
  options.shared_memory = false;
  const std::unique_ptr<MpiCommunicator> comm = Connect(options);
  for (const auto& [from, to] : {std::pair("[<X>1537, 2049]", "[1537, <X>2049]"),
                                 {"[<X>4096, 1024]", "[4096, 1024]"},
                                 {"[1025, 2048] sum<X>", "[1025, <X>2048]"}}) {
    CAPTURE(from, to);
    const auto plan = testing::PlanOf({mesh, from, to}, DType::kF32);
    REQUIRE(plan.ok());
    CheckPlan(*plan, *comm);
  }
}

TEST_CASE("ranks that disagree are named, and go on") {
  const std::unique_ptr<MpiCommunicator> comm = Connect();
  if (comm->world_size() == 1) return;
  const std::vector<Signature::Field> target = {{"target", comm->rank() == 1 ? "[<X>8]" : "[8]"}};
  const absl::Status status = comm->Agree(absl::OkStatus(), Signature(target));
  INFO(status);
  CHECK(absl::IsFailedPrecondition(status));
  CHECK_THAT(std::string(status.message()), Catch::Contains("rank 1"));
  CHECK(comm->Agree(absl::OkStatus(), Signature()).ok());
  const absl::Status own = comm->rank() == 1 ? absl::DataLossError("no good") : absl::OkStatus();
  const absl::Status failed = comm->Agree(own, Signature());
  CHECK(failed.code() == (comm->rank() == 1 ? absl::StatusCode::kDataLoss : absl::StatusCode::kAborted));
  CHECK(comm->Barrier().ok());
}

TEST_CASE("ranks that were about to move different tensors move the next ones") {
  const std::string mesh = "{X:" + std::to_string(WorldSize()) + "}";
  const auto rows_to_columns = testing::PlanOf({mesh, "[<X>64, 96]", "[64, <X>96]"}, DType::kF32);
  const auto rows_to_all = testing::PlanOf({mesh, "[<X>64, 96]", "[64, 96]"}, DType::kF32);
  REQUIRE(rows_to_columns.ok());
  REQUIRE(rows_to_all.ok());
  for (const bool shared_memory : {true, false}) {
    MpiOptions options;
    options.shared_memory = shared_memory;
    const std::unique_ptr<MpiCommunicator> comm = Connect(options);
    for (int round = 0; round < 20; ++round) {
      const bool differs = round % 3 == 1 && WorldSize() > 1;
      const Plan& plan = differs && comm->rank() == round % comm->world_size() ? *rows_to_all : *rows_to_columns;
      const absl::StatusOr<self_test::LogicalContent> content = self_test::LogicalContent::Create(plan, 1);
      REQUIRE(content.ok());
      const absl::Status status = CheckRank(plan, *content, *comm, round % 2 == 0, Agreement::kEveryCall);
      INFO(round << ": " << status);
      CHECK(status.code() == (differs ? absl::StatusCode::kFailedPrecondition : absl::StatusCode::kOk));
      if (differs) CHECK_THAT(std::string(status.message()), Catch::Contains("ranks disagree on target"));
    }
  }
}

TEST_CASE("a rank that does not come is named in time, and nothing of its step is in flight afterwards") {
  if (WorldSize() == 1) return;
  const std::string mesh = "{X:" + std::to_string(WorldSize()) + "}";
  const auto plan = testing::PlanOf({mesh, "[<X>2048, 1024]", "[2048, <X>1024]"}, DType::kF32);
  REQUIRE(plan.ok());
  const absl::StatusOr<self_test::LogicalContent> content = self_test::LogicalContent::Create(*plan, 1);
  REQUIRE(content.ok());
  for (const bool shared_memory : {true, false}) {
    MpiOptions options;
    options.timeout = absl::Milliseconds(300);
    options.shared_memory = shared_memory;
    const std::unique_ptr<MpiCommunicator> comm = Connect(options);
    REQUIRE(comm->Barrier().ok());
    if (comm->rank() != 1) {
      const absl::Status status = CheckRank(*plan, *content, *comm, false);
      INFO(status);
      CHECK((absl::IsDeadlineExceeded(status) || absl::IsAborted(status)));
      CHECK_THAT(std::string(status.message()), Catch::Contains("rank 1"));
      CHECK_FALSE(comm->Barrier().ok());
    } else {
      std::this_thread::sleep_for(std::chrono::milliseconds(4500));
      CHECK(absl::IsAborted(comm->Barrier()));
    }
    MPI_Barrier(MPI_COMM_WORLD);
  }
  CheckPlan(*plan, *Connect());
}

// Started with a launcher that lets the others live. They leave by _exit: MPI cannot end without the dead.
TEST_CASE("a rank that dies is named by all others", "[.kill]") {
  MpiOptions options;
  options.timeout = absl::Seconds(20);
  const std::unique_ptr<MpiCommunicator> comm = Connect(options);
  REQUIRE(comm->Barrier().ok());
  if (comm->rank() == 1) {
    raise(SIGKILL);
  }
  const absl::Status status = comm->Barrier();
  const bool named = (absl::IsUnavailable(status) || absl::IsAborted(status)) &&
                     std::string(status.message()).find("rank 1") != std::string::npos;
  std::printf("rank %d: %s: %s\n", static_cast<int>(comm->rank()), named ? "named" : "not named",
              status.ToString().c_str());
  std::fflush(stdout);
  _exit(0);
}

TEST_CASE("what is not a communicator is refused") {
  CHECK(absl::IsInvalidArgument(MpiCommunicator::Create(MPI_COMM_NULL).status()));
  MPI_Comm half = MPI_COMM_NULL;
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_split(MPI_COMM_WORLD, rank % 2, 0, &half);
  if (WorldSize() > 1) {
    MPI_Comm between = MPI_COMM_NULL;
    MPI_Intercomm_create(half, 0, MPI_COMM_WORLD, 1 - rank % 2, 7, &between);
    CHECK(absl::IsInvalidArgument(MpiCommunicator::Create(between).status()));
    MPI_Comm_free(&between);
  }
  {
    const auto of_half = MpiCommunicator::Create(half);
    REQUIRE(of_half.ok());
    CHECK((*of_half)->Barrier().ok());
    (*of_half)->Close();
    if ((*of_half)->world_size() > 1) CHECK(absl::IsUnavailable((*of_half)->Barrier()));
  }
  MPI_Comm_free(&half);
}

}  // namespace
}  // namespace reshard
