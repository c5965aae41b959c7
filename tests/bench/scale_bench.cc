// Plans for large clusters: random pairs of layouts over 1,024 to 65,536 devices of a DGX H100 cluster. Prints how long
// planning takes (processor time of the planning thread, with the JSON), how long one rank takes to compile its program
// of the plan and the memory that it takes, what the busiest NIC carries against the node cut, and the modelled time
// against what no plan can beat: the bytes of the node cut at full bandwidth plus two latencies of the network.
//
// Usage: bench_scale [--even N] [--uneven N] [--objective time|bytes] [--seed S] [--slow SECONDS] [--list]
#include <sys/resource.h>
#include <time.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <string>
#include <vector>

#include "reshard/layout/layout.h"
#include "reshard/layout/text.h"
#include "reshard/planner/planner.h"
#include "reshard/planner/report.h"
#include "reshard/planner/topology.h"
#include "reshard/runtime/program.h"

namespace {

using reshard::Factor;
using reshard::Layout;
using reshard::Mesh;

struct Settings {
  int even = 500, uneven = 200;
  reshard::Objective objective = reshard::Objective::kTime;
  uint64_t seed = 20261127;
  double slow_seconds = 0.5;  // pairs that take longer are listed
  bool list = false;          // every pair is
};

// Processor time of this thread.
double Seconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) / 1e9;
}

// A mesh of 2^10 to 2^16 devices with one to four axes.
Mesh RandomMesh(std::mt19937_64& random) {
  const auto axes = 1 + random() % 4;
  const auto doublings = 10 + random() % 7;
  std::vector<int> exponents(axes, 1);
  for (auto left = doublings - axes; left > 0; --left) ++exponents[random() % axes];
  std::string text = "{";
  for (size_t a = 0; a < axes; ++a) {
    if (a > 0) text += ",";
    text += std::string(1, static_cast<char>('a' + a)) + ":" + std::to_string(int64_t{1} << exponents[a]);
  }
  return *reshard::ParseMesh(text + "}");
}

// Every axis goes to a random dimension, at a random place in its order, or nowhere: also where the dimension would be
// cut into more parts than it has indices, or, if `even`, not evenly.
Layout RandomLayout(const Mesh& mesh, const std::vector<int64_t>& shape, bool even, std::mt19937_64& random) {
  std::vector<reshard::DimLayout> dims;
  for (int64_t size : shape) dims.push_back({size, {}});
  std::vector<int64_t> parts(shape.size(), 1);
  for (int axis = 0; axis < mesh.num_axes(); ++axis) {
    const size_t d = random() % (shape.size() + 1);
    if (d == shape.size()) continue;
    const int64_t cut = parts[d] * mesh.axis(axis).size;
    if (cut > shape[d] || (even && shape[d] % cut != 0)) continue;
    parts[d] = cut;
    auto& factors = dims[d].factors;
    Factor factor;
    factor.axis = {axis, 1, mesh.axis(axis).size};
    factors.insert(factors.begin() + static_cast<ptrdiff_t>(random() % (factors.size() + 1)), factor);
  }
  return *Layout::Create(mesh, dims);
}

const std::vector<std::vector<int64_t>> kEven = {
    {131072, 65536}, {131072, 65536, 1}, {65536, 65536}, {262144, 1024, 64}};
const std::vector<std::vector<int64_t>> kUneven = {
    {131071, 65537}, {100003, 70001, 3}, {65521, 50000}, {262147, 1000, 60}};

struct Sorted {
  std::vector<double> values;
  double at(double quantile) {
    std::sort(values.begin(), values.end());
    return values.empty() ? 0 : values[static_cast<size_t>(quantile * static_cast<double>(values.size() - 1))];
  }
};

