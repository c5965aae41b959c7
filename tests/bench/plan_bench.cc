// Planning time, with percentiles over many random problems: random pairs of layouts on meshes of up to 4 axes and 512
// devices, and the 291 tensors of Llama 3 8B as one batch. Figures wanted: p99 <= 1 ms, batch <= 50 ms. Sequences of
// named collectives between pairs in which 4 to 8 digits move: at most 50 ms, `exhaustive` the share that is proved
// optimal. Pairs over 65,536 devices: at most 100 ms each.
#include <benchmark/benchmark.h>
#include <time.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "planner/digits/digit_model.h"
#include "reshard/layout/layout.h"
#include "reshard/layout/text.h"
#include "reshard/planner/planner.h"
#include "reshard/planner/report.h"

namespace {

using reshard::Factor;
using reshard::Layout;
using reshard::Mesh;

struct Problem {
  Layout source;
  Layout target;
};

// Every axis goes to a random dimension, at a random place in its order, or nowhere.
Layout RandomLayout(const Mesh& mesh, const std::vector<int64_t>& shape, std::mt19937_64& random) {
  std::vector<reshard::DimLayout> dims;
  for (int64_t size : shape) dims.push_back({size, {}});
  for (int axis = 0; axis < mesh.num_axes(); ++axis) {
    const size_t d = random() % (shape.size() + 1);
    if (d == shape.size()) continue;
    auto& factors = dims[d].factors;
    Factor factor;
    factor.axis = {axis, 1, mesh.axis(axis).size};
    factors.insert(factors.begin() + static_cast<ptrdiff_t>(random() % (factors.size() + 1)), factor);
  }
  return *Layout::Create(mesh, dims);
}

std::vector<Problem> RandomProblems(const std::vector<std::string>& meshes,
                                    const std::vector<std::vector<int64_t>>& shapes, size_t count) {
  std::mt19937_64 random(20260101);
  std::vector<Problem> out;
  for (size_t i = 0; i < count; ++i) {
    const auto mesh = *reshard::ParseMesh(meshes[random() % meshes.size()]);
    const auto& shape = shapes[random() % shapes.size()];
    out.push_back({RandomLayout(mesh, shape, random), RandomLayout(mesh, shape, random)});
  }
  return out;
}

// Processor time of this thread: what planning costs, whatever else the machine is doing.
double Micros() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) * 1e6 + static_cast<double>(now.tv_nsec) / 1e3;
}

void PlanAll(benchmark::State& state, const std::vector<Problem>& problems, const reshard::PlanOptions& options) {
  std::vector<double> micros;
  double json_micros = 0;
  size_t next = 0;
  for (auto _ : state) {
    const Problem& problem = problems[next++ % problems.size()];
    const double start = Micros();
    auto plan = reshard::MakePlan({problem.source, problem.target, reshard::DType::kBF16}, options);
    micros.push_back(Micros() - start);
    benchmark::DoNotOptimize(plan);
    if (!plan.ok()) {
      state.SkipWithError(std::string(plan.status().message()).c_str());
      return;
    }
    const double planned = Micros();
    auto json = reshard::PlanToJson(*plan);
    json_micros += Micros() - planned;
    benchmark::DoNotOptimize(json);
  }
  double sum = 0;
  for (double one : micros) sum += one;
  const auto count = static_cast<double>(micros.size());
  state.counters["mean_us"] = sum / count;
  state.counters["json_mean_us"] = json_micros / count;
  std::sort(micros.begin(), micros.end());
  const auto at = [&](double q) { return micros[static_cast<size_t>(q * static_cast<double>(micros.size() - 1))]; };
  state.counters["p50_us"] = at(0.5);
  state.counters["p90_us"] = at(0.9);
  state.counters["p99_us"] = at(0.99);
  state.counters["max_us"] = micros.back();
}

const std::vector<std::string> kSmall = {"{a:8}", "{a:2,b:4}", "{a:2,b:2,c:2}"};
const std::vector<std::string> kLarge = {"{a:8,b:64}", "{a:16,b:32}", "{a:8,b:8,c:8}", "{a:4,b:4,c:4,d:8}",
                                         "{a:2,b:4,c:8,d:8}"};
const std::vector<std::vector<int64_t>> kEven = {{8192, 8192}, {4096, 14336}, {512, 1024, 4096}, {262144}};
const std::vector<std::vector<int64_t>> kUneven = {{8191, 8190}, {4097, 14337}, {511, 1023, 4095}, {262143}};

