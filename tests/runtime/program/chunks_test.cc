// Plans in chunks, executed: every element by logical index, on threads that pull and on ranks that pack.
#include <string>
#include <vector>

#include "reshard/runtime/program.h"
#include "reshard/runtime/verify_run.h"
#include "runtime/self_test/logical_content.h"
#include "tests/catch.h"
#include "tests/runtime/chunk_cases.h"
#include "tests/runtime/packed/check_rank.h"
#include "tests/runtime/packed/packed_world.h"
#include "tests/runtime/shared/shared_memory_world.h"

namespace reshard {
namespace {

using testing::Case;
using testing::CheckAllOk;
using testing::CheckRank;
using testing::DevicesOf;
using testing::kInChunks;
using testing::PlanInChunks;

TEST_CASE("chunks on threads are element-exact, and the bytes are the plan's") {
  for (const Case& c : kInChunks) {
    CAPTURE(c.mesh, c.from, c.to, c.target_mesh);
    for (const DType dtype : {DType::kI32, DType::kF32}) {
      const Plan plan = PlanInChunks(c, dtype);
      RunOptions options;
      options.repeat = 1;
      const auto report = RunPlanLocally(plan, options);
      INFO(report.status());
      REQUIRE(report.ok());
      CHECK(report->verified);
      CHECK(report->received_bytes_max == plan.totals.recv_bytes_max);
      CHECK(report->received_bytes_total == plan.totals.recv_bytes_total);
    }
  }
}

TEST_CASE("chunks in messages and through shared memory are element-exact, dense and strided") {
  for (const Case& c : kInChunks) {
    CAPTURE(c.mesh, c.from, c.to, c.target_mesh);
    const Plan plan = PlanInChunks(c, DType::kBF16);
    const auto content = self_test::LogicalContent::Create(plan, 1);
    REQUIRE(content.ok());
    for (const bool strided : {false, true}) {
      const auto check = [&](Communicator& comm) { return CheckRank(plan, *content, comm, strided); };
      const std::vector<int64_t> devices = DevicesOf(plan);
      for (const bool together : {false, true}) CheckAllOk(testing::RunPacked(devices, check, together));
      CheckAllOk(testing::RunSharedMemoryThreads(devices, check));
    }
  }
}

TEST_CASE("in a turn some tensors are moved and others reduced, in one exchange") {
  const Plan plan = PlanInChunks({"{n:2,g:2}", "[64, 24] avg<n,g>", "[64, 24]"}, DType::kF32);
  const auto program = CompileProgram(plan, 0, {CopyFor::kMessages, true});
  REQUIRE(program.ok());
  const StepProgram& first = program->steps.front();
  CHECK(first.op == Op::kReduceScatter);
  CHECK(first.group_size == 2);
  const StepProgram& middle = program->steps[program->steps.size() / 2];
  REQUIRE(middle.tensors.size() == plan.steps.size());
  CHECK(middle.op == Op::kExchange);
  CHECK(middle.group.empty());
  for (size_t s = 0; s < plan.steps.size(); ++s) {
    CHECK(middle.tensors[s].op == plan.steps[s].op);
    if (plan.steps[s].op == Op::kReduceScatter) CHECK(middle.tensors[s].reduce == ReduceOp::kAvg);
  }
}

TEST_CASE("a program in chunks has a step a turn, and two chunks of what lies between") {
  const Plan plan = PlanInChunks(kInChunks[0], DType::kI8);
  const auto steps = static_cast<int64_t>(plan.steps.size());
  const auto program = CompileProgram(plan, 0, {CopyFor::kMessages, true});
  REQUIRE(program.ok());
  REQUIRE(std::ssize(program->steps) == plan.chunks.Turns(steps));
  int64_t received = 0;
  for (int64_t turn = 0; turn < std::ssize(program->steps); ++turn) {
    const StepProgram& step = program->steps[turn];
    CHECK(std::ssize(step.tensors) == std::min({turn + 1, steps, plan.chunks.Turns(steps) - turn}));
    received += step.recv_bytes;
  }
  CHECK(received == plan.totals.recv_bytes_max);
  int64_t between = 0;
  for (size_t s = 0; s + 1 < plan.steps.size(); ++s) between += plan.steps[s].local_bytes_after_max;
  for (const int64_t bytes : program->scratch_bytes) CHECK(bytes <= between / plan.chunks.count + 64 * steps);
  // Ranks whose plans are cut otherwise do not agree.
  Plan other = plan;
  other.chunks.count = 1;
  CHECK_FALSE(CompileProgram(other, 0, {CopyFor::kMessages, true})->signature.fingerprint ==
              program->signature.fingerprint);
}

TEST_CASE("programs in chunks and others merge") {
  const Plan cut = PlanInChunks(kInChunks[1], DType::kI8);
  const auto whole = testing::PlanOf({"{n:2,g:2}", "[<n,g>64, 6]", "[64, 6]"}, DType::kI8);
  REQUIRE(whole.ok());
  const auto a = CompileProgram(*whole, 1), b = CompileProgram(cut, 1), c = CompileProgram(cut, 1);
  REQUIRE((a.ok() && b.ok() && c.ok()));
  const auto merged = MergePrograms({&*a, &*b, &*c});
  REQUIRE(merged.ok());
  for (size_t i = 6; i < merged->buffers.size(); ++i) {
    const Buffer& buffer = merged->buffers[i];
    if (buffer.part.of < 0) continue;
    CHECK((buffer.part.of >= 2 && buffer.part.of < 6));
    CHECK(buffer.bytes * cut.chunks.count == merged->buffers[buffer.part.of].bytes);
  }
}

}  // namespace
}  // namespace reshard
