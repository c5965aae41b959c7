// Planning of whole models as one schedule: the state of Llama 3.1 405B (bf16 weights, f32 master weights and both Adam
// moments: 4,548 tensors) from 512 devices of training to 64 devices of serving, and 10,000 tensors of 50 shapes; and
// orders of up to 1,024 devices. Figures wanted: each <= 1 s, bytes of the worst device / bound 1, busiest sender /
// mean <= 1.05, 50 plans.
#include <benchmark/benchmark.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "reshard/layout/text.h"
#include "reshard/planner/batch.h"
#include "reshard/planner/relabel.h"
#include "tests/layouts.h"

namespace {

using reshard::testing::MeshOf;

using reshard::DType;
using reshard::Mesh;
using reshard::Problem;

// Column-parallel and row-parallel matrices and norms;
enum class Kind { kColumn, kRow, kNorm };

class State {
 public:
  State(const std::string& source, const std::string& target, bool fsdp_by_rows)
      : source_(MeshOf(source)), target_(MeshOf(target)), fsdp_by_rows_(fsdp_by_rows) {
    for (const DType dtype : {DType::kBF16, DType::kF32, DType::kF32, DType::kF32}) {
      Add(Kind::kColumn, 128256, 16384, dtype);
      for (int layer = 0; layer < 126; ++layer) {
        Add(Kind::kColumn, 16384, 16384, dtype);
        Add(Kind::kColumn, 1024, 16384, dtype);
        Add(Kind::kColumn, 1024, 16384, dtype);
        Add(Kind::kRow, 16384, 16384, dtype);
        Add(Kind::kColumn, 53248, 16384, dtype);
        Add(Kind::kColumn, 53248, 16384, dtype);
        Add(Kind::kRow, 16384, 53248, dtype);
        Add(Kind::kNorm, 16384, 0, dtype);
        Add(Kind::kNorm, 16384, 0, dtype);
      }
      Add(Kind::kNorm, 16384, 0, dtype);
      Add(Kind::kColumn, 128256, 16384, dtype);
    }
  }
  const std::vector<Problem>& problems() const { return problems_; }

 private:
  void Add(Kind kind, int64_t n, int64_t m, DType dtype) {
    std::string from = absl::StrCat("[<dp>", n, ", <tp>", m, "]"), to = absl::StrCat("[", n, ", <tp>", m, "]");
    if (kind == Kind::kColumn) {
      if (!fsdp_by_rows_) from = absl::StrCat("[<dp,tp>", n, ", ", m, "]");
      to = absl::StrCat("[<tp>", n, ", ", m, "]");
    }
    if (kind == Kind::kNorm) {
      from = absl::StrCat("[<dp>", n, "]");
      to = absl::StrCat("[", n, "]");
    }
    problems_.push_back({*reshard::ParseLayout(from, source_), *reshard::ParseLayout(to, target_), dtype});
  }

  Mesh source_, target_;
  bool fsdp_by_rows_;
  std::vector<Problem> problems_;
};

void Plan(benchmark::State& state, const std::vector<Problem>& problems, const reshard::BatchOptions& options = {}) {
  absl::StatusOr<reshard::BatchPlan> batch;
  for (auto _ : state) batch = reshard::PlanBatch(problems, options);
  if (!batch.ok()) {
    state.SkipWithError(std::string(batch.status().message()).c_str());
    return;
  }
  const auto& totals = batch->totals;
  state.counters["tensors"] = static_cast<double>(batch->tensors.size());
  state.counters["plans"] = static_cast<double>(batch->plans.size());
  state.counters["buckets"] = static_cast<double>(batch->buckets.size());
  state.counters["recv_GB"] = static_cast<double>(totals.recv_bytes_max) / 1e9;
  state.counters["recv/bound"] =
      static_cast<double>(totals.recv_bytes_max) / static_cast<double>(batch->bounds.recv_bytes_max);
  state.counters["total/bound"] =
      static_cast<double>(totals.recv_bytes_total) / static_cast<double>(batch->bounds.recv_bytes_total);
  state.counters["senders"] = totals.send_imbalance;
  state.counters["send_GB"] = static_cast<double>(totals.send_bytes_max) / 1e9;
}

void PlanState(benchmark::State& state, const std::string& target, bool fsdp_by_rows) {
  const State model("{dp:64,tp:8}", target, fsdp_by_rows);
  reshard::BatchOptions options;
  options.bucket_bytes = int64_t{4} << 30;
  Plan(state, model.problems(), options);
}

void Fifty(benchmark::State& state) {
  const auto mesh = MeshOf("{dp:64,tp:8}"), target = MeshOf("{tp:16}@512");
  std::vector<Problem> problems;
  for (int64_t i = 0; i < 10000; ++i) {
    const int64_t n = 512 * (1 + i * 7 % 50);
    problems.push_back({*reshard::ParseLayout(absl::StrCat("[<dp>", n, ", <tp>4096]"), mesh),
                        *reshard::ParseLayout(absl::StrCat("[<tp>", n, ", 4096]"), target), DType::kBF16});
  }
  Plan(state, problems);
}

// The order of the target's devices that moves least.
void OrderDevices(benchmark::State& state, const std::string& mesh, const std::string& from, const std::string& to,
                  const std::string& target_mesh) {
  const auto source = reshard::ParseLayout(from, MeshOf(mesh)), target = reshard::ParseLayout(to, MeshOf(target_mesh));
  absl::StatusOr<reshard::Relabeling> found;
  for (auto _ : state) found = reshard::Relabel({*source, *target, DType::kBF16});
  state.counters["GB_before"] = static_cast<double>(found->bytes_before) / 1e9;
  state.counters["GB"] = static_cast<double>(found->bytes) / 1e9;
}

}  // namespace

BENCHMARK_CAPTURE(PlanState, dp_x_tp_to_64_others, "{rep:4,tp:16}@512", true)->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(PlanState, dp_tp_rows_to_64_others, "{rep:4,tp:16}@512", false)->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(PlanState, dp_x_tp_to_64_of_them, "{rep:4,tp:16}", true)->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(PlanState, dp_tp_rows_to_64_of_them, "{rep:4,tp:16}", false)->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(PlanState, dp_x_tp_to_16_others, "{tp:16}@512", true)->Unit(benchmark::kMillisecond);
BENCHMARK(Fifty)->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(OrderDevices, swap_512, "{dp:64,tp:8}", "[<dp>65536, <tp>65536]", "[<tp>65536, <dp>65536]",
                  "{dp:64,tp:8}")
    ->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(OrderDevices, grid_1000, "{a:1000}", "[<a>65536, 65536]", "[<x>65536, <y>65536]", "{x:20,y:50}")
    ->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(OrderDevices, uneven_1024, "{a:1024}", "[<a>65531, 64]", "[<x>65531, 64]", "{x:1023}@1")
    ->Unit(benchmark::kMillisecond);
BENCHMARK_MAIN();
