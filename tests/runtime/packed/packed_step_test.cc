// Steps over messages: every kind of plan, dense and strided, alone and in batches, in rounds, and the pool behind
// them.
#include "runtime/packed/packed_step.h"

#include <cstring>
#include <memory>
#include <vector>

#include "reshard/runtime/executor.h"
#include "reshard/runtime/redistributor.h"
#include "runtime/host/host_pool.h"
#include "runtime/self_test/logical_content.h"
#include "tests/catch.h"
#include "tests/runtime/cases.h"
#include "tests/runtime/packed/check_rank.h"
#include "tests/runtime/packed/packed_world.h"

namespace reshard {
namespace {

using testing::Case;
using testing::CheckRank;
using testing::DevicesOf;
using testing::kMoves;
using testing::kReductions;
using testing::PlanOf;
using testing::RunPacked;

void CheckPlan(const Plan& plan) {
  const absl::StatusOr<self_test::LogicalContent> content = self_test::LogicalContent::Create(plan, 1);
  REQUIRE(content.ok());
  const std::vector<int64_t> devices = DevicesOf(plan);
  for (const bool together : {false, true}) {
    if (together && devices.back() + 1 != static_cast<int64_t>(devices.size())) continue;
    for (const bool strided : {false, true}) {
      const auto statuses = RunPacked(
          devices, [&](Communicator& comm) { return CheckRank(plan, *content, comm, strided); }, together);
      for (const absl::Status& status : statuses) {
        INFO(status << (together ? ", together" : ", by messages"));
        CHECK(status.ok());
      }
    }
  }
}

TEST_CASE("messages carry every move element by element") {
  testing::ForEachPlan(kMoves, {DType::kI8, DType::kF32, DType::kC128}, CheckPlan);
}

TEST_CASE("messages carry every reduction") {
  testing::ForEachPlan(kReductions, {DType::kI32, DType::kBF16, DType::kF64}, CheckPlan);
}

TEST_CASE("large pieces have messages of their own") {
  const absl::StatusOr<Plan> plan = PlanOf({"{X:3}", "[<X>1100, 900]", "[1100, <X>900]"}, DType::kF32);
  REQUIRE(plan.ok());
  CheckPlan(*plan);
}

TEST_CASE("a plan cut into rounds moves the same elements with less staging") {
  const Case c{"{X:4}", "[<X>64, 96]", "[64, <X>96]"};
  const Plan free = PlanOf(c).value();
  PlanOptions options;
  options.memory_limit_bytes = free.totals.peak_bytes - 2000;
  const absl::StatusOr<Plan> plan = PlanOf(c, DType::kF32, options);
  REQUIRE(plan.ok());
  REQUIRE(plan->steps[0].rounds > 1);
  const Program program = CompileProgram(*plan, 0, {CopyFor::kMessages, true}).value();
  CHECK(static_cast<int64_t>(program.steps.size()) >= plan->steps[0].rounds);
  CheckPlan(*plan);
}

TEST_CASE("a batch shares its exchanges, and is cut under its budget") {
  const Case cases[] = {{"{X:2,Y:2}", "[<X,Y>8, 6]", "[8, <Y,X>6]"},
                        {"{X:2,Y:2}", "[5, 7] sum<X>", "[<X>5, 7]"},
                        {"{X:2,Y:2}", "[<Y>9]", "[9]"},
                        {"{X:2,Y:2}", "[]", "[]"},
                        {"{X:2,Y:2}", "[6] sum<X,Y>", "[6]"},
                        {"{X:2,Y:2}", "[300, <X>400]", "[<X>300, 400]"}};
  std::vector<Plan> plans;
  std::vector<self_test::LogicalContent> contents;
  for (const Case& c : cases) {
    plans.push_back(PlanOf(c).value());
    contents.push_back(self_test::LogicalContent::Create(plans.back(), 1).value());
  }
  for (const int64_t budget : {int64_t{1}, int64_t{1000}, int64_t{1} << 30}) {
    CAPTURE(budget);
    const auto statuses = RunPacked({0, 1, 2, 3}, [&](Communicator& comm) -> absl::Status {
      RedistributorOptions options;
      options.agreement = Agreement::kOff;
      options.batch_bytes = budget;
      Redistributor redistributor(&comm, options);
      std::vector<Problem> problems;
      for (const Case& c : cases) problems.push_back(testing::ProblemOf(c.mesh, c.from, c.to));
      const auto prepared = redistributor.PrepareBatch(problems);
      if (!prepared.ok()) return prepared.status();
      if (redistributor.PrepareBatch(problems).value() != *prepared) return absl::InternalError("not remembered");
      std::vector<std::vector<char>> sources(plans.size());
      std::vector<std::vector<char>> targets(plans.size());
      std::vector<ConstTensorView> from;
      std::vector<TensorView> to;
      for (size_t i = 0; i < plans.size(); ++i) {
        const Buffer& in = (*prepared)->source(static_cast<int64_t>(i));
        const Buffer& out = (*prepared)->target(static_cast<int64_t>(i));
        sources[i].resize(in.bytes);
        targets[i].resize(out.bytes);
        contents[i].Fill(plans[i].source, comm.rank(), sources[i].data());
        from.push_back(DenseView(static_cast<const void*>(sources[i].data()), in.dtype, in.shape));
        to.push_back(DenseView(static_cast<void*>(targets[i].data()), out.dtype, out.shape));
      }
      const absl::Status ran = redistributor.Run(prepared, from, to).status();
      if (!ran.ok()) return ran;
      for (size_t i = 0; i < plans.size(); ++i) {
        int64_t first = 0;
        if (contents[i].CountMismatches(plans[i].target, comm.rank(), targets[i].data(), &first) != 0) {
          return absl::DataLossError(absl::StrCat("tensor ", i, " is wrong"));
        }
      }
      to[1] = to[0];
      if (redistributor.Run(prepared, from, to).ok()) return absl::InternalError("targets that overlap went through");
      return absl::OkStatus();
    });
    testing::CheckAllOk(statuses);
  }
}

TEST_CASE("what cannot be prepared is an error, and the least recently used problem is forgotten") {
  testing::Mail mail;
  testing::PackedCommunicator comm(&mail, 0, 1, false);
  RedistributorOptions options;
  options.cache_entries = 2;
  options.agreement = Agreement::kOff;
  Redistributor redistributor(&comm, options);
  for (const Problem& bad : {testing::ProblemOf("{X:1}", "[4]", "[5]"), testing::ProblemOf("{X:1}", "[4]", "[4, 1]")}) {
    const auto prepared = redistributor.Prepare(bad);
    CHECK(prepared.status().code() == absl::StatusCode::kInvalidArgument);
    CHECK_FALSE(redistributor.Run(prepared, {}, {}).ok());
  }
  CHECK(redistributor.cached() == 0);
  CHECK_FALSE(redistributor.PrepareBatch({}).ok());
  for (const char* size : {"[1]", "[2]", "[3]", "[1]"}) {
    CHECK(redistributor.Prepare(testing::ProblemOf("{}", size, size)).ok());
    CHECK(redistributor.cached() <= 2);
  }
}

TEST_CASE("large blocks come back from the pool") {
  const int64_t kept = host::PooledHostBytes();
  void* const block = host::AcquireHostBlock(5 << 20);
  REQUIRE(block != nullptr);
  std::memset(block, 1, 5 << 20);
  host::ReleaseHostBlock(block, 5 << 20);
  CHECK(host::PooledHostBytes() >= kept + (5 << 20));
  void* const again = host::AcquireHostBlock((5 << 20) - 1000);
  CHECK(again == block);
  host::ReleaseHostBlock(again, (5 << 20) - 1000);
  void* const small = host::AcquireHostBlock(0);
  CHECK(small != nullptr);
  host::ReleaseHostBlock(small, 0);
}

}  // namespace
}  // namespace reshard
