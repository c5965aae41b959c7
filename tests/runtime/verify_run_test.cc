// Plans end to end on threads: every element is checked by logical index, and the bytes counted are the bytes planned.
#include "reshard/runtime/verify_run.h"

#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "reshard/layout/text.h"
#include "reshard/planner/planner.h"
#include "reshard/runtime/executor.h"
#include "reshard/runtime/local_world.h"
#include "runtime/local/available_memory.h"
#include "runtime/local/logical_content.h"
#include "tests/catch.h"

namespace reshard {
namespace {

constexpr DType kAllTypes[] = {DType::kBool, DType::kI8,  DType::kI16,      DType::kI32,    DType::kI64,
                               DType::kU8,   DType::kU16, DType::kU32,      DType::kU64,    DType::kF16,
                               DType::kBF16, DType::kF32, DType::kF64,      DType::kF8E4M3FN, DType::kF8E5M2,
                               DType::kF8E4M3FNUZ, DType::kF8E5M2FNUZ, DType::kC64, DType::kC128};

struct Case {
  std::string mesh;
  std::string from;
  std::string to;
  std::string target_mesh = "";  // empty: the same
};

std::shared_ptr<const Mesh> MeshOf(const std::string& text) {
  return std::make_shared<const Mesh>(ParseMesh(text).value());
}

absl::StatusOr<Plan> PlanOf(const Case& c, DType dtype = DType::kF32, const PlanOptions& options = {}) {
  const auto mesh = MeshOf(c.mesh);
  const auto target_mesh = c.target_mesh.empty() ? mesh : MeshOf(c.target_mesh);
  absl::StatusOr<Layout> from = ParseLayout(c.from, mesh);
  if (!from.ok()) return from.status();
  absl::StatusOr<Layout> to = ParseLayout(c.to, target_mesh);
  if (!to.ok()) return to.status();
  return MakePlan(*from, *to, dtype, options);
}

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

const Case kMoves[] = {
    {"{X:4,Y:4,Z:2}", "[8<X,Y>128, 32]", "[8<Y,X>128, 32]"},
    {"{X:4,Y:4,Z:2}", "[32<Y>128, 8<X>32]", "[32<X>128, 8<Y>32]"},
    {"{X:2}", "[<X>6, 8]", "[6, <X>8]"},
    {"{X:4}", "[<X>16]", "[16]"},
    {"{X:4}", "[16]", "[<X>16]"},
    {"{x:2,y:3}", "[<x>6]", "[<y>6]"},
    {"{X:4}", "[<X>6]", "[6]"},                    // 2,2,2,0
    {"{X:4}", "[<X>2, 5]", "[2, <X>5]"},           // ranks with nothing on both sides
    {"{X:2,Y:4}", "[<X,Y>7, 3]", "[7, <Y>3]"},
    {"{X:2}", "[<2,X>5]", "[<X>5]"},
    {"{X:4}", "[<2,~X>16, 3]", "[<X>16, 3]"},      // zigzag
    {"{X:4}", "[<X>16, 3]", "[<2,~X>16, 3]"},
    {"{X:4}", "[<2,~X>13]", "[13]"},               // uneven zigzag
    {"{X:3}", "[<4,X>100, 2]", "[<X>100, 2]"},     // block-cyclic, uneven
    {"{X:3}", "[<X=[5,0,2]>7, 2]", "[7, <X>2]"},   // explicit sizes with an empty shard
    {"{X:4}", "[<X:(1)2>8]", "[<X:(2)2>8]"},
    {"{X:4,Y:2}", "[<X:(2)2,Y>16, 4]", "[16, <X>4]"},
    {"{X:2,Y:2}", "[<X>4, <Y>4, 3]", "[4, <X>4, <Y>3]"},
    {"{X:4}", "[]", "[]"},
    {"{X:2}", "[0]", "[<X>0]"},
    {"{X:2}", "[<X>0, 4]", "[0, <X>4]"},
    {"{X:4}", "[1]", "[<X>1]"},
    {"{}", "[5, 4]", "[5, 4]"},
    {"{X:2}@[3,1]", "[<X>8]", "[8]"},
    // Other meshes: disjoint, overlapping, single devices, gaps between ids.
    {"{X:4}", "[<X>12]", "[<Y>12]", "{Y:3}@4"},
    {"{X:4}", "[<X>12, 2]", "[12, <Y>2]", "{Y:2}@2"},
    {"{X:3}", "[<X>9]", "[9]", "{}"},
    {"{}", "[9]", "[<X>9]", "{X:3}@1"},
    {"{}", "[]", "[]", "{X:3}@1"},
    {"{X:2}@[7,1000000000]", "[<X>10, 3]", "[10, <X>3]", "{X:2}@[1000000000,5]"},
    {"{X:4,Y:2}", "[<X>8, <Y>6]", "[<T>8, 6]", "{T:2}@8"},
    {"{X:8}", "[<X>8, 8]", "[8, <Y>8]", "{Y:4,Z:2}"},
};

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
    {"[8, 6] {}<X>", "[8, 6]"},          {"[8, 6] {}<X>", "[<X>8, 6]"},        {"[8, 6] {}<X,Y>", "[8, 6]"},
    {"[8, 6] {}<X,Y>", "[<X>8, <Y>6]"},  {"[8, 6] {}<X>", "[8, <Y>6]"},        {"[<Y>8, 6] {}<X>", "[8, 6]"},
    {"[<Y>8, 6] {}<X>", "[<X>8, <Y>6]"}, {"[8, 6] {}<X,Y>", "[8, 6] {}<X>"},   {"[8, 6] {}<X,Y>", "[<X>8, 6] {}<Y>"},
    {"[5, 3] {}<X,Y>", "[<X>5, 3]"},     {"[<Y>5, 3] {}<X>", "[5, <Y>3] {}<X>"}, {"[] {}<X>", "[]"},
    {"[0, 4] {}<X>", "[0, 4]"},          {"[1] {}<X,Y>", "[1]"},               {"[7] {}<X:(1)2>", "[<X>7]"},
    {"[8] {}<X>", "[8] {}<X:(1)2>"},     {"[2, 8] {}<X>", "[2, <2,~X>8]"},
};

std::string With(std::string text, ReduceOp op) {
  const size_t at = text.find("{}");
  return at == std::string::npos ? text : text.replace(at, 2, Name(op));
}

TEST_CASE("pending reductions give the defined values, in full and in part") {
  for (ReduceOp op : {ReduceOp::kSum, ReduceOp::kAvg, ReduceOp::kMin, ReduceOp::kMax, ReduceOp::kProd}) {
    for (const auto& [from, to] : kReductions) {
      for (DType dtype : {DType::kF32, DType::kBF16}) {
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
      const bool f8 = Name(dtype).substr(0, 2) == "f8";
      const bool complex = dtype == DType::kC64 || dtype == DType::kC128;
      const bool ordered = op == ReduceOp::kMin || op == ReduceOp::kMax;
      if (f8 || (complex && ordered) || (dtype == DType::kBool && op == ReduceOp::kAvg)) {
        const absl::StatusOr<Plan> plan = PlanOf(all, dtype);
        REQUIRE(plan.ok());
        const absl::Status status = RunPlanLocally(*plan, Quick()).status();
        CHECK(status.code() == (f8 ? absl::StatusCode::kUnimplemented : absl::StatusCode::kInvalidArgument));
        CHECK(std::string(status.message()).find(Name(dtype)) != std::string::npos);
      } else {
        RunCase(scatter, dtype);
        RunCase(all, dtype);
      }
    }
  }
}

TEST_CASE("a value pending over one axis and replicated over another is exact") {
  RunCase({"{node:4,gpu:4}", "[64, 16] sum<node>", "[64, 16]"}, DType::kBF16);
  RunCase({"{node:4,gpu:4}", "[61, 3] sum<node>", "[61, 3]"}, DType::kBF16);
}

TEST_CASE("large reductions go through many tasks") {
  RunCase({"{X:3}", "[1000003] sum<X>", "[1000003]"}, DType::kF32);
  RunCase({"{X:3}", "[1000, 1003] sum<X>", "[1000, <X>1003]"}, DType::kBF16);
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
  CHECK(ParseMemAvailable("MemTotal: 10 kB\nMemAvailable:    2048 kB\nBuffers: 1 kB\n") == 2048 * 1024);
  CHECK(ParseMemAvailable("MemTotal: 10 kB\n") == -1);
  CHECK(ParseMemAvailable("MemAvailable: lots kB\n") == -1);
  CHECK(ParseMemAvailable("") == -1);
  CHECK(AvailableMemoryBytes() > 0);
}

// A check that never fires proves nothing: each way to be wrong must show.
TEST_CASE("the content of a tensor shows wrong, missing and doubled values") {
  const Case moves{"{X:4}", "[<X>64]", "[64]"};
  const absl::StatusOr<Plan> plan = PlanOf(moves, DType::kI16);
  REQUIRE(plan.ok());
  const absl::StatusOr<LogicalContent> content = LogicalContent::Create(*plan, 1);
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
  CHECK(LogicalContent::Create(*plan, 2)->CountMismatches(plan->target, 2, data.data(), &first) > 60);

  for (ReduceOp op : {ReduceOp::kSum, ReduceOp::kAvg, ReduceOp::kMin, ReduceOp::kMax, ReduceOp::kProd}) {
    for (const char* mesh : {"{X:2}", "{X:4}", "{X:7}", "{X:200}"}) {
      const absl::StatusOr<Plan> pending = PlanOf({mesh, With("[2000] {}<X>", op), "[2000]"}, DType::kI64);
      REQUIRE(pending.ok());
      const int64_t ranks = pending->source.mesh().size();
      CAPTURE(Name(op), ranks);
      const absl::StatusOr<LogicalContent> numbers = LogicalContent::Create(*pending, 1);
      REQUIRE(numbers.ok());
      // The fragments, reduced here; then once more with the contribution of rank 1 missing, or counted twice.
      const auto reduce = [&](int64_t skipped, int64_t doubled) {
        std::vector<int64_t> out(2000);
        std::vector<int64_t> part(2000);
        int64_t count = 0;
        for (int64_t r = 0; r < ranks; ++r) {
          if (r == skipped) continue;
          numbers->Fill(pending->source, r, part.data());
          for (int times = r == doubled ? 2 : 1; times > 0; --times, ++count) {
            for (size_t i = 0; i < out.size(); ++i) {
              if (count == 0) out[i] = part[i];
              else if (op == ReduceOp::kMin) out[i] = std::min(out[i], part[i]);
              else if (op == ReduceOp::kMax) out[i] = std::max(out[i], part[i]);
              else if (op == ReduceOp::kProd) out[i] *= part[i];
              else out[i] += part[i];
            }
          }
        }
        if (op == ReduceOp::kAvg) {
          for (int64_t& v : out) v /= count;
        }
        return numbers->CountMismatches(pending->target, 0, out.data(), &first);
      };
      CHECK(reduce(-1, -1) == 0);
      CHECK(reduce(1, -1) > 0);
      if (op == ReduceOp::kSum || op == ReduceOp::kProd) CHECK(reduce(-1, 1) > 0);
    }
  }
}

TEST_CASE("ranks outside the plan take part with nothing") {
  const absl::StatusOr<Plan> plan = PlanOf({"{X:2}@1", "[<X>8]", "[8]"});
  REQUIRE(plan.ok());
  LocalWorld world(5);
  const absl::Status status = world.Run([&](Communicator& comm) -> absl::Status {
    absl::StatusOr<Program> program = CompileProgram(*plan, comm.rank());
    if (!program.ok()) return program.status();
    const bool held = comm.rank() == 1 || comm.rank() == 2;
    if (program->buffers[0].held != held) return absl::InternalError("held");
    absl::StatusOr<Executor> executor =
        Executor::Create(std::make_shared<const Program>(*std::move(program)), &comm);
    if (!executor.ok()) return executor.status();
    if (!held) return executor->Execute({}, {}).status();
    std::vector<float> source(4, static_cast<float>(comm.rank()));
    std::vector<float> target(8);
    const absl::Status done = executor->Execute(DenseView(static_cast<const void*>(source.data()), DType::kF32, {4}),
                                                DenseView(static_cast<void*>(target.data()), DType::kF32, {8})).status();
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
      CHECK(programs[i].fingerprint == programs[0].fingerprint);
      for (size_t j = 0; j < programs.size(); ++j) {
        if (devices[i] == devices[j]) continue;
        for (size_t k = 0; k < programs[i].steps.size(); ++k) {
          std::vector<Region> sent;
          std::vector<Region> received;
          for (const Transfer& t : programs[i].steps[k].sends) {
            if (t.peer == devices[j]) sent.push_back(t.region);
          }
          for (const Transfer& t : programs[j].steps[k].receives) {
            if (t.peer == devices[i]) received.push_back(t.region);
          }
          CHECK(sent == received);
        }
      }
    }
  }
}

TEST_CASE("different problems have different fingerprints") {
  const auto fingerprint = [](const Case& c, DType dtype) { return CompileProgram(PlanOf(c, dtype).value(), 0)->fingerprint; };
  const Case base{"{X:4}", "[<X>16]", "[16]"};
  CHECK(fingerprint(base, DType::kF32) == fingerprint(base, DType::kF32));
  CHECK_FALSE(fingerprint(base, DType::kF32) == fingerprint(base, DType::kI32));
  CHECK_FALSE(fingerprint(base, DType::kF32) == fingerprint({"{X:4}", "[<X>17]", "[17]"}, DType::kF32));
  CHECK_FALSE(fingerprint(base, DType::kF32) == fingerprint({"{X:4}@[1,0,2,3]", "[<X>16]", "[16]"}, DType::kF32));
}

}  // namespace
}  // namespace reshard
