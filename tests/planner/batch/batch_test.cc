// Many tensors as one schedule: what is planned once, how buckets are cut, who sends, and that the figures are those of
// the tensors' messages, counted one by one.
#include "reshard/planner/batch.h"

#include <algorithm>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "planner/batch/step_loads.h"
#include "reshard/layout/text.h"
#include "reshard/planner/planner.h"
#include "reshard/planner/report.h"
#include "reshard/planner/traffic.h"
#include "tests/catch.h"
#include "tests/layouts.h"
#include "tests/planner/lacked.h"

namespace reshard {
namespace {

Problem ProblemOf(const std::string& mesh, const std::string& from, const std::string& to,
                  const std::string& target_mesh = "", DType dtype = DType::kBF16) {
  return testing::ProblemOf(mesh, from, to, target_mesh, dtype);
}

std::vector<Problem> Repeated(const Problem& problem, int count) {
  return std::vector<Problem>(static_cast<size_t>(count), problem);
}

struct Counted {
  int64_t recv = 0, send = 0, between = 0, lacks = 0;
};

int64_t Lacks(const Layout& source, const Layout& target, int64_t device) {
  const auto to = target.mesh().Position(device);
  return to ? testing::LackedElements(source, target, device, *to) : 0;
}

std::map<int64_t, Counted> CountMessages(const BatchPlan& batch) {
  std::map<int64_t, Counted> out;
  for (size_t t = 0; t < batch.tensors.size(); ++t) {
    const Plan plan = batch.PlanOf(static_cast<int64_t>(t));
    const int64_t element = SizeOf(plan.dtype);
    for (const Layout* layout : {&plan.source, &plan.target}) {
      for (int64_t p = 0; p < layout->mesh().size(); ++p) out[layout->mesh().Device(p)];
    }
    for (auto& [device, counted] : out) counted.lacks += Lacks(plan.source, plan.target, device) * element;
    for (const Step& step : plan.steps) {
      const auto transfers = TransferSchedule::Create(step, plan.options.topology).value();
      for (int64_t device : transfers->Devices()) {
        for (const Message& message : transfers->Receives(device)) {
          if (message.sender == message.receiver) continue;
          out[message.receiver].recv += message.elements() * element;
          out[message.sender].send += message.elements() * element;
          if (step.crosses_meshes()) out[message.sender].between += message.elements() * element;
        }
      }
    }
  }
  return out;
}

// Everything a batch says about bytes, against the messages of its tensors.
void CheckFigures(const BatchPlan& batch) {
  const auto counted = CountMessages(batch);
  REQUIRE(batch.devices.size() == counted.size());
  int64_t recv_max = 0, recv_total = 0, send_max = 0, send_total = 0, lacks_max = 0, lacks_total = 0;
  auto it = counted.begin();
  for (const BatchDevice& device : batch.devices) {
    CAPTURE(device.device);
    REQUIRE(device.device == it->first);
    CHECK(device.recv == it->second.recv);
    CHECK(device.send == it->second.send);
    CHECK(device.send_between_meshes == it->second.between);
    CHECK(device.recv_bound == it->second.lacks);
    CHECK(device.recv >= device.recv_bound);
    recv_max = std::max(recv_max, it->second.recv);
    recv_total += it->second.recv;
    send_max = std::max(send_max, it->second.send);
    send_total += it->second.send;
    lacks_max = std::max(lacks_max, it->second.lacks);
    lacks_total += it->second.lacks;
    ++it;
  }
  CHECK(batch.totals.recv_bytes_max == recv_max);
  CHECK(batch.totals.recv_bytes_total == recv_total);
  CHECK(batch.totals.send_bytes_max == send_max);
  CHECK(batch.totals.send_bytes_mean == Approx(static_cast<double>(send_total) / static_cast<double>(counted.size())));
  CHECK(batch.bounds.recv_bytes_max == lacks_max);
  CHECK(batch.bounds.recv_bytes_total == lacks_total);
  int64_t by_step = 0, next = 0;
  for (size_t b = 0; b < batch.buckets.size(); ++b) {
    const BatchBucket& bucket = batch.buckets[b];
    CHECK(bucket.first == next);
    CHECK(bucket.count > 0);
    next += bucket.count;
    int64_t stage = -1, time = 0;
    for (const BatchStep& step : bucket.steps) {
      CHECK(step.stage == ++stage);  // nothing is reduced here: one exchange a stage
      by_step += step.recv_bytes_total;
      time += step.time_ns;
      int64_t by_level = 0;
      for (const LevelFigures& level : step.levels) by_level += level.recv_bytes_total;
      CHECK(by_level == step.recv_bytes_total);
    }
    CHECK(time == bucket.time_ns);
    for (int64_t t = bucket.first; t < next; ++t) CHECK(batch.tensors[t].bucket == static_cast<int64_t>(b));
  }
  CHECK(next == static_cast<int64_t>(batch.tensors.size()));
  CHECK(by_step == recv_total);
}

TEST_CASE("equal problems are planned once") {
  std::vector<Problem> problems;
  for (int i = 0; i < 40; ++i) {
    const std::string size = std::to_string(16 * (1 + i % 5));
    problems.push_back(ProblemOf("{X:4}", "[<X>" + size + ", 8]", "[" + size + ", <X>8]"));
  }
  problems.push_back(ProblemOf("{X:4}", "[<X>16, 8]", "[16, <X>8]", "", DType::kF32));
  problems.push_back(ProblemOf("{X:4}@4", "[<X>16, 8]", "[16, <X>8]"));
  const auto batch = PlanBatch(problems);
  REQUIRE(batch.ok());
  CHECK(batch->plans.size() == 7);
  for (size_t t = 0; t < problems.size(); ++t) {
    const Plan plan = batch->PlanOf(static_cast<int64_t>(t));
    CHECK(plan.source == problems[t].source);
    CHECK(plan.target == problems[t].target);
    CHECK(plan.dtype == problems[t].dtype);
  }
  CheckFigures(*batch);
}

// Six experts in eight slots of four devices, each at least once. With `doubled`, some devices hold one twice.
std::string RandomSlots(std::mt19937_64& random, bool doubled) {
  std::vector<int> experts = {0, 1, 2, 3, 4, 5};
  std::shuffle(experts.begin(), experts.end(), random);
  std::string out = "<ep={";
  for (size_t device = 0; device < 4; ++device) {
    const int last = device < 2 ? experts[4 + device] : experts[doubled && device == 3 ? 3 : random() % 3];
    out += (device > 0 ? "|" : "") + std::to_string(experts[device]) + "," +
           std::to_string(last == experts[device] && !doubled ? experts[(device + 1) % 4] : last);
  }
  return out + "}>6";
}

TEST_CASE("tensors with equal slot tables and rows of equal size get the plans that they get alone") {
  const uint64_t seed = testing::Seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  for (int round = 0; round < 48; ++round) {
    const bool doubled = round % 4 == 0;
    const std::string from = round % 5 == 4 ? "<ep>6" : RandomSlots(random, false), to = RandomSlots(random, doubled);
    const std::string mesh = round % 3 == 2 ? "{ep:4,r:2}" : "{ep:4}", other = round % 7 == 6 ? "{ep:4,tp:8}@4" : "";
    std::vector<Problem> problems;
    // Those of one line have one plan over one mesh. Between meshes the second can be cut further than the first.
    const std::vector<std::vector<std::pair<std::string, std::string>>> shapes = {
        {{"", ", 4, 4"}, {"", ", 16"}, {"1, ", ", 2, 8"}},
        {{"3, ", ", 64"}, {"1, 3, ", ", 8, 8"}, {"3, 1, ", ", 64, 1"}},
        {{"", ", 64, 3"}, {"", ", 192"}},
        {{"", ", 512, 767"}},
        {{"", ""}, {"", ", 1"}}};
    for (const auto& alike : shapes) {
      for (const auto& [before, after] : alike) {
        problems.push_back(ProblemOf(mesh, "[" + before + from + after + "]", "[" + before + to + after + "]", other));
      }
    }
    if (round % 2 == 1) std::reverse(problems.begin(), problems.end());
    BatchOptions options;
    if (round % 2 == 1)
      options.plan.topology = {"pairs", {{2, 400'000'000'000, 3000, 0}, {0, 50'000'000'000, 12000, 0}}};
    if (round % 6 >= 3) options.plan.objective = Objective::kBytes;
    if (round % 8 == 5) options.plan.memory_limit_bytes = 64 << 20;
    if (round % 8 == 7) options.plan.memory_limit_bytes = 5 << 20;  // only in rounds
    const auto batch = PlanBatch(problems, options);
    REQUIRE(batch.ok());
    PlanOptions alone = options.plan;
    alone.overlap = false;
    for (size_t t = 0; t < problems.size(); ++t) {
      CAPTURE(round, t);
      auto plan = MakePlan(problems[t], alone);
      REQUIRE(plan.ok());
      plan->options.overlap = true;
      const auto one = PlanToJson(batch->PlanOf(static_cast<int64_t>(t))), expected = PlanToJson(*plan);
      REQUIRE(one.ok());
      REQUIRE(expected.ok());
      CHECK(*one == *expected);
    }
    if (!doubled) CheckFigures(*batch);  // an index for two slots is received once
  }
}

TEST_CASE("holders of replicas share the sending of a batch") {
  SECTION("one piece a tensor, eight holders: each sends as often as the others") {
    const auto batch = PlanBatch(Repeated(ProblemOf("{dp:8}", "[64]", "[64]", "{}@8"), 16));
    REQUIRE(batch.ok());
    CheckFigures(*batch);
    CHECK(batch->totals.send_between_meshes_max == 2 * 128);
    CHECK(batch->totals.send_imbalance == 1.0);
  }
  SECTION("fewer tensors than holders") {
    const auto batch = PlanBatch(Repeated(ProblemOf("{dp:8}", "[64]", "[64]", "{}@8"), 5));
    REQUIRE(batch.ok());
    CheckFigures(*batch);
    CHECK(batch->totals.send_between_meshes_max == 128);
  }
  SECTION("tensors of different sizes, as uneven as their number allows") {
    std::vector<Problem> problems;
    for (int i = 0; i < 60; ++i) {
      const std::string size = std::to_string(12 * (1 + i % 7));
      problems.push_back(ProblemOf("{dp:4,tp:3}", "[<tp>" + size + "]", "[<x>" + size + "]", "{x:2}@12"));
    }
    const auto batch = PlanBatch(problems);
    REQUIRE(batch.ok());
    CheckFigures(*batch);
    CHECK(batch->totals.send_imbalance <= 1.05);
  }
  SECTION("where a shard has one holder there is nothing to choose") {
    const auto batch = PlanBatch(Repeated(ProblemOf("{X:4}", "[<X>64]", "[64]", "{}@4"), 3));
    REQUIRE(batch.ok());
    CheckFigures(*batch);
    for (const BatchTensor& tensor : batch->tensors) CHECK(tensor.first_holder == 0);
  }
}

TEST_CASE("counting holders from another one moves what each sends") {
  const uint64_t seed = testing::Seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  const std::vector<std::string> from = {"[24, 6]",       "[<a>24, 6]",   "[<b>24, 6]", "[24, <b>6]",
                                         "[<a>24, <b>6]", "[<3,b>25, 7]", "[<a>25, 7]"};
  const std::vector<std::string> to = {"[<x>24, 6]", "[24, <y>6]", "[24, 6]", "[<x,y>24, 6]", "[<y>24, <x>6]"};
  for (int i = 0; i < 60; ++i) {
    std::string source = from[random() % from.size()], target = to[random() % to.size()];
    if (source.find("25") != std::string::npos) target = "[<x>25, <y>7]";
    const std::string target_mesh = "{x:2,y:3}@" + std::to_string(random() % 9);
    CAPTURE(source, target, target_mesh);
    const Problem problem = ProblemOf("{a:2,c:2,b:2}", source, target, target_mesh);
    Step step;
    step.from = problem.source;
    step.to = problem.target;
    batch::DeviceList devices;
    devices.Add(step.from.mesh());
    devices.Add(step.to.mesh());
    devices.Finish();
    const auto rotation = batch::HolderRotation::Create(step, devices).value();
    transfers::ShardMaps maps({});
    const auto sent = [&](int64_t first) {
      Step moved = step;
      moved.first_holder = first;
      std::map<int32_t, int64_t> out;
      const auto now = batch::LoadsOf(moved, DType::kI8, Topology::Flat(), devices, maps).value();
      for (const batch::Load& load : now) {
        if (load.send > 0) out[load.device] += load.send;
      }
      return out;
    };
    const auto loads = batch::LoadsOf(step, DType::kI8, Topology::Flat(), devices, maps).value();
    const auto zero = sent(0);
    const int64_t period = rotation.Period(loads);
    REQUIRE(rotation.holders() % period == 0);
    for (int64_t first = 0; first < 2 * rotation.holders(); ++first) {
      CAPTURE(first, period);
      std::map<int32_t, int64_t> expected;
      for (const auto& [device, bytes] : zero) expected[rotation.Moved(device, first)] += bytes;
      CHECK(sent(first) == expected);
      if (first % period == 0) CHECK(sent(first) == zero);
    }
  }
}

TEST_CASE("figures of random batches are those of their messages") {
  const uint64_t seed = testing::Seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  const std::vector<std::string> layouts = {"[12, 10]", "[<a>12, 10]", "[<b>12, <a>10]", "[12, <a,b>10]",
                                            "[<b,a>12, 10]"};
  const std::vector<std::string> others = {"[12, 10]", "[<x>12, 10]", "[12, <x>10]"};
  for (int round = 0; round < 12; ++round) {
    std::vector<Problem> problems;
    for (int i = 0; i < 15; ++i) {
      const std::string& source = layouts[random() % layouts.size()];
      const DType dtype = random() % 2 == 0 ? DType::kI8 : DType::kF32;
      if (random() % 2 == 0) {
        problems.push_back(ProblemOf("{a:2,b:4}", source, layouts[random() % layouts.size()], "", dtype));
      } else {
        problems.push_back(ProblemOf("{a:2,b:4}", source, others[random() % others.size()],
                                     random() % 2 == 0 ? "{x:3}@5" : "{x:3,r:2}@[20,3,9,11,0,7]", dtype));
      }
    }
    BatchOptions options;
    if (round % 2 == 1) options.plan.topology = Topology::Preset("dgx-h100").value();
    if (round % 3 == 1) options.plan.objective = Objective::kBytes;
    if (round % 3 == 2) options.bucket_bytes = 700;
    const auto batch = PlanBatch(problems, options);
    REQUIRE(batch.ok());
    CheckFigures(*batch);
    CHECK((options.bucket_bytes || batch->buckets.size() == 1));
  }
}

TEST_CASE("buckets keep to the limits") {
  const Problem problem = ProblemOf("{X:4}", "[<X>64, 64]", "[64, <X>64]");
  const Plan plan = MakePlan({problem.source, problem.target, problem.dtype}).value();
  BatchOptions options;
  options.plan.memory_limit_bytes = 3 * plan.totals.peak_bytes + 1;
  auto batch = PlanBatch(Repeated(problem, 7), options);
  REQUIRE(batch.ok());
  REQUIRE(batch->buckets.size() == 3);
  CHECK(batch->buckets[0].count == 3);
  CHECK(batch->buckets[2].count == 1);
  for (const BatchBucket& bucket : batch->buckets) CHECK(bucket.peak_bytes <= *options.plan.memory_limit_bytes);
  CHECK(batch->totals.peak_bytes == 3 * plan.totals.peak_bytes);

  options.plan.memory_limit_bytes.reset();
  options.bucket_bytes = 1;  // less than any tensor
  batch = PlanBatch(Repeated(problem, 4), options);
  REQUIRE(batch.ok());
  CHECK(batch->buckets.size() == 4);

  // One exchange a bucket: a latency is paid once.
  options.bucket_bytes.reset();
  batch = PlanBatch(Repeated(problem, 100), options);
  REQUIRE(batch.ok());
  REQUIRE(batch->buckets.size() == 1);
  REQUIRE(batch->buckets[0].steps.size() == plan.steps.size());
  CHECK(batch->buckets[0].steps[0].op == plan.steps[0].op);
  CHECK(batch->buckets[0].time_ns < 100 * plan.totals.time_ns);
}

TEST_CASE("reductions go together where groups are the same") {
  std::vector<Problem> problems = {
      ProblemOf("{X:4,Y:2}", "[16] sum<X>", "[<X>16]"), ProblemOf("{X:4,Y:2}", "[32] sum<X>", "[<X>32]"),
      ProblemOf("{X:4,Y:2}", "[16] sum<Y>", "[<Y>16]"), ProblemOf("{X:4,Y:2}", "[<X>16]", "[16]")};
  const auto batch = PlanBatch(problems);
  REQUIRE(batch.ok());
  REQUIRE(batch->buckets.size() == 1);
  std::vector<std::pair<Op, int64_t>> steps;
  for (const BatchStep& step : batch->buckets[0].steps) steps.emplace_back(step.op, step.tensors);
  CHECK(steps ==
        std::vector<std::pair<Op, int64_t>>{{Op::kReduceScatter, 2}, {Op::kReduceScatter, 1}, {Op::kAllGather, 1}});
  CHECK(batch->totals.recv_bytes_max >= batch->bounds.recv_bytes_max);
  int64_t bound = 0;
  for (const BatchDevice& device : batch->devices) {
    CHECK(device.recv >= device.recv_bound);
    bound = std::max(bound, device.recv_bound);
  }
  CHECK(bound > 0);
}

TEST_CASE("the worst device of a batch is not the sum of the tensors' worst devices") {
  // Each tensor goes to another device: every one receives one tensor, none receives two.
  std::vector<Problem> problems;
  for (int i = 0; i < 4; ++i) {
    problems.push_back(ProblemOf("{X:4}", "[<X>64]", "[64]", "{}@" + std::to_string(4 + i)));
  }
  const auto batch = PlanBatch(problems);
  REQUIRE(batch.ok());
  CHECK(batch->bounds.recv_bytes_max == 128);
  CHECK(batch->totals.recv_bytes_max == 128);
  CHECK(batch->bounds.recv_bytes_total == 4 * 128);
  CheckFigures(*batch);
}

TEST_CASE("where latencies hardly count a batch stays at the bound") {
  // A receiver inside the source mesh holds a part already; plans for time pass it on anyway to save latencies.
  const Problem large = ProblemOf("{dp:8,tp:4}", "[<dp>4096, <tp>4096]", "[<t>4096, 4096]", "{r:4,t:2}");
  const Problem small = ProblemOf("{dp:8,tp:4}", "[<dp>64, <tp>64]", "[<t>64, 64]", "{r:4,t:2}");
  const auto batch = PlanBatch(Repeated(large, 200));
  REQUIRE(batch.ok());
  CHECK(batch->totals.recv_bytes_total == batch->bounds.recv_bytes_total);
  CHECK(batch->totals.recv_bytes_max == batch->bounds.recv_bytes_max);
  // Every shard has one holder, which sends it to the four replicas but itself: at most 8 of 32 send one fewer.
  CHECK(batch->totals.send_imbalance <= 4 / 3.75);
  const auto few = PlanBatch(Repeated(small, 2));
  REQUIRE(few.ok());
  const Plan plan = MakePlan({small.source, small.target, small.dtype}).value();
  CHECK(few->plans[0].steps.size() == plan.steps.size());
  CHECK(few->plans[0].totals.time_ns == plan.totals.time_ns);
}

TEST_CASE("errors of a batch name the tensor") {
  std::vector<Problem> problems = Repeated(ProblemOf("{X:4}", "[<X>64]", "[<X>64]"), 2);
  problems.push_back(ProblemOf("{X:4}", "[<X>64, 64]", "[64, <X>64]"));
  BatchOptions options;
  options.plan.memory_limit_bytes = 64;
  const absl::Status small = PlanBatch(problems, options, {"fits", "fits, too", "layers.7.w"}).status();
  CHECK(small.code() == absl::StatusCode::kResourceExhausted);
  CHECK(std::string(small.message()).find("layers.7.w: ") == 0);
  CHECK(std::string(small.message()).find(" are needed") != std::string::npos);

  problems[2].target = problems[0].target;
  const absl::Status shapes = PlanBatch(problems, {}, {"a", "b", ""}).status();
  CHECK(shapes.code() == absl::StatusCode::kInvalidArgument);
  CHECK(std::string(shapes.message()).find("tensor 2: ") == 0);

  options = {};
  options.bucket_bytes = -1;
  CHECK(PlanBatch({}, options).status().code() == absl::StatusCode::kInvalidArgument);
  CHECK(PlanBatch(problems, {}, {"a", "b"}).status().code() == absl::StatusCode::kInvalidArgument);
  const auto huge = ProblemOf("{X:2}", "[<X>200000000000000000]", "[200000000000000000]", "", DType::kI8);
  const absl::Status overflow = PlanBatch(Repeated(huge, 4), {}, {"", "", "huge", "huge"}).status();
  CHECK(overflow.code() == absl::StatusCode::kInvalidArgument);
  CHECK(std::string(overflow.message()).find("huge: ") == 0);

  const auto empty = PlanBatch({});
  REQUIRE(empty.ok());
  CHECK(empty->buckets.empty());
  CHECK(empty->totals.send_imbalance == 1.0);
}

}  // namespace
}  // namespace reshard
