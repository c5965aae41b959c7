// Every figure of a plan against what was derived.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "check/judge.h"
#include "reshard/layout/checked.h"

namespace reshard::check {
namespace {

int64_t Cut(__int128 value) {
  constexpr __int128 kMost = INT64_MAX;
  return static_cast<int64_t>(std::min(value, kMost));
}

std::string Text(__int128 value) { return absl::StrCat(Cut(value)); }

}  // namespace

void PlanJudge::Same(const std::string& where, const plan_text::Figure& said, __int128 is) {
  if (said && *said != is) verdict_.findings.push_back({where, absl::StrCat(*said), Text(is), ""});
}

void PlanJudge::Between(const std::string& where, const plan_text::Figure& said, __int128 low, __int128 high) {
  if (!said) return;
  if (low == high) return Same(where, said, low);
  const std::string range = absl::StrCat(Text(low), " to ", Text(high));
  if (*said < low || *said > high) {
    verdict_.findings.push_back({where, absl::StrCat(*said), range, "what the layouts allow"});
  } else {
    Leave(where, absl::StrCat("held against a range only: ", range));
  }
}

void PlanJudge::CompareStep(size_t s) {
  const Step& step = steps_[s];
  const plan_text::StepText& said = plan_.steps[s];
  const std::string where = absl::StrCat("steps[", s, "]");
  const int64_t before = step.from->MaxElements() * element_;
  const int64_t after = step.to->MaxElements() * element_;
  Same(where + ".local_bytes_before_max", said.local_bytes_before_max, before);
  Same(where + ".local_bytes_after_max", said.local_bytes_after_max, after);
  if (!step.facts) return;
  const StepFacts& facts = *step.facts;
  if (step.other_name) {
    const bool allowed =
        !plan_.ops || std::find(plan_.ops->begin(), plan_.ops->end(), Name(*step.other_name)) != plan_.ops->end();
    if (allowed) {
      verdict_.findings.push_back({where + ".op", said.op, Name(*step.other_name), "the name of this pattern"});
    }
  }
  Between(where + ".group_size", said.group_size, facts.group_size.low, facts.group_size.high);
  Same(where + ".recv_bytes_max", said.recv_bytes_max, facts.recv_max * element_);
  Same(where + ".recv_bytes_total", said.recv_bytes_total, facts.recv_total * element_);
  Between(where + ".send_bytes_max", said.send_bytes_max, facts.send_max.low * element_,
          facts.send_max.high * element_);
  Between(where + ".peers_max", said.peers_max, facts.peers_max.low, facts.peers_max.high);
  if (said.levels) CompareStepLevels(s, where);
  CompareTime(s, where);
  const auto bytes = [&](const Derived& range) { return Derived{range.low * element_, range.high * element_}; };
  derived_.steps.push_back({said.op, said.from, said.to, facts.group_size, facts.recv_max * element_,
                            facts.recv_total * element_, bytes(facts.send_max), before, after, facts.peers_max});
}

void PlanJudge::CompareStepLevels(size_t s, const std::string& where) {
  const StepFacts& facts = *steps_[s].facts;
  const std::vector<plan_text::LevelText>& levels = *plan_.steps[s].levels;
  if (levels.size() != plan_.links.levels.size()) {
    verdict_.findings.push_back({where + ".levels", absl::StrCat(levels.size()),
                                 absl::StrCat(plan_.links.levels.size()), "levels that the topology has"});
    return;
  }
  __int128 total = 0;
  bool complete = true;
  for (size_t l = 0; l < levels.size(); ++l) {
    const plan_text::LevelText& said = levels[l];
    const std::string at = absl::StrCat(where, ".levels[", l, "]");
    complete &= said.recv_bytes_total.has_value();
    total += said.recv_bytes_total.value_or(0);
    if (said.recv_bytes_max && said.send_bytes_max) {
      const __int128 busiest = std::max(*said.recv_bytes_max, *said.send_bytes_max);
      Same(at + ".nic_bytes_max", said.nic_bytes_max, busiest * plan_.links.DevicesPerLink(static_cast<int>(l)));
    }
    if (!facts.levels.empty()) {
      LevelLoad most;
      int64_t sum = 0;
      for (const LevelLoad& load : facts.levels[l]) {
        most.recv = std::max(most.recv, load.recv);
        most.send = std::max(most.send, load.send);
        most.peers = std::max(most.peers, load.peers);
        sum += load.recv;
      }
      Same(at + ".recv_bytes_max", said.recv_bytes_max, most.recv * element_);
      Same(at + ".send_bytes_max", said.send_bytes_max, most.send * element_);
      Same(at + ".recv_bytes_total", said.recv_bytes_total, sum * element_);
      Same(at + ".peers_max", said.peers_max, most.peers);
      continue;
    }
    const int64_t crossing = said.recv_bytes_total.value_or(0);
    const int64_t share = CeilDiv(crossing, devices_->size());
    Between(at + ".recv_bytes_max", said.recv_bytes_max, share, std::min(crossing, facts.recv_max * element_));
    Between(at + ".send_bytes_max", said.send_bytes_max, share, std::min(crossing, facts.send_max.high * element_));
    Between(at + ".peers_max", said.peers_max, crossing > 0 ? 1 : 0, crossing > 0 ? facts.peers_max.high : 0);
  }
  if (complete && total != facts.recv_total * element_) {
    verdict_.findings.push_back(
        {where + ".levels", Text(total), Text(facts.recv_total * element_), "recv_bytes_total over all levels"});
  }
}

void PlanJudge::CompareTime(size_t s, const std::string& where) {
  const plan_text::StepText& said = plan_.steps[s];
  const StepFacts& facts = *steps_[s].facts;
  if (!said.time_ns) return;
  if (*steps_[s].op == Op::kSlice) return Same(where + ".time_ns", said.time_ns, 0);
  const int64_t rounds = said.rounds.value_or(1);
  if (!said.levels && plan_.links.size() > 1) {
    return Leave(where + ".time_ns", "the topology has several levels, and the step does not say what crosses which");
  }
  // Even where nothing crosses any level, every device takes part.
  const int64_t idle = plan_.links.Time(0, 0, 0, rounds);
  if (said.levels) {
    int64_t time = 0;
    for (size_t l = 0; l < said.levels->size() && l < plan_.links.levels.size(); ++l) {
      const plan_text::LevelText& level = (*said.levels)[l];
      if (!level.recv_bytes_total || !level.nic_bytes_max || !level.peers_max) return;
      if (*level.recv_bytes_total == 0) continue;
      time = std::max(time, plan_.links.Time(static_cast<int>(l), *level.peers_max, *level.nic_bytes_max, rounds));
    }
    return Same(where + ".time_ns", said.time_ns, time == 0 ? idle : time);
  }
  // What the plan says about senders and peers is judged separately; the time has to follow from it.
  const int64_t recv = facts.recv_max * element_;
  const auto time = [&](int64_t peers, int64_t sent) {
    return plan_.links.Time(0, said.peers_max.value_or(peers), std::max(recv, said.send_bytes_max.value_or(sent)),
                            rounds);
  };
  Between(where + ".time_ns", said.time_ns, time(facts.peers_max.low, facts.send_max.low * element_),
          time(facts.peers_max.high, facts.send_max.high * element_));
}

// The sum over steps; in chunks, over turns, in each of which every level does what all steps do there.
void PlanJudge::CompareTotalTime() {
  const int64_t count = plan_.chunks ? plan_.chunks->count : 1;
  const auto steps = static_cast<int64_t>(steps_.size());
  __int128 time = 0;
  if (count == 1) {
    for (const plan_text::StepText& step : plan_.steps) {
      if (!step.time_ns) return;
      time += *step.time_ns;
    }
    return Same("totals.time_ns", plan_.time_ns, time);
  }
  constexpr int64_t kMostTurns = int64_t{1} << 20;
  if (count > kMostTurns) return Leave("totals.time_ns", "there are too many chunks");
  for (int64_t turn = 0; turn < steps + count - 1; ++turn) {
    int64_t longest = 0;
    bool moves = false;
    for (int level = 0; level < plan_.links.size(); ++level) {
      __int128 bytes = 0, peers = 0;
      for (int64_t s = 0; s < steps; ++s) {
        if (s > turn || turn - s >= count) continue;
        const plan_text::StepText& step = plan_.steps[s];
        if (!step.levels || step.levels->size() <= static_cast<size_t>(level)) {
          return Leave("totals.time_ns", "a step does not say what crosses which level");
        }
        const plan_text::LevelText& said = (*step.levels)[level];
        if (!said.nic_bytes_max || !said.peers_max) return;
        moves = moves || steps_[s].op != Op::kSlice;
        if (*said.nic_bytes_max == 0) continue;
        bytes += (*said.nic_bytes_max + count - 1) / count;
        peers += *said.peers_max;
      }
      const int64_t others = plan_.links.Others(level);
      if (others > 0) peers = std::min<__int128>(peers, others);
      if (bytes > 0) longest = std::max(longest, plan_.links.Time(level, Cut(peers), Cut(bytes), 1));
    }
    time += longest == 0 && moves ? plan_.links.Time(0, 0, 0, 1) : longest;
  }
  Same("totals.time_ns", plan_.time_ns, time);
}

void PlanJudge::CompareTotals() {
  int64_t largest = std::max(source_->MaxElements(), target_->MaxElements()) * element_;
  for (size_t s = 0; s < steps_.size(); ++s) {
    largest = std::max({largest, steps_[s].from->MaxElements() * element_, steps_[s].to->MaxElements() * element_});
  }
  derived_.intermediate_bytes_max = largest;
  Same("totals.intermediate_bytes_max", plan_.intermediate_bytes_max, largest);
  const int64_t ends = std::max(source_->MaxElements(), target_->MaxElements()) * element_;
  if (plan_.strict && largest > ends) {
    verdict_.findings.push_back({"totals.intermediate_bytes_max", absl::StrCat(largest), absl::StrCat(ends),
                                 "the most that a layout in between may hold on a device"});
  }
  CompareTotalTime();
  if (!all_known()) {
    Leave("totals", "a step could not be derived");
    return;
  }
  for (int64_t device = 0; device < devices_->size(); ++device) {
    int64_t sum = 0;
    for (const Step& step : steps_) sum += step.facts->loads[device].recv;
    derived_.recv_bytes_max = std::max(derived_.recv_bytes_max, sum * element_);
    derived_.recv_bytes_total += sum * element_;
  }
  Same("totals.recv_bytes_max", plan_.recv_bytes_max, derived_.recv_bytes_max);
  Same("totals.recv_bytes_total", plan_.recv_bytes_total, derived_.recv_bytes_total);
  if (plan_.levels) CompareTotalLevels();
}

void PlanJudge::CompareTotalLevels() {
  const std::vector<plan_text::LevelText>& levels = *plan_.levels;
  if (levels.size() != plan_.links.levels.size()) {
    verdict_.findings.push_back({"totals.levels", absl::StrCat(levels.size()), absl::StrCat(plan_.links.levels.size()),
                                 "levels that the topology has"});
    return;
  }
  const bool exact = std::all_of(steps_.begin(), steps_.end(), [](const Step& s) { return !s.facts->levels.empty(); });
  for (size_t l = 0; l < levels.size(); ++l) {
    const std::string at = absl::StrCat("totals.levels[", l, "]");
    if (levels[l].recv_bytes_max && levels[l].send_bytes_max) {
      const __int128 busiest = std::max(*levels[l].recv_bytes_max, *levels[l].send_bytes_max);
      Same(at + ".nic_bytes_max", levels[l].nic_bytes_max, busiest * plan_.links.DevicesPerLink(static_cast<int>(l)));
    }
    struct Sums {
      __int128 sum = 0;
      __int128 most = 0;
      bool complete = true;
      void Add(const plan_text::Figure& figure) {
        complete &= figure.has_value();
        sum += figure.value_or(0);
        most = std::max<__int128>(most, figure.value_or(0));
      }
    } recv, send, total, peers;
    for (const plan_text::StepText& step : plan_.steps) {
      const plan_text::LevelText level =
          step.levels && l < step.levels->size() ? (*step.levels)[l] : plan_text::LevelText{};
      recv.Add(level.recv_bytes_max);
      send.Add(level.send_bytes_max);
      total.Add(level.recv_bytes_total);
      peers.Add(level.peers_max);
    }
    if (total.complete) Same(at + ".recv_bytes_total", levels[l].recv_bytes_total, total.sum);
    if (peers.complete) Same(at + ".peers_max", levels[l].peers_max, peers.most);
    if (exact) {
      LevelLoad most;
      for (size_t device = 0; device < static_cast<size_t>(devices_->size()); ++device) {
        LevelLoad sum;
        for (const Step& step : steps_) {
          sum.recv += step.facts->levels[l][device].recv;
          sum.send += step.facts->levels[l][device].send;
        }
        most.recv = std::max(most.recv, sum.recv);
        most.send = std::max(most.send, sum.send);
      }
      Same(at + ".recv_bytes_max", levels[l].recv_bytes_max, most.recv * element_);
      Same(at + ".send_bytes_max", levels[l].send_bytes_max, most.send * element_);
    } else {
      if (recv.complete) Between(at + ".recv_bytes_max", levels[l].recv_bytes_max, recv.most, recv.sum);
      if (send.complete) Between(at + ".send_bytes_max", levels[l].send_bytes_max, send.most, send.sum);
    }
  }
}

// Source, what the step reads when it is not the source, what it writes, and what it packs.
Derived PlanJudge::PeakInTurn() const {
  int64_t low = 0;
  int64_t high = 0;
  for (int64_t device = 0; device < devices_->size(); ++device) {
    if (steps_.empty()) low = high = std::max(low, source_->ElementsOf(device));
    for (size_t s = 0; s < steps_.size(); ++s) {
      const Step& step = steps_[s];
      const Derived& staging = step.facts->loads[device].staging;
      const int64_t base =
          source_->ElementsOf(device) + (s == 0 ? 0 : step.from->ElementsOf(device)) + step.to->ElementsOf(device);
      low = std::max(low, base + staging.low);
      high = std::max(high, base + staging.high);
    }
  }
  return {low * element_, high * element_};
}

// Source, target, two chunks of everything between, and a chunk of all that is received and sent.
Derived PlanJudge::PeakInChunks() const {
  const int64_t count = plan_.chunks->count;
  Derived peak;
  for (int64_t device = 0; device < devices_->size(); ++device) {
    int64_t between = 0, recv = 0, sent_low = 0, sent_high = 0;
    for (size_t s = 0; s < steps_.size(); ++s) {
      const auto& load = steps_[s].facts->loads[device];
      recv += load.recv;
      sent_low += load.send.low;
      sent_high += load.send.high;
      if (s + 1 < steps_.size()) between += steps_[s].to->ElementsOf(device);
    }
    const int64_t rest =
        source_->ElementsOf(device) + target_->ElementsOf(device) + CeilDiv(2 * between, count) + CeilDiv(recv, count);
    peak.low = std::max(peak.low, (rest + CeilDiv(sent_low, count)) * element_);
    peak.high = std::max(peak.high, (rest + CeilDiv(sent_high, count)) * element_);
  }
  return peak;
}

void PlanJudge::ComparePeak() {
  if (!all_known()) return;
  derived_.peak_bytes = plan_.chunks ? PeakInChunks() : PeakInTurn();
  Between("totals.peak_bytes", plan_.peak_bytes, derived_.peak_bytes.low, derived_.peak_bytes.high);
  if (!plan_.memory_limit_bytes) return;
  const int64_t least = std::max(plan_.peak_bytes.value_or(0), derived_.peak_bytes.low);
  if (least > *plan_.memory_limit_bytes) {
    verdict_.findings.push_back({"totals.peak_bytes", absl::StrCat(least), absl::StrCat(*plan_.memory_limit_bytes),
                                 "options.memory_limit_bytes"});
  }
}

void PlanJudge::CompareBounds() {
  if (!bounds_) {
    Find("target", "it leaves partial what the source does not; values cannot become partial");
    return;
  }
  derived_.bound_recv_bytes_max = bounds_->recv_max;
  derived_.bound_recv_bytes_total = bounds_->recv_total;
  derived_.bound_intermediate_bytes_max = bounds_->local_max;
  Same("bounds.recv_bytes_max", plan_.bound_recv_bytes_max, bounds_->recv_max);
  Same("bounds.recv_bytes_total", plan_.bound_recv_bytes_total, bounds_->recv_total);
  Same("bounds.intermediate_bytes_max", plan_.bound_intermediate_bytes_max, bounds_->local_max);
  if (plan_.bound_levels) CompareLevelBounds();
}

void PlanJudge::CompareLevelBounds() {
  const std::vector<plan_text::LevelBoundText>& levels = *plan_.bound_levels;
  if (levels.size() != plan_.links.levels.size()) {
    verdict_.findings.push_back({"bounds.levels", absl::StrCat(levels.size()), absl::StrCat(plan_.links.levels.size()),
                                 "levels that the topology has"});
    return;
  }
  // Contributions may be added up before they leave a domain, wherever they are kept apart afterwards.
  if (source_->layout().partial()) return Leave("bounds.levels", "they are derived where nothing is partial");
  for (size_t l = 0; l < levels.size(); ++l) {
    const std::string at = absl::StrCat("bounds.levels[", l, "]");
    const auto cut = check::Cut(static_cast<int>(l), *source_, *target_, contents_, *devices_, plan_.links, element_);
    if (!cut) {
      Leave(at, "the domains hold too many different boxes");
      continue;
    }
    Same(at + ".island_recv_bytes_max", levels[l].island_recv_bytes_max, cut->domain_max);
    Same(at + ".recv_bytes_total", levels[l].recv_bytes_total, cut->total);
    Between(at + ".nic_recv_bytes_max", levels[l].nic_recv_bytes_max, cut->link_max.low, cut->link_max.high);
    Between(at + ".nic_bytes_max", levels[l].nic_bytes_max, cut->busiest_link.low, cut->busiest_link.high);
  }
}

// A level's bound is met where its busiest link carries no more than it has to.
bool PlanJudge::MeetsLevelBound() const {
  if (!plan_.bound_levels || !plan_.levels || plan_.bound_levels->size() != plan_.levels->size()) return false;
  for (size_t l = 1; l < plan_.levels->size(); ++l) {
    const plan_text::LevelBoundText& of_level = (*plan_.bound_levels)[l];
    const plan_text::Figure& bound = of_level.nic_bytes_max ? of_level.nic_bytes_max : of_level.nic_recv_bytes_max;
    if (bound && (*plan_.levels)[l].nic_bytes_max == bound) return true;
  }
  return false;
}

void PlanJudge::CheckCertificate() {
  if (!plan_.certificate) return;
  const std::string& kind = *plan_.certificate;
  if (kind != "lower_bound" && kind != "exhaustive" && kind != "best_found") {
    verdict_.findings.push_back({"certificate.kind", kind, "", "it should be lower_bound, exhaustive or best_found"});
  }
  if (!all_known() || !bounds_) return;
  const bool meets = derived_.recv_bytes_max == bounds_->recv_max;
  if (kind == "lower_bound" && !meets && !MeetsLevelBound()) {
    verdict_.findings.push_back({"certificate.kind", kind, "",
                                 absl::StrCat("the worst device receives ", derived_.recv_bytes_max,
                                              " bytes, the bound is ", bounds_->recv_max)});
  }
  if (kind != "exhaustive") return;
  int64_t sum = 0;
  for (const Step& step : steps_) sum += step.facts->recv_max * element_;
  if (sum != derived_.recv_bytes_max) {
    Find("certificate.kind",
         "exhaustive is said of the sum of the steps' maxima, which is more than the worst device receives");
  } else {
    Leave("certificate.kind", "that nothing cheaper exists is not searched again");
  }
}

}  // namespace reshard::check
