#include "planner/candidates/three_phase.h"

#include <algorithm>
#include <functional>

#include "planner/digits/digit_model.h"
#include "planner/digits/domains.h"

namespace reshard::candidates {
namespace {

// Assignments of inner digits that are looked at, and chains that are kept.
constexpr int64_t kMaxAssignments = 20'000;
constexpr size_t kMaxChains = 4;

struct Stage {
  cost::ChainStep::Kind kind = cost::ChainStep::Kind::kMove;
  digits::State to;
};
using Stages = std::vector<Stage>;

// State: the model of the pair; everything else is a function of two states and a level.
class Phases {
 public:
  Phases(const digits::DigitModel& model, const Topology& topology) : model_(model), topology_(topology) {
    cap_ = std::max(model.LocalElements(model.source()), model.LocalElements(model.target()));
  }

  std::vector<Chain> Chains();

 private:
  struct Assignment {
    int64_t cost = 0;
    int64_t moved = 0;  // digits that are where neither end has them
    digits::State x;    // places of inner digits; the others as in the source
    bool operator<(const Assignment& other) const {
      return cost != other.cost ? cost < other.cost : moved != other.moved ? moved < other.moved : x.at < other.x.at;
    }
  };

  int LevelOf(int e) const { return model_.refined()[e].level; }
  static int8_t& At(digits::State& state, int e) { return state.at[e]; }
  static int8_t At(const digits::State& state, int e) { return state.at[e]; }
  // Elements that the worst device lacks when digits move from a to b; what is partial counts as replicated.
  int64_t Lacked(const digits::State& a, const digits::State& b) const;
  bool Crosses(const digits::State& a, const digits::State& b, int level) const;
  // The best assignments of the digits inside level's domains for a way from a to b.
  std::vector<Assignment> Assignments(const digits::State& a, const digits::State& b, int level) const;
  // How a reduction between domains is done, if there is one.
  enum class Outside {
    kScatter,  // reduce-scattered, then gathered where the target replicates it
    kSpread,   // the same, and digits outside the domains that replicate the tensor on both ends share it
    kAtOnce,   // all-reduced where the target replicates it
  };
  // The stages of a -> b, none of which crosses beyond `level`.
  Stages Way(const digits::State& a, const digits::State& b, int level) const;
  Stages Through(const digits::State& a, const digits::State& b, int level, const digits::State& x,
                 Outside outside) const;
  // The steps of Through that reduce: from `at` with replicated digits sliced onto m1, and what is partial scattered.
  digits::State ReduceInside(digits::State at, const digits::State& m1, int level, Stages& out) const;
  digits::State ReduceOutside(digits::State at, const digits::State& m2, const digits::State& b, bool at_once,
                              Stages& out) const;
  std::vector<bool> Occupied(const digits::State& state) const;
  void Append(Stages& stages, cost::ChainStep::Kind kind, const digits::State& from, const digits::State& to,
              int level) const;

