#include "planner/cost/price.h"

#include <algorithm>
#include <cassert>
#include <memory>
#include <optional>
#include <unordered_map>
#include <unordered_set>

#include "absl/status/status.h"
#include "planner/cost/choose_chunks.h"
#include "planner/digits/device_classes.h"
#include "planner/digits/device_kinds.h"
#include "reshard/layout/checked.h"
#include "reshard/planner/traffic.h"
#include "status/macros.h"

namespace reshard::cost {
namespace {

// A packing backend needs `staging` elements at once; in k rounds every message sends at most ceil(its elements / k).
int64_t StagingInRounds(const DeviceLoad& load, int64_t rounds) {
  return (load.staging + (rounds - 1) * load.staging_messages) / rounds;
}

// Fewest rounds after which a device's staging is at most `allowed` elements. Requires allowed >= staging_messages.
int64_t RoundsFor(const DeviceLoad& load, int64_t allowed) {
  assert(allowed >= load.staging_messages);
  if (load.staging <= allowed) return 1;
  return (load.staging - load.staging_messages) / (allowed - load.staging_messages + 1) + 1;
}

// The devices whose loads are looked at, each of which stands for all that do the same in every step. Devices that
// steps between meshes add keep their places: the devices of the first transfers come first.
struct Devices {
  std::vector<digits::DeviceClass> classes;  // positions, where one stands for many
  std::vector<int64_t> ids;                  // else every device
  bool symbolic() const { return !classes.empty(); }
  size_t size() const { return symbolic() ? classes.size() : ids.size(); }
  int64_t copies(size_t i) const { return symbolic() ? classes[i].devices : 1; }
};

// The devices of the mesh by what they do in all steps together; empty where a step does not tell them apart.
std::vector<digits::DeviceClass> KindsOf(const Layout& source,
                                         const std::vector<std::unique_ptr<TransferSchedule>>& schedules) {
  digits::DeviceKinds together(static_cast<size_t>(source.mesh().size()));
  for (const auto& transfers : schedules) {
    const std::vector<int32_t> of_step = transfers->Kinds();
    if (static_cast<int64_t>(of_step.size()) != source.mesh().size()) return {};
    together.TellApart(of_step, 1 + *std::max_element(of_step.begin(), of_step.end()));
  }
  return together.Classes();
}

Devices DevicesOf(const Layout& source, const std::vector<std::unique_ptr<TransferSchedule>>& schedules) {
  Devices out;
  std::vector<digits::DigitLink> links;
  bool alike = true;
  for (const auto& transfers : schedules) {
    const std::vector<digits::DigitLink>* of_step = transfers->Links();
    alike = alike && of_step != nullptr;
    if (alike) links.insert(links.end(), of_step->begin(), of_step->end());
  }
  if (alike) {
    auto classes = digits::ClassesUnder(source.mesh(), links);
    if (classes) {
      out.classes = *std::move(classes);
      return out;
    }
  }
  out.classes = KindsOf(source, schedules);
  if (out.symbolic()) return out;
  for (size_t i = 0; i < schedules.size(); ++i) {
    std::vector<int64_t> of_step = schedules[i]->Devices();
    if (i == 0) {
      out.ids = std::move(of_step);
    } else if (of_step != out.ids) {
      std::unordered_set<int64_t> seen(out.ids.begin(), out.ids.end());
      for (int64_t id : of_step) {
        if (seen.insert(id).second) out.ids.push_back(id);
      }
    }
  }
  return out;
}

// What one device does in one step, or nothing when the step does not concern it.
class StepLoads {
 public:
  StepLoads(const TransferSchedule& transfers, const Devices& devices) : transfers_(transfers), devices_(devices) {
    if (devices.symbolic()) return;
    const std::vector<int64_t> of_step = transfers.Devices();
    if (of_step == devices.ids) return;
    for (size_t i = 0; i < of_step.size(); ++i) index_.emplace(of_step[i], static_cast<int64_t>(i));
  }
  std::optional<DeviceLoad> Of(size_t i) const {
    if (devices_.symbolic()) return transfers_.Load(devices_.classes[i].position);
    if (index_.empty()) return transfers_.Load(static_cast<int64_t>(i));
    const auto it = index_.find(devices_.ids[i]);
    if (it == index_.end()) return std::nullopt;
    return transfers_.Load(it->second);
  }