void Run(const char* name, bool even, int count, const std::vector<std::vector<int64_t>>& shapes,
         const Settings& settings) {
  std::mt19937_64 random(settings.seed);
  reshard::PlanOptions options;
  options.objective = settings.objective;
  options.topology = *reshard::Topology::Preset("dgx-h100");
  const auto& outer = options.topology.levels.back();
  Sorted seconds, compile, program_mib, nic, slowness, slowness_all;
  double log_nic = 0;
  for (int i = 0; i < count; ++i) {
    const Mesh mesh = RandomMesh(random);
    const auto& shape = shapes[random() % shapes.size()];
    const Layout source = RandomLayout(mesh, shape, even, random), target = RandomLayout(mesh, shape, even, random);
    const std::string pair = ToString(mesh) + " " + ToString(source) + " -> " + ToString(target);
    const double start = Seconds();
    const auto plan = reshard::MakePlan({source, target, reshard::DType::kBF16}, options);
    if (!plan.ok()) {
      std::printf("failed: %s: %s\n", pair.c_str(), std::string(plan.status().message()).c_str());
      continue;
    }
    if (!reshard::PlanToJson(*plan).ok()) std::printf("no JSON: %s\n", pair.c_str());
    seconds.values.push_back(Seconds() - start);
    const double planned = Seconds();
    const auto program =
        reshard::CompileProgram(*plan, static_cast<int64_t>(random() % static_cast<uint64_t>(mesh.size())));
    if (program.ok()) {
      program_mib.values.push_back(static_cast<double>(program->MemoryBytes()) / (1 << 20));
    } else {
      std::printf("no program: %s\n", pair.c_str());
    }
    compile.values.push_back(Seconds() - planned);
    const bool slow = seconds.values.back() > settings.slow_seconds;
    std::string more;
    const int64_t bound = plan->bounds.levels.empty() ? 0 : plan->bounds.levels.back().nic_bytes_max;
    if (bound > 0) {
      const auto carried = static_cast<double>(plan->totals.levels.back().nic_bytes_max);
      nic.values.push_back(carried / static_cast<double>(bound));
      log_nic += std::log(nic.values.back());
      const double flat_ns = static_cast<double>(bound) * 1e9 / static_cast<double>(outer.bytes_per_second);
      const double at_least_ns = flat_ns + 2 * static_cast<double>(outer.latency_ns);
      const double time = static_cast<double>(plan->totals.time_ns);
      slowness_all.values.push_back(time / flat_ns);
      if (plan->bounds.recv_bytes_max >= int64_t{1} << 20) slowness.values.push_back(time / at_least_ns);
      more = " nic " + std::to_string(nic.values.back()) + " time " + std::to_string(time / at_least_ns);
    }
    if (slow || settings.list)
      std::printf("%8.3f s, program %.4f s  %s%s\n", seconds.values.back(), compile.values.back(), pair.c_str(),
                  more.c_str());
  }
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  std::printf("%s: %zu plans, %s: p50 %.4f s, p90 %.4f, p99 %.4f, worst %.4f; peak memory %ld MiB\n", name,
              seconds.values.size(), settings.objective == reshard::Objective::kTime ? "time" : "bytes",
              seconds.at(0.5), seconds.at(0.9), seconds.at(0.99), seconds.at(1), usage.ru_maxrss / 1024);
  std::printf("  program of one rank: p50 %.4f s, p90 %.4f, p99 %.4f, worst %.4f; p99 %.2f MiB, worst %.2f\n",
              compile.at(0.5), compile.at(0.9), compile.at(0.99), compile.at(1), program_mib.at(0.99),
              program_mib.at(1));
  if (nic.values.empty()) return;
  std::printf("  busiest NIC / node cut: geomean %.4f, worst %.4f (%zu pairs that cross)\n",
              std::exp(log_nic / static_cast<double>(nic.values.size())), nic.at(1), nic.values.size());
  std::printf(
      "  time / (cut at full bandwidth + 2 latencies), at least 1 MiB a device: p50 %.2f, p90 %.2f, worst %.2f "
      "(%zu pairs); time / cut alone, all: p50 %.2f, p90 %.2f, worst %.2f\n",
      slowness.at(0.5), slowness.at(0.9), slowness.at(1), slowness.values.size(), slowness_all.at(0.5),
      slowness_all.at(0.9), slowness_all.at(1));
}

}  // namespace

int main(int argc, char** argv) {
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  Settings settings;
  for (int i = 1; i < argc; ++i) {
    const std::string flag = argv[i];
    const char* value = i + 1 < argc ? argv[i + 1] : "";
    if (flag == "--list") {
      settings.list = true;
      continue;
    }
    if (flag == "--even") settings.even = std::atoi(value);
    if (flag == "--uneven") settings.uneven = std::atoi(value);
    if (flag == "--seed") settings.seed = std::strtoull(value, nullptr, 10);
    if (flag == "--slow") settings.slow_seconds = std::atof(value);
    if (flag == "--objective") settings.objective = reshard::ParseObjective(value).value_or(settings.objective);
    ++i;
  }
  Run("even", true, settings.even, kEven, settings);
  Run("uneven", false, settings.uneven, kUneven, settings);
}