void Random(benchmark::State& state, const std::vector<std::string>& meshes,
            const std::vector<std::vector<int64_t>>& shapes, reshard::Objective objective) {
  reshard::PlanOptions options;
  options.objective = objective;
  PlanAll(state, RandomProblems(meshes, shapes, 2000), options);
}

BENCHMARK_CAPTURE(Random, devices8_even_time, kSmall, kEven, reshard::Objective::kTime)->Iterations(2000);
BENCHMARK_CAPTURE(Random, devices512_even_time, kLarge, kEven, reshard::Objective::kTime)->Iterations(2000);
BENCHMARK_CAPTURE(Random, devices512_even_bytes, kLarge, kEven, reshard::Objective::kBytes)->Iterations(2000);
BENCHMARK_CAPTURE(Random, devices512_uneven_time, kLarge, kUneven, reshard::Objective::kTime)->Iterations(2000);

// Random pairs in which exactly `digits` digits move. `partial`: one axis in five holds partial sums in the source.
std::vector<Problem> MovingProblems(const std::string& mesh_text, int digits, bool partial, bool boxes, size_t count) {
  std::mt19937_64 random(20260102);
  const auto mesh = *reshard::ParseMesh(mesh_text);
  std::vector<Problem> out;
  while (out.size() < count) {
    const auto& shape = kEven[random() % kEven.size()];
    Problem problem{RandomLayout(mesh, shape, random), RandomLayout(mesh, shape, random)};
    if (partial) {
      auto dims = problem.source.dims();
      reshard::Partial sums{reshard::ReduceOp::kSum, {}};
      for (int axis = 0; axis < mesh.num_axes(); ++axis) {
        if (random() % 5 != 0) continue;
        sums.axes.push_back({axis, 1, mesh.axis(axis).size});
        for (auto& dim : dims) std::erase_if(dim.factors, [&](const Factor& f) { return f.axis.axis == axis; });
      }
      if (sums.axes.empty()) continue;
      problem.source = *Layout::Create(mesh, std::move(dims), std::move(sums));
    }
    const auto model = reshard::digits::DigitModel::Create(problem.source, problem.target, boxes);
    if (!model) continue;
    if (model->num_moving() == digits) out.push_back(std::move(problem));
  }
  return out;
}

void Sequences(benchmark::State& state, const std::string& mesh, int digits, bool partial, bool boxes,
               reshard::Objective objective, const std::string& topology) {
  reshard::PlanOptions options;
  options.objective = objective;
  options.ops = options.ops.without(reshard::Op::kExchange);
  options.boxes_only = boxes;
  options.topology = *reshard::Topology::Preset(topology);
  const auto problems = MovingProblems(mesh, digits, partial, boxes, 200);
  PlanAll(state, problems, options);
  int64_t proved = 0;
  for (const Problem& problem : problems) {
    const auto plan = reshard::MakePlan({problem.source, problem.target, reshard::DType::kBF16}, options);
    proved += plan.ok() && plan->certificate.kind != reshard::Certificate::Kind::kBestFound ? 1 : 0;
  }
  state.counters["exhaustive"] = static_cast<double>(proved) / static_cast<double>(problems.size());
}

const std::string kMesh4 = "{a:2,b:2,c:2,d:2}", kMesh5 = "{a:2,b:2,c:2,d:2,e:2}", kMesh6 = "{a:2,b:2,c:2,d:2,e:2,f:2}";
const std::string kMixed6 = "{a:2,b:2,c:4,d:4,e:2,f:2}", kMesh8 = "{a:2,b:2,c:2,d:2,e:2,f:2,g:2,h:2}";

#define SEQUENCES(name, ...) BENCHMARK_CAPTURE(Sequences, name, __VA_ARGS__)->Iterations(200)
SEQUENCES(d4_bytes_flat, kMesh4, 4, false, false, reshard::Objective::kBytes, "flat");
SEQUENCES(d5_bytes_flat, kMesh5, 5, false, false, reshard::Objective::kBytes, "flat");
SEQUENCES(d6_bytes_flat, kMesh6, 6, false, false, reshard::Objective::kBytes, "flat");
SEQUENCES(d6_time_flat, kMesh6, 6, false, false, reshard::Objective::kTime, "flat");
SEQUENCES(d6_steps_flat, kMesh6, 6, false, false, reshard::Objective::kSteps, "flat");
SEQUENCES(d6_bytes_h100, kMesh6, 6, false, false, reshard::Objective::kBytes, "dgx-h100");
SEQUENCES(d6_time_h100, kMesh6, 6, false, false, reshard::Objective::kTime, "dgx-h100");
SEQUENCES(d6_steps_h100, kMesh6, 6, false, false, reshard::Objective::kSteps, "dgx-h100");
SEQUENCES(d6_mixed_bytes_flat, kMixed6, 6, false, false, reshard::Objective::kBytes, "flat");
SEQUENCES(d6_mixed_time_h100, kMixed6, 6, false, false, reshard::Objective::kTime, "dgx-h100");
SEQUENCES(d6_partial_time_flat, kMesh6, 6, true, false, reshard::Objective::kTime, "flat");
SEQUENCES(d6_partial_time_h100, kMesh6, 6, true, false, reshard::Objective::kTime, "dgx-h100");
SEQUENCES(d8_time_flat, kMesh8, 8, false, false, reshard::Objective::kTime, "flat");
SEQUENCES(d8_time_h100, kMesh8, 8, false, false, reshard::Objective::kTime, "dgx-h100");
SEQUENCES(d4_boxes_bytes, kMesh4, 4, false, true, reshard::Objective::kBytes, "flat");
SEQUENCES(d6_boxes_bytes, kMesh6, 6, false, true, reshard::Objective::kBytes, "flat");