 private:
  const TransferSchedule& transfers_;
  const Devices& devices_;
  std::unordered_map<int64_t, int64_t> index_;  // by device id, where the step has other devices
};

void AddLevel(const LevelLoad& load, int64_t element, int64_t copies, LevelFigures& out) {
  out.recv_bytes_max = std::max(out.recv_bytes_max, load.recv * element);
  out.send_bytes_max = std::max(out.send_bytes_max, load.send * element);
  out.recv_bytes_total += load.recv * element * copies;
  out.peers_max = std::max(out.peers_max, load.peers);
}

// What one device does in all steps, in elements.
struct Sums {
  int64_t source = 0;
  int64_t target = 0;
  int64_t between = 0;  // of all fragments between the two
  int64_t recv = 0;
  int64_t send = 0;
};

int64_t StepTimeOf(const Step& step, const Topology& topology) {
  int64_t time = 0;
  for (size_t level = 0; level < step.levels.size(); ++level) {
    const LevelFigures& one = step.levels[level];
    if (one.nic_bytes_max == 0) continue;
    time = std::max(time, topology.StepTime(static_cast<int>(level), one.peers_max, one.nic_bytes_max, step.rounds));
  }
  // Even where nothing crosses, every device takes part.
  return time == 0 && step.op != Op::kSlice ? topology.StepTime(0, step.peers_max, 0, step.rounds) : time;
}

// Lets the steps overlap where that helps.
void CutIntoChunks(const std::vector<Sums>& sums, int64_t element, const PlanOptions& options, PricedChain& out) {
  if (!options.overlap || options.objective == Objective::kSteps) return;
  const auto peak = [&](int64_t count) {
    int64_t most = 0;
    for (const Sums& of : sums) {
      // Sizes of fragments are multiples of the count; what is received and sent is made up of parts of them.
      const int64_t passing = CeilDiv(2 * of.between, count) + CeilDiv(of.recv, count) + CeilDiv(of.send, count);
      most = std::max(most, (of.source + of.target + passing) * element);
    }
    return most;
  };
  const auto chosen = ChooseChunks(out.steps, options.topology, options.memory_limit_bytes, peak);
  if (!chosen) return;
  const bool fits = !options.memory_limit_bytes || out.smallest_peak_bytes <= *options.memory_limit_bytes;
  if (fits && chosen->time_ns > out.totals.time_ns - out.totals.time_ns / 32) return;
  for (Step& step : out.steps) {
    step.rounds = 1;
    step.time_ns = StepTimeOf(step, options.topology);
  }
  out.chunks = chosen->chunks;
  out.totals.time_ns = chosen->time_ns;
  out.totals.peak_bytes = chosen->peak_bytes;
  out.smallest_peak_bytes = std::min(out.smallest_peak_bytes, chosen->peak_bytes);
}

}  // namespace

absl::StatusOr<PricedChain> Price(const Layout& source, const std::vector<ChainStep>& steps, DType dtype,
                                  const PlanOptions& options) {
  transfers::ShardMaps none({});
  return Price(source, steps, dtype, options, none);
}

absl::StatusOr<PricedChain> Price(const Layout& source, const std::vector<ChainStep>& steps, DType dtype,
                                  const PlanOptions& options, transfers::ShardMaps& maps) {
  const int64_t element = SizeOf(dtype);
  const Topology& topology = options.topology;
  const auto num_levels = static_cast<size_t>(topology.num_levels());
  PricedChain out;
  std::vector<std::unique_ptr<TransferSchedule>> schedules;
  ASSIGN_OR_RETURN(std::shared_ptr<const ShardMap> before, maps.Of(source));
  for (size_t i = 0; i < steps.size(); ++i) {
    const Op asked = steps[i].kind == ChainStep::Kind::kReduceScatter ? Op::kReduceScatter
                     : steps[i].kind == ChainStep::Kind::kAllReduce   ? Op::kAllReduce
                     : steps[i].kind == ChainStep::Kind::kPermute     ? Op::kAllPermute
                                                                      : Op::kExchange;
    ASSIGN_OR_RETURN(std::shared_ptr<const ShardMap> after, maps.Of(steps[i].to));
    const transfers::MappedLayout from{i == 0 ? source : steps[i - 1].to, *before};
    ASSIGN_OR_RETURN(auto created, transfers::CreateTransfers(asked, from, {steps[i].to, *after}, topology,
                                                              transfers::Asked::kLoads));
    schedules.push_back(std::move(created));
    before = std::move(after);
  }
  out.totals.intermediate_bytes_max = source.MaxLocalElements() * element;
  out.totals.levels.resize(num_levels);
  if (steps.empty()) {
    out.totals.peak_bytes = out.smallest_peak_bytes = out.totals.intermediate_bytes_max;
    return out;
  }
  const Devices devices = DevicesOf(source, schedules);
  std::vector<Sums> sums(devices.size());
  std::vector<LevelLoad> level_sums(num_levels > 1 ? devices.size() * num_levels : 0);

  for (size_t i = 0; i < steps.size(); ++i) {
    const TransferSchedule& transfers = *schedules[i];
    const TransferFigures figures = transfers.Figures();
    Step step;
    step.op = transfers.Classify();
    step.from = i == 0 ? source : steps[i - 1].to;
    step.to = steps[i].to;
    step.axes = transfers.Axes();
    step.group_size = transfers.GroupSize();
    step.recv_bytes_max = figures.recv_max * element;
    step.recv_bytes_total = figures.recv_total * element;
    step.send_bytes_max = figures.send_max * element;
    step.peers_max = figures.peers_max;
    step.levels.resize(num_levels);

    const StepLoads step_loads(transfers, devices);
    // What a device holds while the step runs, without staging. `peak`: the most of any device, with it. In elements.
    const auto held = [&](size_t p, const DeviceLoad& load) {
      return sums[p].source + (i > 0 ? load.before : 0) + load.after;
    };
    int64_t peak = 0;
    for (size_t p = 0; p < devices.size(); ++p) {
      const std::optional<DeviceLoad> load = step_loads.Of(p);
      if (!load) continue;
      if (i == 0) sums[p].source = load->before;
      (i + 1 < steps.size() ? sums[p].between : sums[p].target) += load->after;
      sums[p].recv += load->recv;
      sums[p].send += load->send;
      if (num_levels == 1) AddLevel({sums[p].recv, sums[p].send, 0}, element, 0, out.totals.levels[0]);
      out.totals.recv_bytes_max = std::max(out.totals.recv_bytes_max, sums[p].recv * element);
      step.local_bytes_before_max = std::max(step.local_bytes_before_max, load->before * element);
      step.local_bytes_after_max = std::max(step.local_bytes_after_max, load->after * element);
      const int64_t base = held(p, *load);
      peak = std::max(peak, base + load->staging);
      out.smallest_peak_bytes =
          std::max(out.smallest_peak_bytes, (base + std::min(load->staging, load->staging_messages)) * element);
      if (options.memory_limit_bytes) {
        const int64_t allowed = (*options.memory_limit_bytes - base * element) / element;
        if (allowed >= load->staging_messages) step.rounds = std::max(step.rounds, RoundsFor(*load, allowed));
      }
      for (size_t level = 0; level < load->levels.size(); ++level) {
        AddLevel(load->levels[level], element, devices.copies(p), step.levels[level]);
        LevelLoad& sum = level_sums[p * num_levels + level];
        sum.recv += load->levels[level].recv;
        sum.send += load->levels[level].send;
        AddLevel(sum, element, 0, out.totals.levels[level]);
      }
    }
    if (step.rounds > 1) {  // which is known only after all devices
      peak = 0;
      for (size_t p = 0; p < devices.size(); ++p) {
        const std::optional<DeviceLoad> load = step_loads.Of(p);
        if (load) peak = std::max(peak, held(p, *load) + StagingInRounds(*load, step.rounds));
      }
    }
    out.totals.peak_bytes = std::max(out.totals.peak_bytes, peak * element);
    if (num_levels == 1) {
      step.levels[0] = {step.recv_bytes_max, step.send_bytes_max, step.recv_bytes_total, 0, step.peers_max};
    }
    for (size_t level = 0; level < num_levels; ++level) {
      LevelFigures& one = step.levels[level];
      LevelFigures& total = out.totals.levels[level];
      const int64_t shared = topology.DevicesPerNic(static_cast<int>(level));
      one.nic_bytes_max = std::max(one.recv_bytes_max, one.send_bytes_max) * shared;
      total.recv_bytes_total += one.recv_bytes_total;
      total.peers_max = std::max(total.peers_max, one.peers_max);
      total.nic_bytes_max = std::max(total.recv_bytes_max, total.send_bytes_max) * shared;
    }
    step.time_ns = StepTimeOf(step, topology);
    out.sum_of_step_maxima += step.recv_bytes_max;
    out.totals.recv_bytes_total += step.recv_bytes_total;
    out.totals.time_ns += step.time_ns;
    out.totals.intermediate_bytes_max = std::max(out.totals.intermediate_bytes_max, step.local_bytes_after_max);
    out.steps.push_back(std::move(step));
  }
  CutIntoChunks(sums, element, options, out);
  return out;
}

int64_t TimeAtLeast(const Layout& source, const std::vector<ChainStep>& steps, DType dtype, const Topology& topology,
                    transfers::ShardMaps& maps) {
  std::vector<int64_t> busy(static_cast<size_t>(topology.num_levels()), 0);
  for (size_t i = 0; i < steps.size(); ++i) {
    if (steps[i].kind != ChainStep::Kind::kMove) continue;
    const auto sample = maps.SampleOf(i == 0 ? source : steps[i - 1].to, steps[i].to, topology);
    if (!sample.ok() || !sample->busiest) continue;
    for (int level = 0; level < topology.num_levels(); ++level) {
      const LevelLoad& load = sample->busiest->received[static_cast<size_t>(level)];
      const int64_t bytes = load.recv * SizeOf(dtype) * topology.DevicesPerNic(level);
      if (bytes > 0) busy[static_cast<size_t>(level)] += topology.StepTime(level, load.peers, bytes);
    }
  }
  return *std::max_element(busy.begin(), busy.end());
}

}  // namespace reshard::cost
