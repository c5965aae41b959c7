// One rank's part of a checked run, on the ranks of a communicator that the test has.
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "reshard/runtime/local_world.h"
#include "reshard/runtime/verify_run.h"
#include "tests/catch.h"
#include "tests/runtime/cases.h"

namespace reshard {
namespace {

using testing::Case;
using testing::kMoves;
using testing::PlanOf;

RunOptions Twice() {
  RunOptions options;
  options.repeat = 2;
  return options;
}

// What every rank got; `call` says what a rank runs.
using Reports = std::map<int64_t, absl::StatusOr<RankReport>>;
template <typename Call>
Reports OnRanks(const std::vector<int64_t>& devices, Call&& call) {
  Reports reports;
  std::mutex mutex;
  LocalWorld world(devices, {absl::Seconds(60)});
  const absl::Status status = world.Run([&](Communicator& comm) {
    absl::StatusOr<RankReport> report = call(comm);
    const std::lock_guard<std::mutex> lock(mutex);
    reports.emplace(comm.rank(), std::move(report));
    return absl::OkStatus();
  });
  REQUIRE(status.ok());
  return reports;
}

TEST_CASE("ranks that run a plan together check all elements of it") {
  for (const Case& c : kMoves) {
    CAPTURE(c.mesh, c.from, c.to);
    const absl::StatusOr<Plan> plan = PlanOf(c, DType::kI16);
    REQUIRE(plan.ok());
    std::set<int64_t> devices;
    for (const Layout* layout : {&plan->source, &plan->target}) {
      for (int64_t p = 0; p < layout->mesh().size(); ++p) devices.insert(layout->mesh().Device(p));
    }
    const int64_t idle = *devices.rbegin() + 1;  // a rank that the plan does not name
    devices.insert(idle);
    int64_t checked = 0, received = 0;
    const std::vector<int64_t> ranks(devices.begin(), devices.end());
    for (const auto& [rank, report] :
         OnRanks(ranks, [&](Communicator& comm) { return RunPlanOnRank(*plan, comm, Twice()); })) {
      INFO("rank " << rank << ": " << report.status());
      REQUIRE(report.ok());
      INFO(report->first_mismatch);
      CHECK(report->mismatches == 0);
      CHECK(report->seconds.size() == 2);
      if (rank == idle) CHECK(report->elements_checked == 0);
      checked += report->elements_checked;
      received += report->moved.received;
    }
    CHECK(received == plan->totals.recv_bytes_total);
    // Types of two bytes are run twice.
    int64_t held = 0;
    for (const Layout* layout : {&plan->source, &plan->target}) {
      for (int64_t p = 0; p < layout->mesh().size(); ++p) held += NumElements(layout->LocalShape(p));
    }
    CHECK(checked == 2 * held);
  }
}

// Passes everything on, and spoils one element of what a rank is given.
class Spoils final : public Communicator {
 public:
  explicit Spoils(Communicator& inner) : inner_(inner) {}
  int64_t rank() const override { return inner_.rank(); }
  int64_t world_size() const override { return inner_.world_size(); }
  bool has_rank(int64_t id) const override { return inner_.has_rank(id); }
  CopyFor copies() const override { return inner_.copies(); }
  absl::Status Agree(const absl::Status& own, const Signature& problem) override { return inner_.Agree(own, problem); }
  absl::Status Barrier() override { return inner_.Barrier(); }
  absl::StatusOr<MoveStats> ExecuteStep(const StepProgram& step, absl::Span<const ConstTensorView> inputs,
                                        absl::Span<const TensorView> outputs,
                                        std::unique_ptr<StepMemo>* memo) override {
    absl::StatusOr<MoveStats> moved = inner_.ExecuteStep(step, inputs, outputs, memo);
    static_cast<float*>(outputs[0].data)[5] += 1;
    return moved;
  }

 private:
  Communicator& inner_;
};

TEST_CASE("a wrong element is part of the report of the rank that has it") {
  const absl::StatusOr<Plan> plan = PlanOf({"{X:2}", "[<X>8, 4]", "[8, <X>4]"});
  REQUIRE(plan.ok());
  const Reports reports = OnRanks({0, 1}, [&](Communicator& comm) -> absl::StatusOr<RankReport> {
    if (comm.rank() == 0) return RunPlanOnRank(*plan, comm, Twice());
    Spoils spoils(comm);
    return RunPlanOnRank(*plan, spoils, Twice());
  });
  REQUIRE(reports.at(0).ok());
  CHECK(reports.at(0)->mismatches == 0);
  REQUIRE(reports.at(1).ok());
  CHECK(reports.at(1)->mismatches == 1);
  CHECK(reports.at(1)->first_mismatch == "device 1: element [2, 3] of the target is wrong");
}

TEST_CASE("ranks that do not run the same, or cannot, all get an error") {
  const absl::StatusOr<Plan> plan = PlanOf({"{X:2}", "[<X>8, 4]", "[8, <X>4]"});
  const absl::StatusOr<Plan> other = PlanOf({"{X:2}", "[<X>8, 4]", "[8, 4]"});
  const absl::StatusOr<Plan> larger = PlanOf({"{X:4}", "[<X>8, 4]", "[8, <X>4]"});
  REQUIRE(plan.ok());
  REQUIRE(other.ok());
  REQUIRE(larger.ok());
  const auto code_and_text = [&](const Plan& second, const RunOptions& options) {
    const Reports reports = OnRanks({0, 1}, [&](Communicator& comm) {
      return comm.rank() == 0 ? RunPlanOnRank(*plan, comm, Twice()) : RunPlanOnRank(second, comm, options);
    });
    CHECK_FALSE(reports.at(1).ok());
    return reports.at(0).status();
  };
  absl::Status status = code_and_text(*other, Twice());
  CHECK(status.code() == absl::StatusCode::kFailedPrecondition);
  CHECK(std::string(status.message()).find("ranks disagree on target") == 0);
  RunOptions thrice;
  thrice.repeat = 3;
  status = code_and_text(*plan, thrice);
  CHECK(std::string(status.message()).find("ranks disagree on repetitions") == 0);
  RunOptions negative;
  negative.repeat = -1;
  status = code_and_text(*plan, negative);
  CHECK(status.message() == "rank 1 failed: a negative number of repetitions");
  RunOptions fresh;
  fresh.fresh = true;
  status = code_and_text(*plan, fresh);
  CHECK(std::string(status.message()).find("in-process ranks only") != std::string::npos);
  status = code_and_text(*larger, Twice());
  CHECK(std::string(status.message()).find("device 2, which is not one of the 2 ranks") != std::string::npos);
}

}  // namespace
}  // namespace reshard
