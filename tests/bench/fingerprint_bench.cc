// Fingerprints against memcpy of the same bytes, in one run and by one thread: the two take turns.
//
// "vs_memcpy" is the median processor time of a memcpy into memory that was written before, divided by the median of
// FingerprintOf. Wanted: at least 0.5; what misses it: docs/design/fingerprint.md.
#include <benchmark/benchmark.h>
#include <time.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "reshard/layout/text.h"
#include "reshard/runtime/fingerprint.h"
#include "tests/bench/median.h"

namespace reshard {
namespace {

using bench::Median;

struct Case {
  const char* name;
  const char* layout;  // over {X:4}; "$" stands for the number of rows
  DType dtype;
  bool transposed = false;  // the fragment lies in memory by columns
};

const Case kCases[] = {
    {"whole, f32", "[$, 4096]", DType::kF32},
    {"rows, bf16", "[<X>$, 4096]", DType::kBF16},
    {"rows, i8", "[<X>$, 4096]", DType::kI8},
    {"rows, c128", "[<X>$, 4096]", DType::kC128},
    {"columns in runs of 4 KiB, f32", "[$, <X>4096]", DType::kF32},
    {"columns in runs of 1 KiB, i8", "[$, <X>4096]", DType::kI8},
    {"columns in runs of 64 B, f32", "[$, <X>64]", DType::kF32},
    {"rows from an odd byte, i8", "[<X>$, 4097]", DType::kI8},
    {"whole, by columns, f32", "[$, 1024]", DType::kF32, true},
    {"whole, by columns, bf16", "[$, 4096]", DType::kBF16, true},
    {"columns, by columns, i8", "[$, <X>16384]", DType::kI8, true},
    {"whole, by columns of another length, f32", "[$, 1000]", DType::kF32, true},
};

// Processor time of this thread: whatever else the machine is doing.
double Now() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) / 1e9;
}

template <typename Function>
double Seconds(const Function& function) {
  const double start = Now();
  function();
  return Now() - start;
}

void RunCase(benchmark::State& state, const Case& one, int64_t bytes) {
  // As many rows as make a fragment of about so many bytes.
  const std::string pattern = one.layout;
  const auto with_rows = [&](int64_t rows) {
    std::string text = pattern;
    text.replace(text.find('$'), 1, std::to_string(rows));
    return *ParseLayout(text, std::string("{X:4}"));
  };
  const int64_t of_four_rows = with_rows(4).MaxLocalElements() * SizeOf(one.dtype);
  const Layout layout = with_rows(4 * std::max<int64_t>(1, bytes / of_four_rows));
  const int64_t position = pattern.find('X') == std::string::npos ? 0 : 3;
  const std::vector<int64_t> shape = layout.LocalShape(position);
  const auto size = static_cast<size_t>(NumElements(shape) * SizeOf(one.dtype));
  std::vector<char> data(size, 1), copy(size, 2);
  ConstTensorView view = DenseView(static_cast<const void*>(data.data()), one.dtype, shape);
  if (one.transposed) view.strides = {1, shape[0]};
  std::vector<double> copies, fingerprints;
  for ([[maybe_unused]] auto _ : state) {
    copies.push_back(Seconds([&] {
      std::memcpy(copy.data(), data.data(), size);
      benchmark::DoNotOptimize(copy.data());
      benchmark::ClobberMemory();
    }));
    const double seconds =
        Seconds([&] { benchmark::DoNotOptimize(FingerprintOf("weight", view, layout, position).value()); });
    fingerprints.push_back(seconds);
    state.SetIterationTime(seconds);
  }
  state.counters["GB/s"] = static_cast<double>(size) / Median(fingerprints) / 1e9;
  state.counters["memcpy_GB/s"] = static_cast<double>(size) / Median(copies) / 1e9;
  state.counters["vs_memcpy"] = Median(copies) / Median(fingerprints);
}

}  // namespace
}  // namespace reshard

int main(int argc, char** argv) {
  for (const reshard::Case& one : reshard::kCases) {
    for (const int64_t mebibytes : {1, 16, 256}) {
      const std::string name = std::string(one.name) + "/" + std::to_string(mebibytes) + " MiB";
      benchmark::RegisterBenchmark(name.c_str(), [&one, mebibytes](benchmark::State& state) {
        reshard::RunCase(state, one, mebibytes << 20);
      })->UseManualTime();
    }
  }
  benchmark::Initialize(&argc, argv);
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
