// Plans end to end on threads: every element is checked by logical index, and the bytes counted are the bytes planned.
#include "reshard/runtime/verify_run.h"

#include <string>
#include <vector>

#include "reshard/planner/planner.h"
#include "runtime/self_test/available_memory.h"
#include "runtime/self_test/logical_content.h"
#include "tests/catch.h"
#include "tests/runtime/cases.h"

namespace reshard {
namespace {

using testing::Case;
using testing::kAllTypes;
using testing::kMoves;
using testing::PlanOf;

RunOptions Quick() {
  RunOptions options;
  options.repeat = 1;
  options.timeout = absl::Seconds(60);
  return options;
}

RunReport RunCase(const Case& c, DType dtype = DType::kF32, const PlanOptions& options = {}) {
  CAPTURE(c.mesh, c.from, c.to, c.target_mesh, std::string(Name(dtype)));
  const absl::StatusOr<Plan> plan = PlanOf(c, dtype, options);
  INFO(plan.status());
  REQUIRE(plan.ok());
  const absl::StatusOr<RunReport> report = RunPlanLocally(*plan, Quick());
  INFO(report.status());
  REQUIRE(report.ok());
  INFO(report->first_mismatch);
  CHECK(report->verified);
  CHECK(report->mismatches == 0);
  CHECK(report->received_bytes_max == plan->totals.recv_bytes_max);
  CHECK(report->received_bytes_total == plan->totals.recv_bytes_total);
  return *report;
}

TEST_CASE("moves are element-exact, and the bytes are the plan's") {
  for (const Case& c : kMoves) {
    RunCase(c);
    PlanOptions bytes;
    bytes.objective = Objective::kBytes;
    RunCase(c, DType::kI8, bytes);
  }
}

TEST_CASE("sequences of steps are element-exact, intermediates included") {
  const Case sequences[] = {
      {"{A:2,B:2,C:2}", "[<A,B>8, 8, <C>8]", "[8, <C,A>8, <B>8]"},
      {"{A:2,B:2,C:2}", "[<A,B,C>8, 8, 8]", "[<C>8, <B>8, <A>8]"},
      {"{A:2,B:2,C:2}", "[<A>8, <B>8, <C>8]", "[8, 8, <C,B,A>8]"},
      {"{A:2,B:2,C:2}", "[8, <B,A>8, 8]", "[<A>8, 8, <B,C>8]"},
      {"{w1:2,w2:2}", "[8, <w1>8]", "[<w1,w2>8, 8]"},
      {"{x:4,y:2}", "[<y>16, 16, <x>16]", "[16, <x,y>16, 16]"},
      {"{x:2,y:3}", "[<x>6, 5]", "[<y>6, 5]"},  // Slice, AllPermute, AllGather
  };
  PlanOptions options;
  options.ops = OpSet::All().without(Op::kExchange);
  size_t longest = 0;
  for (const Case& c : sequences) {
    for (bool boxes : {false, true}) {
      options.boxes_only = boxes;
      RunCase(c, DType::kI16, options);
      longest = std::max(longest, PlanOf(c, DType::kI16, options)->steps.size());
    }
  }
  CHECK(longest >= 3);  // so that both scratch buffers are used
}

TEST_CASE("every type moves") {
  for (DType dtype : kAllTypes) {
    RunCase({"{X:2,Y:3}", "[<X,Y>13, 5]", "[<Y>13, <X>5]"}, dtype);
    RunCase({"{X:2,Y:3}", "[13, <X>5]", "[13, <X>5]"}, dtype);  // no steps
  }
}

const char* const kReductions[][2] = {
    {"[8, 6] {}<X>", "[8, 6]"},
    {"[8, 6] {}<X>", "[<X>8, 6]"},
    {"[8, 6] {}<X,Y>", "[8, 6]"},
    {"[8, 6] {}<X,Y>", "[<X>8, <Y>6]"},
    {"[8, 6] {}<X>", "[8, <Y>6]"},
    {"[<Y>8, 6] {}<X>", "[8, 6]"},
    {"[<Y>8, 6] {}<X>", "[<X>8, <Y>6]"},
    {"[8, 6] {}<X,Y>", "[8, 6] {}<X>"},
    {"[8, 6] {}<X,Y>", "[<X>8, 6] {}<Y>"},
    {"[5, 3] {}<X,Y>", "[<X>5, 3]"},
    {"[<Y>5, 3] {}<X>", "[5, <Y>3] {}<X>"},
    {"[] {}<X>", "[]"},
    {"[0, 4] {}<X>", "[0, 4]"},
    {"[1] {}<X,Y>", "[1]"},
    {"[7] {}<X:(1)2>", "[<X>7]"},
    {"[8] {}<X>", "[8] {}<X:(1)2>"},
    {"[2, 8] {}<X>", "[2, <2,~X>8]"},
};

std::string With(std::string text, ReduceOp op) {
  const size_t at = text.find("{}");
  return at == std::string::npos ? text : text.replace(at, 2, Name(op));
}

TEST_CASE("partial values give the defined values, in full and in part") {
  for (ReduceOp op : {ReduceOp::kSum, ReduceOp::kAvg, ReduceOp::kMin, ReduceOp::kMax, ReduceOp::kProd}) {
    for (const auto& [from, to] : kReductions) {
      for (DType dtype : {DType::kF32, DType::kBF16, DType::kF8E5M2FNUZ}) {
        RunCase({"{X:4,Y:3}", With(from, op), With(to, op)}, dtype);
      }
    }
  }
}

TEST_CASE("every type that a reduction has is reduced") {
  for (ReduceOp op : {ReduceOp::kSum, ReduceOp::kAvg, ReduceOp::kMin, ReduceOp::kMax, ReduceOp::kProd}) {
    for (DType dtype : kAllTypes) {
      const Case scatter{"{X:4,Y:2}", With("[9, 70] {}<X,Y>", op), With("[<X>9, 70] {}<Y>", op)};
      const Case all{"{X:4,Y:2}", With("[9, 70] {}<X>", op), "[9, 70]"};
      CAPTURE(Name(op), std::string(Name(dtype)));
      const bool complex = dtype == DType::kC64 || dtype == DType::kC128;
      const bool ordered = op == ReduceOp::kMin || op == ReduceOp::kMax;
      if ((complex && ordered) || (dtype == DType::kBool && op == ReduceOp::kAvg)) {
        const absl::StatusOr<Plan> plan = PlanOf(all, dtype);
        REQUIRE(plan.ok());
        const absl::Status status = RunPlanLocally(*plan, Quick()).status();
        CHECK(status.code() == absl::StatusCode::kInvalidArgument);
        CHECK(std::string(status.message()).find(Name(dtype)) != std::string::npos);
      } else {
        RunCase(scatter, dtype);
        RunCase(all, dtype);
      }
    }
  }
}

TEST_CASE("f8 values are reduced over many axes, in part too") {
  for (ReduceOp op : {ReduceOp::kSum, ReduceOp::kAvg, ReduceOp::kMin, ReduceOp::kMax, ReduceOp::kProd}) {
    for (DType dtype : {DType::kF8E4M3FN, DType::kF8E5M2, DType::kF8E4M3FNUZ, DType::kF8E5M2FNUZ}) {
      RunCase({"{A:2,B:3,C:2,D:2,E:2}", With("[20, 30] {}<A,B,C,D,E>", op), With("[20, <D>30] {}<A,C>", op)}, dtype);
    }
  }
}

TEST_CASE("a value partial over one axis and replicated over another is exact") {
  RunCase({"{node:4,gpu:4}", "[64, 16] sum<node>", "[64, 16]"}, DType::kBF16);
  RunCase({"{node:4,gpu:4}", "[61, 3] sum<node>", "[61, 3]"}, DType::kBF16);
}

TEST_CASE("large reductions go through many tasks") {
  RunCase({"{X:3}", "[1000003] sum<X>", "[1000003]"}, DType::kF32);
  RunCase({"{X:3}", "[1000, 1003] sum<X>", "[1000, <X>1003]"}, DType::kBF16);
}

TEST_CASE("what does not fit the caches is streamed, and arrives") {
  // More than 12 MiB a core on up to four cores; rows of 8208 and 5472 bytes do not start on cache lines.
  RunCase({"{X:2}", "[<X>4096, 2052]", "[4096, <X>2052]"}, DType::kF64);
  RunCase({"{X:3}", "[<X>4096, 2052]", "[4096, <X>2052]"}, DType::kF64);
  RunCase({"{X:2}", "[3300001] sum<X>", "[3300001]"}, DType::kF64);
}

TEST_CASE("a hundred ranks and more") {
  RunCase({"{X:16,Y:8}", "[<X,Y>512, 40]", "[<Y,X>512, 40]"});
  RunCase({"{X:16,Y:16}", "[<X>64, <Y>64]", "[<Y>64, <X>64]"});
  RunCase({"{X:128}", "[<X>1000, 3]", "[1000, 3]", "{}"});
  RunCase({"{X:96}", "[40] sum<X>", "[40]"}, DType::kBF16);
}

TEST_CASE("a step cut into rounds runs") {
  const Case c{"{X:4}", "[<X>64, 64]", "[64, <X>64]"};
  const absl::StatusOr<Plan> free = PlanOf(c);
  REQUIRE(free.ok());
  PlanOptions options;
  options.memory_limit_bytes = free->totals.peak_bytes - 1024;
  RunCase(c, DType::kF32, options);
}

TEST_CASE("figures of a run") {
  const RunReport report = RunCase({"{X:4}", "[<X>1024, 256]", "[1024, <X>256]"});
  CHECK(report.ranks == 4);
  CHECK(report.bytes_moved == 1024 * 256 * 4);
  CHECK(report.seconds_median > 0);
  CHECK(report.seconds_min <= report.seconds_median);
  CHECK(report.memcpy_seconds_median > 0);
  CHECK(report.memcpy_ratio == Approx(report.memcpy_seconds_median / report.seconds_median));
  CHECK(report.elements_checked == 2 * 1024 * 256);
  CHECK(report.memory_bytes >= 2 * 1024 * 256 * 4);

  CHECK(report.fresh_seconds_median == 0);
  CHECK(report.fresh_memcpy_seconds_median == 0);
  const absl::StatusOr<Plan> gather = PlanOf({"{X:4}", "[<X>1024, 256]", "[1024, 256]"});
  REQUIRE(gather.ok());
  RunOptions fresh = Quick();
  fresh.fresh = true;
  const absl::StatusOr<RunReport> anew = RunPlanLocally(*gather, fresh);
  REQUIRE(anew.ok());
  CHECK(anew->verified);
  CHECK(anew->seconds_median > 0);
  CHECK(anew->fresh_seconds_median > 0);
  CHECK(anew->fresh_memcpy_seconds_median > 0);

  // All ranks of a gather write the whole tensor; intermediates count.
  CHECK(RunCase({"{X:4}", "[<X>64]", "[64]"}).bytes_moved == 4 * 64 * 4);
  // No steps: every rank copies what it has.
  CHECK(RunCase({"{X:4}", "[<X>64]", "[<X>64]"}).bytes_moved == 64 * 4);

  const absl::StatusOr<Plan> plan = PlanOf({"{X:4}", "[<X>64]", "[64]"});
  RunOptions options = Quick();
  options.repeat = 0;
  options.verify = false;
  const absl::StatusOr<RunReport> silent = RunPlanLocally(*plan, options);
  REQUIRE(silent.ok());
  CHECK_FALSE(silent->verified);
  CHECK(silent->seconds_median == 0);
  options.repeat = -1;
  CHECK(RunPlanLocally(*plan, options).status().code() == absl::StatusCode::kInvalidArgument);
}

TEST_CASE("too many ranks and too much memory are refused with the figures") {
  const absl::StatusOr<Plan> many = PlanOf({"{X:4097}", "[<X>8194]", "[<X>8194]"});
  REQUIRE(many.ok());
  const absl::Status ranks = RunPlanLocally(*many, Quick()).status();
  CHECK(ranks.code() == absl::StatusCode::kResourceExhausted);
  CHECK(std::string(ranks.message()).find("4096") != std::string::npos);

  for (const char* size : {"1000000000000", "4000000000000000000"}) {
    const std::string n = size;
    const absl::StatusOr<Plan> large = PlanOf({"{X:2}", "[<X>" + n + "]", "[" + n + "]"}, DType::kI8);
    if (!large.ok()) continue;  // sizes that overflow are the planner's to refuse
    const absl::Status memory = RunPlanLocally(*large, Quick()).status();
    CHECK(memory.code() == absl::StatusCode::kResourceExhausted);
    CHECK(std::string(memory.message()).find("available") != std::string::npos);
  }
}

TEST_CASE("what the machine has available is read") {
  CHECK(self_test::ParseMemAvailable("MemTotal: 10 kB\nMemAvailable:    2048 kB\nBuffers: 1 kB\n") == 2048 * 1024);
  CHECK(self_test::ParseMemAvailable("MemTotal: 10 kB\n") == -1);
  CHECK(self_test::ParseMemAvailable("MemAvailable: lots kB\n") == -1);
  CHECK(self_test::ParseMemAvailable("") == -1);
  CHECK(self_test::AvailableMemoryBytes() > 0);
}

// A check that never fires proves nothing: each way to be wrong must show.
TEST_CASE("the content of a tensor shows wrong, missing and doubled values") {
  const Case moves{"{X:4}", "[<X>64]", "[64]"};
  const absl::StatusOr<Plan> plan = PlanOf(moves, DType::kI16);
  REQUIRE(plan.ok());
  const absl::StatusOr<self_test::LogicalContent> content = self_test::LogicalContent::Create(*plan, 1);
  REQUIRE(content.ok());
  std::vector<int16_t> data(64);
  int64_t first = -1;
  content->Fill(plan->target, 2, data.data());
  CHECK(content->CountMismatches(plan->target, 2, data.data(), &first) == 0);
  std::swap(data[5], data[9]);
  CHECK(content->CountMismatches(plan->target, 2, data.data(), &first) == 2);
  CHECK(first == 5);
  // Source fragments are pieces of the same tensor.
  std::vector<int16_t> shard(16);
  content->Fill(plan->source, 3, shard.data());
  CHECK(std::equal(shard.begin(), shard.end(), data.begin() + 48));
  // Another salt is another tensor.
  CHECK(self_test::LogicalContent::Create(*plan, 2)->CountMismatches(plan->target, 2, data.data(), &first) > 60);

  for (ReduceOp op : {ReduceOp::kSum, ReduceOp::kAvg, ReduceOp::kMin, ReduceOp::kMax, ReduceOp::kProd}) {
    for (const char* mesh : {"{X:2}", "{X:4}", "{X:7}", "{X:200}"}) {
      const absl::StatusOr<Plan> partial = PlanOf({mesh, With("[2000] {}<X>", op), "[2000]"}, DType::kI64);
      REQUIRE(partial.ok());
      const int64_t ranks = partial->source.mesh().size();
      CAPTURE(Name(op), ranks);
      const absl::StatusOr<self_test::LogicalContent> numbers = self_test::LogicalContent::Create(*partial, 1);
      REQUIRE(numbers.ok());
      // The fragments, reduced here; then once more with the contribution of rank 1 missing, or counted twice.
      const auto reduce = [&](int64_t skipped, int64_t doubled) {
        std::vector<int64_t> out(2000);
        std::vector<int64_t> part(2000);
        int64_t count = 0;
        for (int64_t r = 0; r < ranks; ++r) {
          if (r == skipped) continue;
          numbers->Fill(partial->source, r, part.data());
          for (int times = r == doubled ? 2 : 1; times > 0; --times, ++count) {
            for (size_t i = 0; i < out.size(); ++i) {
              if (count == 0)
                out[i] = part[i];
              else if (op == ReduceOp::kMin)
                out[i] = std::min(out[i], part[i]);
              else if (op == ReduceOp::kMax)
                out[i] = std::max(out[i], part[i]);
              else if (op == ReduceOp::kProd)
                out[i] *= part[i];
              else
                out[i] += part[i];
            }
          }
        }
        if (op == ReduceOp::kAvg) {
          for (int64_t& v : out) v /= count;
        }
        return numbers->CountMismatches(partial->target, 0, out.data(), &first);
      };
      CHECK(reduce(-1, -1) == 0);
      CHECK(reduce(1, -1) > 0);
      if (op == ReduceOp::kSum || op == ReduceOp::kProd) CHECK(reduce(-1, 1) > 0);
    }
  }
}

}  // namespace
}  // namespace reshard
