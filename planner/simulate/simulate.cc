#include "reshard/planner/simulate.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "planner/simulate/classes.h"
#include "planner/simulate/flows.h"
#include "planner/simulate/fluid.h"
#include "reshard/planner/units.h"
#include "status/macros.h"

namespace reshard {
namespace {

int64_t UsedPermille(int64_t bytes, int64_t time_ns, int64_t bytes_per_second) {
  if (time_ns == 0) return 0;
  const __int128 could = static_cast<__int128>(bytes_per_second) * time_ns;
  return static_cast<int64_t>(static_cast<__int128>(bytes) * 1'000'000'000 * 1000 / could);
}

}  // namespace

absl::StatusOr<Simulation> Simulate(const Plan& plan, const SimulateOptions& options) {
  const Topology& topology = options.topology ? *options.topology : plan.options.topology;
  RETURN_IF_ERROR(topology.Validate());
  ASSIGN_OR_RETURN(auto list, simulate::ListFlows(plan, topology));
  const simulate::ClassedFlows classes = simulate::Classify(list, topology);
  ASSIGN_OR_RETURN(auto times, simulate::Follow(classes, topology));

  Simulation out;
  out.messages = static_cast<int64_t>(list.flows.size());
  out.message_classes = static_cast<int64_t>(classes.flows.size());
  for (int32_t i = 0; i < static_cast<int32_t>(plan.steps.size()); ++i) {
    Simulation::StepTime step{out.time_ns, out.time_ns};
    bool first = true;
    for (size_t phase = 0; phase < list.phases.size(); ++phase) {
      if (list.phases[phase].first > i || list.phases[phase].last < i) continue;
      if (first) step.begin_ns = times.phases[phase].begin_ns;
      step.end_ns = std::max(step.end_ns, times.phases[phase].end_ns);
      first = false;
    }
    out.time_ns = std::max(out.time_ns, step.end_ns);
    out.steps.push_back(step);
  }
  for (int level = 0; level < topology.num_levels(); ++level) {
    for (const bool direction : {false, true}) {
      Simulation::Link busiest;
      for (size_t p = 0; p < classes.ports.size(); ++p) {
        const simulate::PortClass& port = classes.ports[p];
        if (port.level != level || port.out != direction) continue;
        if (port.bytes < busiest.bytes || (port.bytes == busiest.bytes && port.device >= busiest.device)) continue;
        busiest = {level, direction, port.device, port.bytes, times.port_busy_ns[p], 0};
      }
      if (busiest.bytes == 0) continue;
      busiest.used_permille = UsedPermille(busiest.bytes, out.time_ns, topology.levels[level].bytes_per_second);
      out.busiest.push_back(busiest);
    }
  }
  return out;
}

std::string SimulationToText(const Plan& plan, const Simulation& simulation) {
  std::string out = absl::StrCat("simulated ", HumanTime(simulation.time_ns), " (priced ",
                                 HumanTime(plan.totals.time_ns), "), ", simulation.messages, " messages\n");
  int64_t before = 0;
  for (size_t i = 0; i < simulation.steps.size(); ++i) {
    const Simulation::StepTime& step = simulation.steps[i];
    absl::StrAppend(&out, "  step ", i + 1, " ", std::string(Name(plan.steps[i].op)), ": ",
                    plan.chunks.count > 1
                        ? absl::StrCat("from ", HumanTime(step.begin_ns), " to ", HumanTime(step.end_ns))
                        : HumanTime(step.end_ns - before),
                    "\n");
    before = step.end_ns;
  }
  for (const Simulation::Link& link : simulation.busiest) {
    absl::StrAppend(&out, "  level ", link.level, ", busiest link ", link.out ? "out of" : "into", " device ",
                    link.device, ": ", HumanBytes(link.bytes), ", ", link.used_permille / 10, " % used\n");
  }
  return out;
}

}  // namespace reshard
