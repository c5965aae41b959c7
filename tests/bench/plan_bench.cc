// Planning time, with percentiles over many random problems: random pairs of layouts on meshes of up to 4 axes and 512
// devices, and the 291 tensors of Llama 3 8B as one batch. Figures wanted: p99 <= 1 ms, batch <= 50 ms.
#include <benchmark/benchmark.h>
#include <time.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "reshard/layout/layout.h"
#include "reshard/layout/text.h"
#include "reshard/planner/planner.h"

namespace {

using reshard::Factor;
using reshard::Layout;
using reshard::Mesh;

struct Problem {
  Layout source;
  Layout target;
};

// Every axis goes to a random dimension, at a random place in its order, or nowhere.
Layout RandomLayout(const std::shared_ptr<const Mesh>& mesh, const std::vector<int64_t>& shape,
                    std::mt19937_64& random) {
  std::vector<reshard::DimLayout> dims;
  for (int64_t size : shape) dims.push_back({size, {}});
  for (int axis = 0; axis < mesh->num_axes(); ++axis) {
    const size_t d = random() % (shape.size() + 1);
    if (d == shape.size()) continue;
    auto& factors = dims[d].factors;
    Factor factor;
    factor.axis = {axis, 1, mesh->axis(axis).size};
    factors.insert(factors.begin() + static_cast<ptrdiff_t>(random() % (factors.size() + 1)), factor);
  }
  return *Layout::Create(mesh, dims);
}

std::vector<Problem> RandomProblems(const std::vector<std::string>& meshes,
                                    const std::vector<std::vector<int64_t>>& shapes, size_t count) {
  std::mt19937_64 random(20260101);
  std::vector<Problem> out;
  for (size_t i = 0; i < count; ++i) {
    const auto mesh = std::make_shared<const Mesh>(*reshard::ParseMesh(meshes[random() % meshes.size()]));
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
  size_t next = 0;
  for (auto _ : state) {
    const Problem& problem = problems[next++ % problems.size()];
    const double start = Micros();
    auto plan = reshard::MakePlan(problem.source, problem.target, reshard::DType::kBF16, options);
    micros.push_back(Micros() - start);
    benchmark::DoNotOptimize(plan);
    if (!plan.ok()) state.SkipWithError(std::string(plan.status().message()).c_str());
  }
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

// Llama 3 8B from FSDP over dp and tensor parallelism over tp to serving over tp alone, nothing cached.
void Llama3_8B(benchmark::State& state) {
  const auto mesh = std::make_shared<const Mesh>(*reshard::ParseMesh("{dp:16,tp:8}"));
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
      auto plan = reshard::MakePlan(problem.source, problem.target, reshard::DType::kBF16);
      benchmark::DoNotOptimize(plan);
      if (!plan.ok()) state.SkipWithError(std::string(plan.status().message()).c_str());
    }
  }
  state.counters["tensors"] = static_cast<double>(problems.size());
}
BENCHMARK(Llama3_8B)->Unit(benchmark::kMillisecond)->Repetitions(5)->ReportAggregatesOnly();

}  // namespace

BENCHMARK_MAIN();
