// Planning of whole models as one schedule: the state of Llama 3.1 405B (bf16 weights, f32 master weights and both Adam
// moments: 4,548 tensors) from 512 devices of training to 64 devices of serving, and 10,000 tensors of 50 shapes.
// Figures wanted: <= 1 s, bytes of the worst device / bound 1, busiest sender / mean <= 1.05, 50 plans.
#include <benchmark/benchmark.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "reshard/layout/text.h"
#include "reshard/planner/batch.h"

namespace {

using reshard::BatchProblem;
using reshard::DType;
using reshard::Mesh;

std::shared_ptr<const Mesh> MeshOf(const std::string& text) {
  return std::make_shared<const Mesh>(*reshard::ParseMesh(text));
}

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
  const std::vector<BatchProblem>& problems() const { return problems_; }

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
    problems_.push_back({absl::StrCat("tensor ", problems_.size()), *reshard::ParseLayout(from, source_),
                         *reshard::ParseLayout(to, target_), dtype});
  }

  std::shared_ptr<const Mesh> source_, target_;
  bool fsdp_by_rows_;
  std::vector<BatchProblem> problems_;
};

void Plan(benchmark::State& state, const std::vector<BatchProblem>& problems,
          const reshard::BatchOptions& options = {}) {
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
  std::vector<BatchProblem> problems;
  for (int64_t i = 0; i < 10000; ++i) {
    const int64_t n = 512 * (1 + i * 7 % 50);
    problems.push_back({"", *reshard::ParseLayout(absl::StrCat("[<dp>", n, ", <tp>4096]"), mesh),
                        *reshard::ParseLayout(absl::StrCat("[<tp>", n, ", 4096]"), target), DType::kBF16});
  }
  Plan(state, problems);
}

}  // namespace

BENCHMARK_CAPTURE(PlanState, dp_x_tp_to_64_others, "{rep:4,tp:16}@512", true)->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(PlanState, dp_tp_rows_to_64_others, "{rep:4,tp:16}@512", false)->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(PlanState, dp_x_tp_to_64_of_them, "{rep:4,tp:16}", true)->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(PlanState, dp_tp_rows_to_64_of_them, "{rep:4,tp:16}", false)->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(PlanState, dp_x_tp_to_16_others, "{tp:16}@512", true)->Unit(benchmark::kMillisecond);
BENCHMARK(Fifty)->Unit(benchmark::kMillisecond);
BENCHMARK_MAIN();
