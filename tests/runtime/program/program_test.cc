// Programs of all ranks of a plan: they mirror each other, fit any fragment, and tell problems apart.
#include "reshard/runtime/program.h"

#include <memory>
#include <string>
#include <vector>

#include "reshard/runtime/executor.h"
#include "reshard/runtime/local_world.h"
#include "runtime/self_test/logical_content.h"
#include "tests/catch.h"
#include "tests/runtime/cases.h"
#include "tests/runtime/spread.h"

namespace reshard {
namespace {

using testing::Case;
using testing::kMoves;
using testing::PlanOf;
using testing::Spread;

TEST_CASE("ranks outside the plan take part with nothing") {
  const absl::StatusOr<Plan> plan = PlanOf({"{X:2}@1", "[<X>8]", "[8]"});
  REQUIRE(plan.ok());
  LocalWorld world(5);
  const absl::Status status = world.Run([&](Communicator& comm) -> absl::Status {
    absl::StatusOr<Program> program = CompileProgram(*plan, comm.rank());
    if (!program.ok()) return program.status();
    const bool held = comm.rank() == 1 || comm.rank() == 2;
    if (program->buffers[0].held != held) return absl::InternalError("held");
    absl::StatusOr<Executor> executor = Executor::Create(std::make_shared<const Program>(*std::move(program)), &comm);
    if (!executor.ok()) return executor.status();
    if (!held) return executor->Execute({}, {}).status();
    std::vector<float> source(4, static_cast<float>(comm.rank()));
    std::vector<float> target(8);
    const absl::Status done = executor
                                  ->Execute(DenseView(static_cast<const void*>(source.data()), DType::kF32, {4}),
                                            DenseView(static_cast<void*>(target.data()), DType::kF32, {8}))
                                  .status();
    if (done.ok() && (target[0] != 1 || target[7] != 2)) return absl::DataLossError("wrong element");
    return done;
  });
  INFO(status);
  CHECK(status.ok());
  CHECK(CompileProgram(*plan, -1).status().code() == absl::StatusCode::kInvalidArgument);
}

TEST_CASE("sends and receives of all ranks mirror each other") {
  for (const Case& c : kMoves) {
    CAPTURE(c.mesh, c.from, c.to, c.target_mesh);
    const absl::StatusOr<Plan> plan = PlanOf(c);
    REQUIRE(plan.ok());
    std::vector<int64_t> devices;
    for (const Layout* layout : {&plan->source, &plan->target}) {
      for (int64_t p = 0; p < layout->mesh().size(); ++p) devices.push_back(layout->mesh().Device(p));
    }
    std::vector<Program> programs;
    for (int64_t device : devices) programs.push_back(CompileProgram(*plan, device).value());
    for (size_t i = 0; i < programs.size(); ++i) {
      CHECK(programs[i].signature.fingerprint == programs[0].signature.fingerprint);
      for (size_t j = 0; j < programs.size(); ++j) {
        if (devices[i] == devices[j]) continue;
        for (size_t k = 0; k < programs[i].steps.size(); ++k) {
          std::vector<Region> sent;
          std::vector<Region> received;
          for (const Transfer& t : programs[i].steps[k].sends) {
            if (t.peer == devices[j]) sent.push_back(*t.region);
          }
          for (const Transfer& t : programs[j].steps[k].receives) {
            if (t.peer == devices[i]) received.push_back(*t.region);
          }
          CHECK(sent == received);
        }
      }
    }
  }
}

TEST_CASE("different problems have different fingerprints") {
  const auto fingerprint = [](const Case& c, DType dtype) {
    return CompileProgram(PlanOf(c, dtype).value(), 0)->signature.fingerprint;
  };
  const Case base{"{X:4}", "[<X>16]", "[16]"};
  CHECK(fingerprint(base, DType::kF32) == fingerprint(base, DType::kF32));
  CHECK_FALSE(fingerprint(base, DType::kF32) == fingerprint(base, DType::kI32));
  CHECK_FALSE(fingerprint(base, DType::kF32) == fingerprint({"{X:4}", "[<X>17]", "[17]"}, DType::kF32));
  CHECK_FALSE(fingerprint(base, DType::kF32) == fingerprint({"{X:4}@[1,0,2,3]", "[<X>16]", "[16]"}, DType::kF32));
}

TEST_CASE("every kind of step reads and writes strided fragments") {
  const DType dtype = DType::kI32;
  PlanOptions sequences;
  sequences.ops = OpSet::All().without(Op::kExchange);
  const Case cases[] = {
      {"{X:2,Y:2}", "[<X>6, 5, <Y>4]", "[6, <Y>5, <X>4]"},
      {"{X:2,Y:3}", "[<X>7, 3]", "[<X>7, 3]"},
      {"{X:4}", "[7, 5, 3] sum<X>", "[7, 5, 3]"},
      {"{X:4}", "[7, 5, 3] sum<X>", "[7, <X>5, 3]"},
      {"{X:4,Y:2}", "[7, 5, 3] max<X>", "[<2,~X>7, <Y>5, 3]"},
      {"{X:2,Y:3}", "[<X>6, 5]", "[<Y>6, 5]"},
      {"{X:4}", "[8, 3]", "[<X>8, 3]"},
  };
  for (const Case& c : cases) {
    CAPTURE(c.mesh, c.from, c.to);
    absl::StatusOr<Plan> plan = PlanOf(c, dtype, sequences);
    if (!plan.ok()) plan = PlanOf(c, dtype);
    REQUIRE(plan.ok());
    const absl::StatusOr<self_test::LogicalContent> content = self_test::LogicalContent::Create(*plan, 1);
    REQUIRE(content.ok());
    LocalWorld world(plan->world());
    const absl::Status status = world.Run([&](Communicator& comm) -> absl::Status {
      absl::StatusOr<Program> program = CompileProgram(*plan, comm.rank());
      if (!program.ok()) return program.status();
      const std::vector<Buffer> buffers = program->buffers;
      absl::StatusOr<Executor> executor = Executor::Create(std::make_shared<const Program>(*std::move(program)), &comm);
      if (!executor.ok()) return executor.status();
      Spread source(buffers[0]);
      Spread target(buffers[1]);
      std::vector<char> dense_source(static_cast<size_t>(buffers[0].bytes));
      std::vector<char> dense_target(static_cast<size_t>(buffers[1].bytes));
      const int64_t position = *plan->source.mesh().Position(comm.rank());
      content->Fill(plan->source, position, dense_source.data());
      source.CopyFrom(dense_source.data());
      const std::vector<char> before = source.memory;
      const absl::Status executed = executor->Execute(source.View(), target.View()).status();
      if (!executed.ok()) return executed;
      target.CopyTo(dense_target.data());
      int64_t first = 0;
      if (content->CountMismatches(plan->target, position, dense_target.data(), &first) != 0) {
        return absl::DataLossError("wrong element");
      }
      if (source.memory != before) return absl::DataLossError("the source has changed");
      if (!target.GapsIntact()) return absl::DataLossError("gaps written");
      return absl::OkStatus();
    });
    INFO(status);
    CHECK(status.ok());
  }
}

}  // namespace
}  // namespace reshard
