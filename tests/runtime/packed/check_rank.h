// One rank's part of a plan over any communicator, checked by logical index.
#ifndef RESHARD_TESTS_RUNTIME_PACKED_CHECK_RANK_H_
#define RESHARD_TESTS_RUNTIME_PACKED_CHECK_RANK_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/types/span.h"
#include "reshard/planner/plan.h"
#include "reshard/runtime/communicator.h"
#include "reshard/runtime/executor.h"
#include "reshard/runtime/program.h"
#include "runtime/self_test/logical_content.h"
#include "tests/catch.h"
#include "tests/runtime/cases.h"
#include "tests/runtime/spread.h"

namespace reshard::testing {

inline const Case kReductions[] = {
    {"{X:4}", "[7, 5, 3] sum<X>", "[7, 5, 3]"},
    {"{X:4}", "[7, 5, 3] sum<X>", "[7, <X>5, 3]"},
    {"{X:4}@[3,1,0,2]", "[6] avg<X>", "[6]"},
    {"{X:4,Y:2}", "[7, 5] max<X>", "[<2,~X>7, <Y>5]"},
    {"{X:2,Y:3}", "[<Y>7, 3] prod<X>", "[7, <X>3]"},
    {"{X:2,Y:2}", "[8] sum<X,Y>", "[8] sum<Y>"},
    {"{X:3}@[2,0,1]", "[7] max<X>", "[<X>7]"},
    {"{X:3}", "[2] sum<X>", "[<X>2]"},
    {"{X:4}", "[] sum<X>", "[]"},
};

// Calls check with the plan of every case in every type.
inline void ForEachPlan(absl::Span<const Case> cases, absl::Span<const DType> types,
                        absl::FunctionRef<void(const Plan&)> check) {
  for (const Case& c : cases) {
    CAPTURE(c.mesh, c.from, c.to, c.target_mesh);
    for (const DType dtype : types) {
      const absl::StatusOr<Plan> plan = PlanOf(c, dtype);
      REQUIRE(plan.ok());
      check(*plan);
    }
  }
}

inline std::vector<int64_t> DevicesOf(const Plan& plan) {
  std::set<int64_t> devices;
  for (const Layout* layout : {&plan.source, &plan.target}) {
    for (int64_t p = 0; p < layout->mesh().size(); ++p) devices.insert(layout->mesh().Device(p));
  }
  return {devices.begin(), devices.end()};
}

inline void CheckAllOk(absl::Span<const absl::Status> statuses) {
  for (const absl::Status& status : statuses) {
    INFO(status);
    CHECK(status.ok());
  }
}

// One rank's part of a plan: fills its fragment by logical index, runs, checks the result by logical index.
inline absl::Status CheckRank(const Plan& plan, const self_test::LogicalContent& content, Communicator& comm,
                              bool strided, Agreement agreement = Agreement::kOff) {
  absl::StatusOr<Program> program = CompileProgram(plan, comm.rank(), {comm.copies(), true});
  if (!program.ok()) return program.status();
  auto shared = std::make_shared<const Program>(*std::move(program));
  absl::StatusOr<Executor> executor = Executor::Create(shared, &comm, agreement);
  if (!executor.ok()) return executor.status();
  const Buffer& from = shared->source();
  const Buffer& to = shared->target();
  std::vector<char> source(static_cast<size_t>(from.bytes));
  std::vector<char> target(static_cast<size_t>(to.bytes), kGap);
  const std::optional<int64_t> in = plan.source.mesh().Position(comm.rank());
  const std::optional<int64_t> out = plan.target.mesh().Position(comm.rank());
  if (in) content.Fill(plan.source, *in, source.data());
  const std::vector<char> before = source;
  Spread wide_source(from);
  Spread wide_target(to);
  absl::StatusOr<ExecuteResult> result = absl::InternalError("not run");
  if (strided) {
    wide_source.CopyFrom(source.data());
    result = executor->Execute(wide_source.View(), wide_target.View());
    wide_target.CopyTo(target.data());
    if (!wide_target.GapsIntact()) return absl::DataLossError("gaps written");
  } else {
    result = executor->Execute(DenseView(static_cast<const void*>(source.data()), from.dtype, from.shape),
                               DenseView(static_cast<void*>(target.data()), to.dtype, to.shape));
  }
  if (!result.ok()) return result.status();
  int64_t planned = 0;
  for (const StepProgram& step : shared->steps) planned += step.recv_bytes;
  if (result->moved.received != planned) return absl::DataLossError("other bytes than planned");
  if (source != before) return absl::DataLossError("the source has changed");
  int64_t first = 0;
  if (out && content.CountMismatches(plan.target, *out, target.data(), &first) != 0) {
    return absl::DataLossError("wrong element");
  }
  return absl::OkStatus();
}

}  // namespace reshard::testing

#endif  // RESHARD_TESTS_RUNTIME_PACKED_CHECK_RANK_H_