void Devices65536(benchmark::State& state) {
  const auto mesh = *reshard::ParseMesh("{dp:256,pp:16,tp:16}");
  const char* const pairs[][2] = {
      {"[<dp>65536, 8192]", "[65536, 8192]"},
      {"[<dp>65536, <tp>8192]", "[65536, <tp>8192]"},
      {"[<dp>65536, 8192]", "[65536, <dp>8192]"},
      {"[<tp,dp>65536, 8192]", "[<tp>65536, 8192]"},
      {"[<dp,tp>65536, 8192]", "[<tp,dp>65536, 8192]"},
      {"[<dp>65536, <tp>8192]", "[<tp>65536, <dp>8192]"},
      {"[<dp,pp,tp>65536, 8192]", "[65536, <tp>8192]"},
      {"[65536, 8192]", "[<dp>65536, <tp>8192]"},
      {"[65536, 8192] sum<dp>", "[65536, 8192]"},
      {"[65536, 8192] sum<dp>", "[<dp>65536, <tp>8192]"},
      {"[<pp>65536, <tp>8192] sum<dp>", "[<pp,dp>65536, 8192]"},
      {"[<dp>65521, <tp>8191]", "[<tp>65521, 8191]"},
  };
  std::vector<Problem> problems;
  for (const auto& pair : pairs) {
    problems.push_back({*reshard::ParseLayout(pair[0], mesh), *reshard::ParseLayout(pair[1], mesh)});
  }
  PlanAll(state, problems, {});
}
BENCHMARK(Devices65536)->Iterations(12)->Unit(benchmark::kMillisecond);

// Llama 3 8B from FSDP over dp and tensor parallelism over tp to serving over tp alone, nothing cached.
void Llama3_8B(benchmark::State& state) {
  const auto mesh = *reshard::ParseMesh("{dp:16,tp:8}");
  std::vector<Problem> problems;
  auto add = [&](const std::vector<int64_t>& shape, const char* from, const char* to) {
    problems.push_back({*reshard::ParseLayoutRule(from, mesh, shape), *reshard::ParseLayoutRule(to, mesh, shape)});
  };
  const char* column = "[<tp,dp>, *]";
  add({128256, 4096}, column, "[<tp>, *]");
  for (int layer = 0; layer < 32; ++layer) {
    add({4096, 4096}, column, "[<tp>, *]");
    add({1024, 4096}, column, "[<tp>, *]");
    add({1024, 4096}, column, "[<tp>, *]");
    add({4096, 4096}, "[<dp>, <tp>]", "[*, <tp>]");
    add({14336, 4096}, column, "[<tp>, *]");
    add({14336, 4096}, column, "[<tp>, *]");
    add({4096, 14336}, "[<dp>, <tp>]", "[*, <tp>]");
    add({4096}, "[<dp>]", "[*]");
    add({4096}, "[<dp>]", "[*]");
  }
  add({4096}, "[<dp>]", "[*]");
  add({128256, 4096}, column, "[<tp>, *]");
  for (auto _ : state) {
    for (const Problem& problem : problems) {
      auto plan = reshard::MakePlan({problem.source, problem.target, reshard::DType::kBF16});
      benchmark::DoNotOptimize(plan);
      if (!plan.ok()) state.SkipWithError(std::string(plan.status().message()).c_str());
    }
  }
  state.counters["tensors"] = static_cast<double>(problems.size());
}
BENCHMARK(Llama3_8B)->Unit(benchmark::kMillisecond)->Repetitions(5)->ReportAggregatesOnly();

}  // namespace

BENCHMARK_MAIN();
