// LocalWorld against memcpy of the same bytes, in one run: executions of the plan and plain copies take turns.
//
//   bench_local [MiB a tensor, default 64] [repetitions, default 15]
//
// "warm" is the median time of a memcpy of as many bytes as the plan writes, by as many threads as ranks (at most the
// cores), divided by the median time of the plan's slowest rank; both write where they wrote before. Wanted: at least
// 0.8 where contiguous runs are 4 KiB or longer. "fresh" is the same with a destination that is obtained anew every
// time, ours from the pool that results come from, memcpy's from malloc (glibc hands blocks below 32 MiB a thread out
// again, so that nothing is fresh there). "r+w" is "warm" against a memcpy that reads and writes as many bytes as an
// ideal reduction: every contribution is read once and every result written once.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "reshard/layout/text.h"
#include "reshard/planner/planner.h"
#include "reshard/runtime/program.h"
#include "reshard/runtime/verify_run.h"

namespace reshard {
namespace {

struct Case {
  const char* name;
  const char* mesh;
  const char* from;  // "$" stands for the number of rows
  const char* to;
  const char* target_mesh = "";  // the same
  DType dtype = DType::kF32;
};

// Rows are 8192 elements long, 32 KiB of f32.
constexpr int64_t kRowElements = 8192;
const Case kCases[] = {
    {"S0->S1, 2 ranks", "{X:2}", "[<X>$, 8192]", "[$, <X>8192]"},
    {"S1->S0, 2 ranks", "{X:2}", "[$, <X>8192]", "[<X>$, 8192]"},
    {"S0->S1, 4 ranks", "{X:4}", "[<X>$, 8192]", "[$, <X>8192]"},
    {"S0->S1, 8 ranks (4 KiB runs)", "{X:8}", "[<X>$, 8192]", "[$, <X>8192]"},
    {"S0->R, 2 ranks", "{X:2}", "[<X>$, 8192]", "[$, 8192]"},
    {"S1->R, 4 ranks", "{X:4}", "[$, <X>8192]", "[$, 8192]"},
    {"R->S0, 2 ranks", "{X:2}", "[$, 8192]", "[<X>$, 8192]"},
    {"R->S1, 4 ranks", "{X:4}", "[$, 8192]", "[$, <X>8192]"},
    {"device order, 4 ranks", "{X:2,Y:2}", "[<X,Y>$, 8192]", "[<Y,X>$, 8192]"},
    {"(S0,S1)->(S1,S0), 4 ranks", "{X:2,Y:2}", "[<X>$, <Y>8192]", "[<Y>$, <X>8192]"},
    {"zigzag, 4 ranks", "{X:4}", "[<X>$, 8192]", "[<2,~X>$, 8192]"},
    {"other devices, 2 -> 2", "{X:2}", "[<X>$, 8192]", "[$, <Y>8192]", "{Y:2}@2"},
    {"gather on one device, 4 -> 1", "{X:4}", "[<X>$, 8192]", "[$, 8192]", "{}"},
    {"uneven, 3 ranks", "{X:3}", "[<X>$, 8192]", "[$, <X>8192]"},
    {"32 ranks", "{X:32}", "[<X>$, 131072]", "[$, <X>131072]"},
    {"short runs: 1 KiB", "{X:8}", "[<X>$, 2048]", "[$, <X>2048]"},
    {"short runs: 64 B", "{X:8}", "[<X>$, 128]", "[$, <X>128]"},
    {"short runs: 4 B", "{X:4}", "[<X>$, 4]", "[$, <X>4]"},
    {"P->S0, 2 ranks", "{X:2}", "[$, 8192] sum<X>", "[<X>$, 8192]"},
    {"P->S0, 2 ranks, bf16", "{X:2}", "[$, 8192] sum<X>", "[<X>$, 8192]", "", DType::kBF16},
    {"P->S0, 4 ranks", "{X:4}", "[$, 8192] sum<X>", "[<X>$, 8192]"},
    {"P->S0, 4 ranks, bf16", "{X:4}", "[$, 8192] sum<X>", "[<X>$, 8192]", "", DType::kBF16},
    {"P->R, 2 ranks", "{X:2}", "[$, 8192] sum<X>", "[$, 8192]"},
    {"P->R, 2 ranks, bf16", "{X:2}", "[$, 8192] sum<X>", "[$, 8192]", "", DType::kBF16},
    {"P->R, 4 ranks", "{X:4}", "[$, 8192] sum<X>", "[$, 8192]"},
    {"P->R, 4 ranks, bf16", "{X:4}", "[$, 8192] sum<X>", "[$, 8192]", "", DType::kBF16},
};

absl::StatusOr<Layout> LayoutOf(const char* text, int64_t rows, const Mesh& mesh) {
  return ParseLayout(absl::StrReplaceAll(text, {{"$", absl::StrCat(rows)}}), mesh);
}

// The shortest contiguous run that any rank copies, in bytes; 0 where values are reduced.
int64_t ShortestRun(const Plan& plan) {
  int64_t shortest = 0;
  const absl::StatusOr<ProgramCompiler> compiler = ProgramCompiler::Create(plan);
  if (!compiler.ok()) return 0;
  for (int64_t rank = 0; rank < plan.world(); ++rank) {
    const absl::StatusOr<Program> program = compiler->Compile(rank, {CopyFor::kPull, /*sends=*/false});
    if (!program.ok()) return 0;
    for (const StepProgram& step : program->steps) {
      for (const Transfer& transfer : step.receives) {
        const int64_t run = transfer.copy.shortest_run();
        if (run > 0 && (shortest == 0 || run < shortest)) shortest = run;
      }
    }
  }
  return shortest;
}

// What a memcpy that reads and writes as much as an ideal reduction copies, divided by the bytes the plan writes.
double IdealReduction(const Plan& plan, int64_t written) {
  int64_t read = 0;
  for (int64_t p = 0; p < plan.source.mesh().size(); ++p) {
    read += NumElements(plan.source.LocalShape(p)) * SizeOf(plan.dtype);
  }
  return static_cast<double>(read + written) / 2 / static_cast<double>(written);
}

int PrintTable(int64_t mebibytes, int64_t repeat) {
  std::printf("%lld MiB a tensor, median of %lld\n", static_cast<long long>(mebibytes), static_cast<long long>(repeat));
  std::printf("%-30s %10s %9s %10s %10s %8s %7s %7s %7s\n", "case", "run bytes", "moved MB", "plan ms", "memcpy ms",
              "GB/s", "warm", "fresh", "r+w");
  for (const Case& c : kCases) {
    const std::string from_text = c.from;
    // Rows so that the tensor has the size asked for, whatever its columns are.
    const std::string columns_text =
        absl::StrReplaceAll(from_text.substr(from_text.find(',') + 1), {{"<X>", ""}, {"<Y>", ""}});
    const int64_t columns = std::strtoll(columns_text.c_str(), nullptr, 10);
    const int64_t rows = (mebibytes << 20) / SizeOf(c.dtype) / (columns > 0 ? columns : kRowElements);
    const auto mesh = ParseMesh(c.mesh).value();
    const auto target_mesh = *c.target_mesh == 0 ? mesh : ParseMesh(c.target_mesh).value();
    const absl::StatusOr<Layout> from = LayoutOf(c.from, rows, mesh);
    const absl::StatusOr<Layout> to = LayoutOf(c.to, rows, target_mesh);
    if (!from.ok() || !to.ok()) {
      std::fprintf(stderr, "%s: %s %s\n", c.name, from.status().ToString().c_str(), to.status().ToString().c_str());
      return 1;
    }
    const absl::StatusOr<Plan> plan = MakePlan({*from, *to, c.dtype});
    if (!plan.ok()) {
      std::fprintf(stderr, "%s: %s\n", c.name, plan.status().ToString().c_str());
      return 1;
    }
    RunOptions options;
    options.repeat = repeat;
    options.verify = true;
    options.fresh = true;
    const absl::StatusOr<RunReport> report = RunPlanLocally(*plan, options);
    if (!report.ok() || !report->verified) {
      std::fprintf(stderr, "%s: %s %s\n", c.name, report.status().ToString().c_str(),
                   report.ok() ? report->first_mismatch.c_str() : "");
      return 1;
    }
    std::printf("%-30s %10lld %9.1f %10.3f %10.3f %8.2f %7.2f %7.2f", c.name,
                static_cast<long long>(ShortestRun(*plan)), static_cast<double>(report->bytes_moved) / 1e6,
                report->seconds_median * 1e3, report->memcpy_seconds_median * 1e3, report->gb_per_s,
                report->memcpy_ratio, report->fresh_memcpy_seconds_median / report->fresh_seconds_median);
    if (plan->source.partial()) {
      std::printf(" %7.2f", report->memcpy_ratio * IdealReduction(*plan, report->bytes_moved));
    }
    std::printf("\n");
  }
  return 0;
}

}  // namespace
}  // namespace reshard

int main(int argc, char** argv) {
  const int64_t mebibytes = argc > 1 ? std::strtoll(argv[1], nullptr, 10) : 64;
  const int64_t repeat = argc > 2 ? std::strtoll(argv[2], nullptr, 10) : 15;
  if (mebibytes < 1 || repeat < 1) {
    std::fprintf(stderr, "usage: bench_local [MiB a tensor] [repetitions]\n");
    return 2;
  }
  return reshard::PrintTable(mebibytes, repeat);
}
