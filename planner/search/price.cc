#include "planner/search/price.h"

#include <algorithm>
#include <unordered_map>

#include "absl/status/status.h"
#include "reshard/planner/traffic.h"

namespace reshard::search {
namespace {

// The outermost level that traffic within these groups crosses.
int LevelOfGroups(const Mesh& mesh, const std::vector<AxisRef>& axes, const Topology& topology) {
  std::vector<int64_t> lowest(static_cast<size_t>(mesh.size()), -1), highest = lowest;
  int level = 0;
  for (int64_t p = 0; p < mesh.size(); ++p) {
    int64_t base = p;
    for (const AxisRef& ref : axes) {
      const int64_t stride = mesh.stride(ref.axis) * (mesh.axis(ref.axis).size / (ref.pre * ref.size));
      base -= p / stride % ref.size * stride;
    }
    auto& low = lowest[static_cast<size_t>(base)];
    auto& high = highest[static_cast<size_t>(base)];
    const int64_t id = mesh.Device(p);
    low = low < 0 ? id : std::min(low, id);
    high = std::max(high, id);
    level = std::max(level, topology.LevelOf(low, high));
  }
  return level;
}

// A packing backend needs `staging` elements at once; in k rounds every message sends at most ceil(its elements / k).
int64_t StagingInRounds(const DeviceLoad& load, int64_t rounds) {
  return (load.staging + (rounds - 1) * load.staging_messages) / rounds;
}

// Fewest rounds after which a device's staging is at most `allowed` elements. Requires allowed >= staging_messages.
int64_t RoundsFor(const DeviceLoad& load, int64_t allowed) {
  if (load.staging <= allowed) return 1;
  return (load.staging - load.staging_messages) / (allowed - load.staging_messages + 1) + 1;
}

}  // namespace

absl::StatusOr<PricedChain> Price(const Layout& source, const std::vector<Hop>& hops, DType dtype,
                                  const PlanOptions& options) {
  const int64_t element = SizeOf(dtype);
  PricedChain out;
  // Sums per device id; positions serve as ids while every step stays on one contiguous mesh.
  struct Sums {
    int64_t source = 0;
    int64_t recv = 0;
  };
  std::unordered_map<int64_t, Sums> by_id;
  std::vector<Sums> by_position;
  const std::vector<int64_t>* first_devices = nullptr;
  std::vector<std::unique_ptr<Traffic>> traffics;

  const Layout* from = &source;
  out.totals.intermediate_bytes_max = source.MaxLocalElements() * element;
  for (size_t i = 0; i < hops.size(); ++i) {
    const Hop& hop = hops[i];
    const Op asked = hop.kind == Hop::Kind::kReduceScatter ? Op::kReduceScatter
                     : hop.kind == Hop::Kind::kAllReduce   ? Op::kAllReduce
                                                           : Op::kExchange;
    auto created = Traffic::Create(asked, *from, hop.to);
    if (!created.ok()) return created.status();
    traffics.push_back(*std::move(created));
    const Traffic& traffic = *traffics.back();
    const TrafficFigures figures = traffic.Figures();

    Step step;
    step.op = traffic.Classify();
    step.from = *from;
    step.to = hop.to;
    step.axes = traffic.Axes();
    step.group_size = traffic.GroupSize();
    step.recv_bytes_max = figures.recv_max * element;
    step.recv_bytes_total = figures.recv_total * element;
    step.send_bytes_max = figures.send_max * element;
    step.peers_max = figures.peers_max;

    const std::vector<DeviceLoad> loads = traffic.Loads();
    const std::vector<int64_t>& devices = traffic.Devices();
    if (first_devices == nullptr) {
      first_devices = &devices;
      by_position.resize(devices.size());
    }
    const bool aligned = by_id.empty() && devices == *first_devices;
    if (!aligned && by_id.empty()) {
      for (size_t p = 0; p < by_position.size(); ++p) by_id.emplace((*first_devices)[p], by_position[p]);
    }
    auto sums_of = [&](size_t p) -> Sums& { return aligned ? by_position[p] : by_id[devices[p]]; };

    for (size_t p = 0; p < loads.size(); ++p) {
      const DeviceLoad& load = loads[p];
      Sums& sums = sums_of(p);
      if (i == 0) sums.source = load.before;
      sums.recv += load.recv;
      out.totals.recv_bytes_max = std::max(out.totals.recv_bytes_max, sums.recv * element);
      step.local_bytes_before_max = std::max(step.local_bytes_before_max, load.before * element);
      step.local_bytes_after_max = std::max(step.local_bytes_after_max, load.after * element);
      const int64_t base = (sums.source + (i > 0 ? load.before : 0) + load.after) * element;
      out.smallest_peak_bytes =
          std::max(out.smallest_peak_bytes, base + std::min(load.staging, load.staging_messages) * element);
      if (options.memory_limit_bytes) {
        const int64_t allowed = (*options.memory_limit_bytes - base) / element;
        if (allowed >= load.staging_messages) step.rounds = std::max(step.rounds, RoundsFor(load, allowed));
      }
    }
    for (size_t p = 0; p < loads.size(); ++p) {
      const DeviceLoad& load = loads[p];
      const int64_t base = sums_of(p).source + (i > 0 ? load.before : 0) + load.after;
      out.totals.peak_bytes = std::max(out.totals.peak_bytes, (base + StagingInRounds(load, step.rounds)) * element);
    }

    if (step.op != Op::kSlice) {
      int level = 0;
      if (options.topology.levels.size() > 1) {
        if (step.crosses_meshes()) {
          const auto [low, high] = std::minmax_element(devices.begin(), devices.end());
          level = options.topology.LevelOf(*low, *high);
        } else {
          level = LevelOfGroups(from->mesh(), step.axes, options.topology);
        }
      }
      step.time_ns = options.topology.StepTime(level, step.peers_max,
                                               std::max(step.recv_bytes_max, step.send_bytes_max), step.rounds);
    }
    out.sum_of_step_maxima += step.recv_bytes_max;
    out.totals.recv_bytes_total += step.recv_bytes_total;
    out.totals.time_ns += step.time_ns;
    out.totals.intermediate_bytes_max = std::max(out.totals.intermediate_bytes_max, step.local_bytes_after_max);
    out.steps.push_back(std::move(step));
    from = &hop.to;
  }
  if (hops.empty()) out.totals.peak_bytes = out.smallest_peak_bytes = source.MaxLocalElements() * element;
  return out;
}

}  // namespace reshard::search
