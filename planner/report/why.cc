#include "planner/report/why.h"

#include <cstdint>
#include <string_view>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "reshard/planner/units.h"
#include "status/view.h"

namespace reshard::report {
namespace {

// Differences below this are not worth a word.
constexpr double kVisible = 1.005;

bool IsMore(int64_t a, int64_t b) { return static_cast<double>(a) > kVisible * static_cast<double>(b); }

std::string Times(int64_t more, int64_t less) {
  return absl::StrFormat("%.2fx", static_cast<double>(more) / static_cast<double>(less));
}

// What the chosen plan minimizes first.
int64_t KeyOf(Objective objective, size_t steps, const Totals& totals) {
  switch (objective) {
    case Objective::kTime:
      return totals.time_ns;
    case Objective::kBytes:
      return totals.levels.size() > 1 ? totals.levels.back().nic_bytes_max : totals.recv_bytes_max;
    case Objective::kSteps:
      return static_cast<int64_t>(steps);
  }
  return 0;
}

// Plans that lost because of what a user asked for (memory) are left out of the comparison.
bool Competes(const Plan& plan, const Alternative& alternative) {
  if (alternative.totals.intermediate_bytes_max > plan.bounds.intermediate_bytes_max) return false;
  return !plan.options.memory_limit_bytes || alternative.totals.peak_bytes <= *plan.options.memory_limit_bytes;
}

const Alternative* BestOther(const Plan& plan) {
  const Alternative* best = nullptr;
  for (const Alternative& one : plan.alternatives) {
    const auto key = [&](const Alternative& a) { return KeyOf(plan.options.objective, a.steps.size(), a.totals); };
    if (Competes(plan, one) && (best == nullptr || key(one) < key(*best))) best = &one;
  }
  return best;
}

std::string LevelText(const Topology& topology, size_t level) {
  const bool is_outermost = level + 1 == topology.levels.size();
  if (level == 0) return "inside nodes";
  return is_outermost ? "between nodes" : absl::StrCat("inside groups of ", topology.levels[level].devices, " devices");
}

// "less between nodes (512 B instead of 1 KiB)", ...
std::vector<std::string> Differences(const Plan& plan, const Alternative& other) {
  std::vector<std::string> out;
  const auto compare = [&](int64_t own, int64_t its, std::string_view where) {
    if (!IsMore(own, its) && !IsMore(its, own)) return;
    out.push_back(absl::StrCat(own < its ? "less " : "more ", status::View(where), " (", HumanBytes(own),
                               " instead of ", HumanBytes(its), ")"));
  };
  const auto& own = plan.totals.levels;
  const auto& its = other.totals.levels;
  for (size_t level = own.size(); own.size() > 1 && own.size() == its.size() && level-- > 0;) {
    compare(own[level].nic_bytes_max, its[level].nic_bytes_max, LevelText(plan.options.topology, level));
  }
  if (own.size() < 2) compare(plan.totals.recv_bytes_max, other.totals.recv_bytes_max, "received by the worst device");
  if (plan.steps.size() != other.steps.size()) {
    out.push_back(
        absl::StrCat(Counted(static_cast<int64_t>(plan.steps.size()), "step"), " instead of ", other.steps.size()));
  }
  return out;
}

std::string Advantage(const Plan& plan, const Alternative& other) {
  const std::string name = OpsText(other.steps, other.chunks);
  const int64_t time = plan.totals.time_ns, its = other.totals.time_ns;
  const int64_t bytes = KeyOf(Objective::kBytes, 0, plan.totals), its_bytes = KeyOf(Objective::kBytes, 0, other.totals);
  if (plan.options.objective == Objective::kTime && IsMore(its, time) && time > 0) {
    return absl::StrCat("it is ", Times(its, time), " faster than ", name, " (", HumanTime(its), ")");
  }
  if (plan.options.objective == Objective::kBytes && IsMore(its_bytes, bytes) && bytes > 0) {
    return absl::StrCat("it moves ", Times(its_bytes, bytes), " fewer bytes over the slowest links than ", name);
  }
  if (plan.steps.size() < other.steps.size()) return absl::StrCat("it is as good as ", name, " in fewer steps");
  return absl::StrCat("nothing beats it: ", name, " is the next best");
}

// Where the plan is above the bound: what fewer bytes would cost.
std::string AboveTheBound(const Plan& plan) {
  const int64_t received = plan.totals.recv_bytes_max, bound = plan.bounds.recv_bytes_max;
  if (received == bound) return "";
  std::string out = bound == 0 ? std::string(" Nothing would have to be received")
                               : absl::StrCat(" It receives ", Times(received, bound), " the lower bound");
  if (const Alternative* const fewest = FewestBytes(plan)) {
    const int64_t time = plan.totals.time_ns, its = fewest->totals.time_ns;
    absl::StrAppend(&out, "; ", OpsText(fewest->steps, fewest->chunks), " receives less, ",
                    HumanBytes(fewest->totals.recv_bytes_max),
                    IsMore(its, time) && time > 0 ? absl::StrCat(", but takes ", Times(its, time), " as long")
                                                  : std::string(", but in more steps"),
                    ".");
    return out;
  }
  return absl::StrCat(out, "; no plan that receives less was found, and the bound may be out of reach.");
}

}  // namespace

const Alternative* FewestBytes(const Plan& plan) {
  const Alternative* fewest = nullptr;
  for (const Alternative& one : plan.alternatives) {
    if (!Competes(plan, one) || !IsMore(plan.totals.recv_bytes_max, one.totals.recv_bytes_max)) continue;
    if (fewest == nullptr || one.totals.recv_bytes_max < fewest->totals.recv_bytes_max) fewest = &one;
  }
  return fewest;
}

std::string OpsText(absl::Span<const Step> steps, const Chunks& chunks) {
  std::vector<std::string> parts;
  for (size_t first = 0, next = 0; first < steps.size(); first = next) {
    while (next < steps.size() && steps[next].op == steps[first].op) ++next;
    const std::string name(Name(steps[first].op));
    parts.push_back(next - first == 1 ? name : absl::StrCat(next - first, " ", name));
  }
  return absl::StrCat(parts.empty() ? "no step" : absl::StrJoin(parts, ", then "),
                      chunks.count > 1 ? absl::StrCat(" in ", chunks.count, " overlapping chunks") : "");
}

std::string WhyChosen(const Plan& plan) {
  if (plan.steps.empty()) return "Nothing moves: every device already holds what the target asks for.";
  const bool at_bound = plan.totals.recv_bytes_max == plan.bounds.recv_bytes_max;
  const Alternative* const other = BestOther(plan);
  if (other == nullptr) {
    return absl::StrCat(at_bound
                            ? "Chosen because no algorithm can move fewer bytes, and no other plan was worth trying."
                            : "Chosen because it is the only plan with these operations and within these limits.",
                        AboveTheBound(plan));
  }
  const std::vector<std::string> differences = Differences(plan, *other);
  return absl::StrCat("Chosen because ", Advantage(plan, *other), differences.empty() ? "" : ": ",
                      absl::StrJoin(differences, ", "), ".", AboveTheBound(plan));
}

}  // namespace reshard::report