  const digits::DigitModel& model_;
  const Topology& topology_;
  int64_t cap_ = 0;
};

int64_t Phases::Lacked(const digits::State& a, const digits::State& b) const {
  int64_t overlap = model_.elements();
  std::vector<int> there(model_.places().size(), -1);
  for (int e = 0; e < model_.num_digits(); ++e) {
    if (At(a, e) < 0) continue;
    there[At(a, e)] = e;
    overlap /= model_.digit_size(e);
  }
  for (int e = 0; e < model_.num_digits(); ++e) {
    if (At(b, e) < 0) continue;
    const int other = there[At(b, e)];
    if (other >= 0 && other != e) return model_.LocalElements(b);
    if (other < 0) overlap /= model_.digit_size(e);
  }
  return model_.LocalElements(b) - overlap;
}

// Whether a device may need something from beyond its domain of the level inside `level`.
bool Phases::Crosses(const digits::State& a, const digits::State& b, int level) const {
  for (int e = 0; e < model_.num_digits(); ++e) {
    if (LevelOf(e) >= level && At(a, e) != At(b, e)) return true;
  }
  return false;
}

std::vector<Phases::Assignment> Phases::Assignments(const digits::State& a, const digits::State& b, int level) const {
  std::vector<bool> taken(model_.places().size(), false);
  std::vector<int> inner;
  for (int e = 0; e < model_.num_digits(); ++e) {
    if (LevelOf(e) < level) {
      const bool kept_partial = At(a, e) == digits::kPartialDigit && At(b, e) == digits::kPartialDigit;
      if (!kept_partial) inner.push_back(e);
      continue;
    }
    for (const digits::State* end : {&a, &b}) {
      if (At(*end, e) >= 0) taken[At(*end, e)] = true;
    }
  }
  // Partial digits are scattered while the others still are where `a` has them.
  std::vector<bool> occupied(taken.size(), false);
  for (int e : inner) {
    if (At(a, e) >= 0) occupied[At(a, e)] = true;
  }
  digits::State m1 = a, m2 = b;
  std::vector<Assignment> out;
  int64_t seen = 0;
  const std::function<void(size_t, int64_t)> choose = [&](size_t i, int64_t moved) {
    if (seen > kMaxAssignments) return;
    if (i == inner.size()) {
      ++seen;
      if (model_.LocalElements(m1) > cap_ || model_.LocalElements(m2) > cap_) return;
      // What is left replicated costs on the slow links, so that counts first.
      const int64_t across = Lacked(m1, m2);
      out.push_back({across * 64 + Lacked(a, m1) + Lacked(m2, b), moved, m1});
      return;
    }
    const int e = inner[i];
    const bool scattered = At(a, e) == digits::kPartialDigit;
    bool placed = false;
    for (size_t p = 0; p < taken.size(); ++p) {
      if (taken[p] || (scattered && occupied[p]) || !model_.Fits(e, static_cast<int>(p))) continue;
      taken[p] = true;
      placed = true;
      At(m1, e) = At(m2, e) = static_cast<int8_t>(p);
      const bool new_place = At(a, e) != static_cast<int8_t>(p) && At(b, e) != static_cast<int8_t>(p);
      choose(i + 1, moved + (new_place ? 1 : 0));
      taken[p] = false;
    }
    if (!placed && !scattered) {
      At(m1, e) = At(m2, e) = digits::kReplicated;
      choose(i + 1, moved);
    }
    At(m1, e) = At(a, e);
    At(m2, e) = At(b, e);
  };
  choose(0, 0);
  std::sort(out.begin(), out.end());
  if (out.size() > kMaxChains) out.resize(kMaxChains);
  return out;
}

void Phases::Append(Stages& stages, cost::ChainStep::Kind kind, const digits::State& from, const digits::State& to,
                    int level) const {
  if (from == to) return;
  while (level > 0 && !Crosses(from, to, level)) --level;
  if (kind != cost::ChainStep::Kind::kMove || level == 0) {
    stages.push_back({kind, to});
    return;
  }
  const Stages way = Way(from, to, level);
  stages.insert(stages.end(), way.begin(), way.end());
}

// Goes by the best assignment, or in one stage where there is none.
Stages Phases::Way(const digits::State& a, const digits::State& b, int level) const {
  const auto assignments = Assignments(a, b, level);
  if (level == 0 || assignments.empty()) return {{cost::ChainStep::Kind::kMove, b}};
  return Through(a, b, level, assignments[0].x, Outside::kScatter);
}

std::vector<bool> Phases::Occupied(const digits::State& state) const {
  std::vector<bool> out(model_.places().size(), false);
  for (int e = 0; e < model_.num_digits(); ++e) {
    if (At(state, e) >= 0) out[At(state, e)] = true;
  }
  return out;
}

digits::State Phases::ReduceInside(digits::State at, const digits::State& m1, int level, Stages& out) const {
  // Replicated digits are sliced first, as far as their places are free: what is reduced then is smaller.
  const std::vector<bool> occupied = Occupied(at);
  digits::State next = at;
  for (int e = 0; e < model_.num_digits(); ++e) {
    const bool free = At(at, e) == digits::kReplicated && At(m1, e) >= 0 && !occupied[At(m1, e)];
    if (free) At(next, e) = At(m1, e);
  }
  Append(out, cost::ChainStep::Kind::kMove, at, next, 0);
  at = next;
  for (int inner = 0; inner < level; ++inner) {
    for (int e = 0; e < model_.num_digits(); ++e) {
      if (LevelOf(e) == inner && At(at, e) == digits::kPartialDigit && At(m1, e) >= 0) At(next, e) = At(m1, e);
    }
    Append(out, cost::ChainStep::Kind::kReduceScatter, at, next, 0);
    at = next;
  }
  return at;
}

digits::State Phases::ReduceOutside(digits::State at, const digits::State& m2, const digits::State& b, bool at_once,
                                    Stages& out) const {
  // To its place in the target where that is free, else to one that neither end uses.
  std::vector<bool> occupied = Occupied(at);
  digits::State next = at;
  for (int e = 0; e < model_.num_digits(); ++e) {
    if (At(at, e) != digits::kPartialDigit || At(b, e) == digits::kPartialDigit) continue;
    int8_t place = At(m2, e) >= 0 && !occupied[At(m2, e)] ? At(m2, e) : digits::kReplicated;
    for (size_t p = 0; p < occupied.size() && place < 0 && !at_once; ++p) {
      const bool free = !occupied[p] && model_.places()[p].tail && model_.Fits(e, static_cast<int>(p));
      if (free) place = static_cast<int8_t>(p);
    }
    if (place < 0) continue;
    At(next, e) = place;
    occupied[place] = true;
  }
  Append(out, cost::ChainStep::Kind::kReduceScatter, at, next, 0);
  at = next;
  for (int e = 0; e < model_.num_digits(); ++e) {
    if (At(at, e) == digits::kPartialDigit && At(b, e) != digits::kPartialDigit) At(next, e) = digits::kReplicated;
  }
  Append(out, cost::ChainStep::Kind::kAllReduce, at, next, 0);
  return next;
}

Stages Phases::Through(const digits::State& a, const digits::State& b, int level, const digits::State& x,
                       Outside outside) const {
  Stages out;
  bool reduces_inside = false, reduces_outside = false;
  digits::State m1 = x, m2 = b;
  for (int e = 0; e < model_.num_digits(); ++e) {
    const bool reduced = At(a, e) == digits::kPartialDigit && At(b, e) != digits::kPartialDigit;
    (LevelOf(e) < level ? reduces_inside : reduces_outside) |= reduced;
    if (LevelOf(e) < level) At(m2, e) = At(x, e);
  }
  std::vector<bool> used = Occupied(m1);
  const std::vector<bool> used_after = Occupied(m2);
  for (int e = 0; e < model_.num_digits() && reduces_outside && outside == Outside::kSpread; ++e) {
    if (LevelOf(e) < level || At(a, e) != digits::kReplicated || At(b, e) != digits::kReplicated) continue;
    for (size_t p = 0; p < used.size(); ++p) {
      const bool free = !used[p] && !used_after[p] && model_.places()[p].tail && model_.Fits(e, static_cast<int>(p));
      if (!free) continue;
      At(m1, e) = static_cast<int8_t>(p);
      used[p] = true;
      break;
    }
  }
  digits::State at = a;
  if (reduces_inside) at = ReduceInside(at, m1, level, out);
  Append(out, cost::ChainStep::Kind::kMove, at, m1, level - 1);
  at = m1;
  if (reduces_outside) at = ReduceOutside(at, m2, b, outside == Outside::kAtOnce, out);
  if (!(at == m2)) out.push_back({cost::ChainStep::Kind::kMove, m2});
  Append(out, cost::ChainStep::Kind::kMove, m2, b, level - 1);
  return out;
}

std::vector<Chain> Phases::Chains() {
  std::vector<Chain> out;
  int level = topology_.num_levels() - 1;
  while (level > 0 && !Crosses(model_.source(), model_.target(), level)) --level;
  if (level == 0) return out;
  std::vector<Outside> ways{Outside::kScatter};
  for (int e = 0; e < model_.num_digits(); ++e) {
    const bool reduced =
        At(model_.source(), e) == digits::kPartialDigit && At(model_.target(), e) != digits::kPartialDigit;
    if (reduced) ways = {Outside::kScatter, Outside::kSpread, Outside::kAtOnce};
  }
  std::vector<Stages> found;
  for (const Assignment& one : Assignments(model_.source(), model_.target(), level)) {
    for (const Outside how : ways) found.push_back(Through(model_.source(), model_.target(), level, one.x, how));
  }
  for (const Stages& stages : found) {
    std::vector<digits::State> states{model_.source(), model_.target()};
    bool fits = true;
    for (const Stage& stage : stages) {
      states.push_back(stage.to);
      fits &= model_.LocalElements(stage.to) <= cap_;
    }
    if (!fits || stages.size() < 2 || !(stages.back().to == model_.target())) continue;
    const digits::DigitModel compacted = model_.Compacted(states);
    Chain steps;
    for (const Stage& stage : stages) steps.push_back({stage.kind, compacted.ToLayout(stage.to)});
    const auto same = [&](const Chain& other) {
      return std::equal(
          steps.begin(), steps.end(), other.begin(), other.end(),
          [](const cost::ChainStep& x, const cost::ChainStep& y) { return x.kind == y.kind && x.to == y.to; });
    };
    if (std::none_of(out.begin(), out.end(), same)) out.push_back(std::move(steps));
  }
  return out;
}

}  // namespace

std::vector<Chain> ThreePhaseChains(const Layout& source, const Layout& target, const Topology& topology) {
  if (topology.num_levels() == 1 || !(source.mesh() == target.mesh())) return {};
  const auto levels = digits::LevelsOf(source.mesh(), topology);
  if (!levels) return {};
  const auto model = digits::DigitModel::Create(source, target, false, &*levels, true);
  if (!model) return {};
  return Phases(*model, topology).Chains();
}

Proposal ThreePhase(const Task& task, const SoFar&) {
  if (task.options.boxes_only) return {};
  return {.chains = ThreePhaseChains(task.source, task.target, task.options.topology)};
}

}  // namespace reshard::candidates
