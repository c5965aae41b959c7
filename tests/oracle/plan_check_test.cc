#include "tests/oracle/plan_check.h"

#include <functional>

#include "tests/catch.h"

namespace oracle {
namespace {

// {X:2,Y:2}, [<X>4,<Y>2] -> [<Y>4,<X>2] of two bytes an element: devices 1 and 2 swap; 0 and 3 keep what they have.
PlanFacts Swap() {
  PlanFacts plan;
  plan.mesh = plan.target_mesh = "{X:2,Y:2}";
  plan.source = "[2<X>4, 1<Y>2]";
  plan.target = "[2<Y>4, 1<X>2]";
  plan.world = 4;
  plan.element_bytes = 2;
  StepFacts step;
  step.op = "AllPermute";
  step.axes = {"X", "Y"};
  step.from_mesh = step.to_mesh = plan.mesh;
  step.from = plan.source;
  step.to = plan.target;
  step.group_size = 4;
  step.recv_bytes_max = step.send_bytes_max = 4;
  step.recv_bytes_total = 8;
  step.local_bytes_before_max = step.local_bytes_after_max = 4;
  step.peers_max = 1;
  step.time_ns = 10001;
  plan.steps = {step};
  plan.pieces = {{0, 1, 2, {0, 1}, {2, 1}}, {0, 2, 1, {2, 0}, {2, 1}}};
  plan.recv_bytes_max = plan.bound_recv_bytes_max = 4;
  plan.recv_bytes_total = plan.bound_recv_bytes_total = 8;
  plan.intermediate_bytes_max = plan.bound_intermediate_bytes_max = 4;
  plan.peak_bytes = 8;
  plan.time_ns = 10001;
  plan.certificate = "lower_bound";
  return plan;
}

// {X:3}, [4] sum<X> -> [4]: chunks of 2, 2 and 0.
PlanFacts Reduce() {
  PlanFacts plan;
  plan.mesh = plan.target_mesh = "{X:3}";
  plan.source = "[4] sum<X>";
  plan.target = "[4]";
  plan.world = 3;
  StepFacts step;
  step.op = "AllReduce";
  step.axes = {"X"};
  step.from_mesh = step.to_mesh = plan.mesh;
  step.from = plan.source;
  step.to = plan.target;
  step.group_size = 3;
  step.recv_bytes_max = step.send_bytes_max = 6;
  step.recv_bytes_total = 16;
  step.local_bytes_before_max = step.local_bytes_after_max = 4;
  step.peers_max = 2;
  step.time_ns = 15001;
  plan.steps = {step};
  for (int64_t p = 0; p < 3; ++p) {
    for (int64_t q = 0; q < 3; ++q) {
      if (p != q) plan.pieces.push_back({0, p, q, {0}, {4}});
    }
  }
  plan.recv_bytes_max = 6;
  plan.bound_recv_bytes_max = 6;
  plan.recv_bytes_total = plan.bound_recv_bytes_total = 16;
  plan.intermediate_bytes_max = plan.bound_intermediate_bytes_max = 4;
  plan.peak_bytes = 8;
  plan.time_ns = 15001;
  plan.certificate = "best_found";
  return plan;
}

std::string Joined(const std::vector<std::string>& findings) {
  std::string text;
  for (const std::string& finding : findings) text += finding + "\n";
  return text;
}

}  // namespace

TEST_CASE("the oracle finds nothing wrong with right plans") {
  CHECK(Joined(Check(Swap())) == "");
  CHECK(Joined(Check(Reduce())) == "");
}

TEST_CASE("the oracle notices every wrong figure and every wrong piece") {
  const std::vector<std::function<void(PlanFacts&)>> mistakes = {
      [](PlanFacts& p) { p.world = 5; },
      [](PlanFacts& p) { p.steps[0].op = "Exchange"; },
      [](PlanFacts& p) { p.steps[0].op = "AllToAll"; },
      [](PlanFacts& p) { p.steps[0].op = "AllGather"; },
      [](PlanFacts& p) { p.steps[0].op = "Slice"; },
      [](PlanFacts& p) { p.steps[0].op = "Permute"; },
      [](PlanFacts& p) { p.steps[0].axes = {"X"}; },
      [](PlanFacts& p) {
        p.steps[0].axes = {"X", "Q"};
      },
      [](PlanFacts& p) { p.steps[0].from = "[2<Y>4, 1<X>2]"; },
      [](PlanFacts& p) { p.steps[0].to = "[3<Y>4, 1<X>2]"; },
      [](PlanFacts& p) { ++p.steps[0].group_size; },
      [](PlanFacts& p) { ++p.steps[0].recv_bytes_max; },
      [](PlanFacts& p) { ++p.steps[0].recv_bytes_total; },
      [](PlanFacts& p) { --p.steps[0].send_bytes_max; },
      [](PlanFacts& p) { ++p.steps[0].local_bytes_before_max; },
      [](PlanFacts& p) { ++p.steps[0].local_bytes_after_max; },
      [](PlanFacts& p) { ++p.steps[0].peers_max; },
      [](PlanFacts& p) { --p.steps[0].time_ns; },
      [](PlanFacts& p) { p.pieces.pop_back(); },
      [](PlanFacts& p) { p.pieces.push_back(p.pieces[0]); },
      [](PlanFacts& p) { p.pieces[0].step = 1; },
      [](PlanFacts& p) { p.pieces[0].sender = 3; },
      [](PlanFacts& p) { p.pieces[0].sender = 4; },
      [](PlanFacts& p) { p.pieces[0].receiver = 3; },
      [](PlanFacts& p) { p.pieces[0].receiver = p.pieces[0].sender; },
      [](PlanFacts& p) {
        p.pieces[0].offset = {1, 1};
      },
      [](PlanFacts& p) {
        p.pieces[0].size = {1, 1};
      },
      [](PlanFacts& p) {
        p.pieces[0].size = {2, 2};
      },
      [](PlanFacts& p) { p.pieces[0].size = {2}; },
      [](PlanFacts& p) { ++p.recv_bytes_max; },
      [](PlanFacts& p) { ++p.recv_bytes_total; },
      [](PlanFacts& p) { ++p.intermediate_bytes_max; },
      [](PlanFacts& p) { --p.peak_bytes; },
      [](PlanFacts& p) { ++p.peak_bytes; },
      [](PlanFacts& p) { ++p.time_ns; },
      [](PlanFacts& p) { ++p.bound_recv_bytes_max; },
      [](PlanFacts& p) { --p.bound_recv_bytes_total; },
      [](PlanFacts& p) { ++p.bound_intermediate_bytes_max; },
      [](PlanFacts& p) { p.memory_limit_bytes = 7; },
      [](PlanFacts& p) { p.ops = {"Exchange"}; },
      [](PlanFacts& p) { p.steps.clear(), p.pieces.clear(); },
      [](PlanFacts& p) { p.target = "[2<Y>4, 2]"; },
  };
  for (size_t i = 0; i < mistakes.size(); ++i) {
    PlanFacts plan = Swap();
    mistakes[i](plan);
    INFO("mistake " << i);
    CHECK(!Check(plan).empty());
  }
  PlanFacts plan = Reduce();
  plan.pieces.pop_back();  // a contribution is missing
  CHECK(!Check(plan).empty());
  plan = Reduce();
  plan.pieces[0].sender = 2;  // a contribution counts twice
  CHECK(!Check(plan).empty());
  plan = Reduce();
  plan.certificate = "exhaustive";
  CHECK(Check(plan).empty());
  plan.steps[0].op = "ReduceScatter";
  CHECK(!Check(plan).empty());
}

TEST_CASE("the oracle's own reading of layouts") {
  const auto held = [](const char* mesh, const char* layout, int64_t device) {
    std::vector<int64_t> indices;
    const Layout read = ParseLayout(layout, ParseMesh(mesh));
    const int64_t position = read.mesh.Position(device);
    for (int64_t i = 0; i < read.dims[0].size; ++i) {
      if (Holds(read, 0, i, position)) indices.push_back(i);
    }
    return indices;
  };
  using List = std::vector<int64_t>;
  CHECK(held("{X:2}", "[<2,X>5]", 0) == List{0, 1, 3});
  CHECK(held("{X:2}", "[<2,X>5]", 1) == List{2, 4});
  CHECK(held("{X:4}", "[<X>6]", 3) == List{});
  CHECK(held("{X:2}", "[<2,~X>8]", 0) == List{0, 1, 6, 7});
  CHECK(held("{X:2}", "[<2,~X>8]", 1) == List{2, 3, 4, 5});
  CHECK(held("{X:3}", "[<X=[1,0,4]>5]", 2) == List{1, 2, 3, 4});
  CHECK(held("{X:6}", "[<X:(2)3>3]", 4) == List{1});
  CHECK(held("{X:2,Y:2}@[7,3,5,1]", "[<Y,X>4]", 3) == List{2});
  CHECK_THROWS(ParseLayout("[<Q>4]", ParseMesh("{X:2}")));
  CHECK_THROWS(ParseLayout("[<X,X>4]", ParseMesh("{X:2}")));
  CHECK_THROWS(ParseLayout("[<X:(1)2,X>4]", ParseMesh("{X:4}")));
  CHECK_THROWS(ParseLayout("[3<X>4]", ParseMesh("{X:2}")));
}

}  // namespace oracle
