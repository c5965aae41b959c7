#include "reshard/layout/text.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "planner/report/levels.h"
#include "planner/report/why.h"
#include "reshard/planner/report.h"
#include "reshard/planner/version.h"

namespace reshard {
namespace {

std::string AxesText(const Step& step) {
  if (step.crosses_meshes()) return absl::StrCat(" across meshes, ", step.group_size, " devices");
  if (step.axes.empty()) return "";
  std::vector<std::string> names;
  for (const AxisRef& ref : step.axes) names.push_back(ToString(step.from.mesh(), ref));
  return absl::StrCat(" over ", absl::StrJoin(names, ","), " (groups of ", step.group_size, ")");
}

std::string Ratio(int64_t value, int64_t bound) {
  if (bound == 0) return value == 0 ? "nothing has to move" : "nothing would have to move";
  if (value == bound) return "exactly the lower bound";
  return absl::StrFormat("%.3fx the lower bound of %s", static_cast<double>(value) / static_cast<double>(bound),
                         HumanBytes(bound));
}

// What crosses each level of the topology, and the least that has to.
std::string LevelsText(const Plan& plan) {
  std::string out;
  const auto& levels = plan.totals.levels;
  if (levels.size() < 2) return out;
  for (size_t level = 0; level < levels.size(); ++level) {
    const LevelFigures& one = levels[level];
    absl::StrAppend(&out, "level ", level, ", ", report::LevelName(plan.options.topology, level),
                    ": a device receives ", HumanBytes(one.recv_bytes_max), " and sends ",
                    HumanBytes(one.send_bytes_max), ", a link carries ", HumanBytes(one.nic_bytes_max));
    if (level > 0 && level < plan.bounds.levels.size()) {
      // The bound of a level counts what crosses it or a level outside it.
      int64_t carried = 0;
      for (size_t outer = level; outer < levels.size(); ++outer) carried += levels[outer].nic_bytes_max;
      absl::StrAppend(&out, " (", carried == one.nic_bytes_max ? "" : "with the levels outside it ",
                      Ratio(carried, plan.bounds.levels[level].nic_bytes_max), ")");
    }
    out += "\n";
  }
  return out;
}

std::string DomainsText(const Plan& plan) {
  std::string out;
  const std::string lines = DescribeDomains(plan);
  for (const absl::string_view line : absl::StrSplit(lines, '\n', absl::SkipEmpty())) {
    absl::StrAppend(&out, "  ", line, "\n");
  }
  return out;
}

std::string LayoutOn(const Step& step, bool from) {
  const Layout& layout = from ? step.from : step.to;
  if (!step.crosses_meshes()) return ToString(layout);
  return absl::StrCat(ToString(layout), " on ", ToString(layout.mesh()));
}

// "in 8 chunks, which overlap, ", or nothing.
std::string InChunks(const Chunks& chunks) {
  return chunks.count > 1 ? absl::StrCat("in ", chunks.count, " chunks, which overlap, ") : "";
}

}  // namespace

std::string PlanToText(const Plan& plan) {
  std::string out = absl::StrCat(ToString(plan.source), "  on ", ToString(plan.source.mesh()), "\n");
  if (plan.steps.empty()) return absl::StrCat(out, "  nothing to do: ", ToString(plan.target), " is the same\n");
  for (const Step& step : plan.steps) {
    absl::StrAppend(&out, "  ", std::string(Name(step.op)), AxesText(step), ", ", HumanBytes(step.recv_bytes_max),
                    " received by the worst device, ", HumanTime(step.time_ns), "\n");
    absl::StrAppend(&out, LayoutOn(step, false), "\n");
  }
  absl::StrAppend(&out, "total ", HumanBytes(plan.totals.recv_bytes_max), " a device (",
                  Ratio(plan.totals.recv_bytes_max, plan.bounds.recv_bytes_max), "), peak ",
                  HumanBytes(plan.totals.peak_bytes), ", ", InChunks(plan.chunks), HumanTime(plan.totals.time_ns),
                  "\n");
  return out + LevelsText(plan);
}

std::string ExplainPlan(const Plan& plan) {
  std::string shape = absl::StrJoin(plan.source.shape(), "x");
  std::string out =
      absl::StrCat("Tensor ", shape.empty() ? "0-d" : shape, " of ", std::string(Name(plan.dtype)), ", ", plan.world(),
                   plan.world() == 1 ? " device" : " devices", ", objective ",
                   std::string(Name(plan.options.objective)), ", topology ", plan.options.topology.name, "\n");
  absl::StrAppend(&out, "  from ", ToString(plan.source), " on ", ToString(plan.source.mesh()), "\n");
  absl::StrAppend(&out, "  to   ", ToString(plan.target), " on ", ToString(plan.target.mesh()), "\n");
  absl::StrAppend(&out, DomainsText(plan), "\n");
  if (plan.steps.empty()) {
    return absl::StrCat(out, "Nothing to do: every device already holds what the target asks for.\n");
  }
  for (size_t i = 0; i < plan.steps.size(); ++i) {
    const Step& step = plan.steps[i];
    absl::StrAppend(&out, "Step ", i + 1, ": ", std::string(Name(step.op)), AxesText(step), "\n");
    absl::StrAppend(&out, "  from ", LayoutOn(step, true), "\n  to   ", LayoutOn(step, false), "\n");
    absl::StrAppend(&out, "  a device receives at most ", HumanBytes(step.recv_bytes_max), " and sends at most ",
                    HumanBytes(step.send_bytes_max), " (", step.recv_bytes_max, " and ", step.send_bytes_max,
                    " bytes) with at most ", step.peers_max, step.peers_max == 1 ? " peer" : " peers",
                    "; all together ", HumanBytes(step.recv_bytes_total), "\n");
    absl::StrAppend(&out, "  local size ", HumanBytes(step.local_bytes_before_max), " -> ",
                    HumanBytes(step.local_bytes_after_max), "; estimated ", HumanTime(step.time_ns));
    if (step.rounds > 1) absl::StrAppend(&out, " in ", step.rounds, " rounds, to keep to the memory limit");
    absl::StrAppend(&out, "\n");
    for (size_t level = 0; step.levels.size() > 1 && level < step.levels.size(); ++level) {
      const LevelFigures& one = step.levels[level];
      if (one.nic_bytes_max == 0) continue;
      absl::StrAppend(&out, "  ", report::LevelName(plan.options.topology, level), ": at most ",
                      HumanBytes(one.recv_bytes_max), " received and ", HumanBytes(one.send_bytes_max),
                      " sent by a device, ", HumanBytes(one.nic_bytes_max), " through a link, ", one.peers_max,
                      one.peers_max == 1 ? " peer" : " peers", "\n");
    }
  }
  if (plan.chunks.count > 1) {
    const int64_t part = plan.chunks.block / plan.chunks.count;
    absl::StrAppend(&out, "\nAt the same time: the tensor goes in ", plan.chunks.count,
                    " chunks, each one step behind the one before it;\n  a chunk is ", part, " of every ",
                    plan.chunks.block, " indices of dimension ", plan.chunks.dim, "\n");
  }
  absl::StrAppend(&out, "\nTotal: the worst device receives ", HumanBytes(plan.totals.recv_bytes_max), " (",
                  plan.totals.recv_bytes_max, " bytes), all devices ", HumanBytes(plan.totals.recv_bytes_total),
                  "; estimated ", HumanTime(plan.totals.time_ns), "\n");
  absl::StrAppend(&out, "Memory: at most ", HumanBytes(plan.totals.peak_bytes),
                  " a device at once (source, target, what lies between, staging); largest layout ",
                  HumanBytes(plan.totals.intermediate_bytes_max), ", max(source, target) is ",
                  HumanBytes(plan.bounds.intermediate_bytes_max), "\n");
  absl::StrAppend(&out, "Lower bound: ", HumanBytes(plan.bounds.recv_bytes_max), " (", plan.bounds.recv_bytes_max,
                  " bytes) for the worst device whatever the algorithm; this plan is at ",
                  Ratio(plan.totals.recv_bytes_max, plan.bounds.recv_bytes_max), "\n");
  out += LevelsText(plan);
  absl::StrAppend(&out, "Why: ", report::WhyChosen(plan), "\n");
  absl::StrAppend(&out, "Proof: ", std::string(Name(plan.certificate.kind)), ": ", plan.certificate.detail, "\n");
  if (!plan.alternatives.empty()) {
    absl::StrAppend(&out, "Also tried:\n");
    for (const Alternative& alternative : plan.alternatives) {
      absl::StrAppend(
          &out, "  ", report::OpsText(alternative.steps, alternative.chunks), " lost: ", alternative.rejected_because,
          " [receives ", HumanBytes(alternative.totals.recv_bytes_max), ", largest layout ",
          HumanBytes(alternative.totals.intermediate_bytes_max), ", ", HumanTime(alternative.totals.time_ns), "]\n");
    }
  }
  return out;
}

}  // namespace reshard
