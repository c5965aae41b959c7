#include "planner/candidates/staged.h"

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "planner/candidates/as_if_even.h"
#include "planner/candidates/three_phase.h"
#include "planner/digits/digit_model.h"

namespace reshard::candidates {
namespace {

constexpr int kMostStages = 6;      // of one exchange
constexpr size_t kBases = 3;        // chains whose steps are staged
constexpr size_t kProposed = 2;     // of them, the fastest
constexpr int64_t kManyPeers = 12;  // this many latencies more than needed justify more steps and bytes
// On fewer devices the latency of a message, which is the least certain figure of a topology, decides too much.
constexpr int64_t kManyDevices = 512;

// The smallest number whose `n`-th power is at least `of`.
int64_t RootOf(int64_t of, int n) {
  for (int64_t root = 2;; ++root) {
    int64_t power = 1;
    for (int i = 0; i < n && power < of; ++i) power *= root;
    if (power >= of) return root;
  }
}

// Parts of a digit, major first, none larger than `group` unless it is prime.
std::vector<AxisRef> PartsOf(const AxisRef& digit, int64_t group) {
  std::vector<AxisRef> out;
  for (int64_t size = digit.size, pre = digit.pre; size > 1;) {
    int64_t part = std::min(size, group);
    while (part > 1 && size % part != 0) --part;
    if (part == 1) {
      part = 2;
      while (size % part != 0) ++part;
    }
    out.push_back({digit.axis, pre, part});
    size /= part;
    pre *= part;
  }
  return out;
}

// The digits that move, in sets that go together: those that take each other's places, or one that is gathered and the
// one that takes its place. Any other digit is a set of its own.
class MovingSets {
 public:
  explicit MovingSets(const digits::DigitModel& model)
      : model_(model), set_(static_cast<size_t>(model.num_digits()), -1) {
    // Digits that go to a place first, so that one that is gathered goes with the digit that takes its place.
    for (const bool gathered : {false, true}) {
      for (int e = 0; e < model.num_digits(); ++e) {
        if (gathered == (At(model.target(), e) < 0)) Visit(e);
      }
    }
  }
  const std::vector<std::vector<int>>& sets() const { return sets_; }

  // Devices that meet across `level` when a set moves.
  int64_t Meeting(const std::vector<int>& set, int level) const {
    const bool circle = set.size() > 1 && At(model_.target(), set.back()) >= 0;
    if (circle || At(model_.source(), set[0]) < 0) return 1;
    return model_.refined()[static_cast<size_t>(set[0])].level == level ? model_.digit_size(set[0]) : 1;
  }

  // Whether no other digit is where the set goes.
  bool Free(const std::vector<int>& set, const digits::State& state) const {
    for (int f = 0; f < model_.num_digits(); ++f) {
      const bool outside = std::find(set.begin(), set.end(), f) == set.end();
      const bool taken = outside && At(state, f) >= 0 && std::any_of(set.begin(), set.end(), [&](int e) {
                           return At(model_.target(), e) == At(state, f);
                         });
      if (taken) return false;
    }
    return true;
  }

 private:
  static int At(const digits::State& state, int digit) { return state.at[static_cast<size_t>(digit)]; }
  bool Moves(int e) const { return At(model_.source(), e) != At(model_.target(), e); }
  // The digit whose place in the source this one has in the target, or -1.
  int After(int e) const {
    const int place = At(model_.target(), e);
    for (int f = 0; place >= 0 && f < model_.num_digits(); ++f) {
      if (f != e && At(model_.source(), f) == place) return f;
    }
    return -1;
  }
  // Visits `e` and every digit that it has to wait for. A digit waits for at most one other, so there is at most one
  // cycle on its way.
  void Visit(int e) {
    if (!Moves(e) || set_[static_cast<size_t>(e)] >= 0) return;
    std::vector<int> way;
    int at = e;
    while (at >= 0 && set_[static_cast<size_t>(at)] < 0 && std::find(way.begin(), way.end(), at) == way.end()) {
      way.push_back(at);
      at = After(at);
    }
    auto circle = at < 0 ? way.end() : std::find(way.begin(), way.end(), at);
    const bool replaces = way.size() > 1 && At(model_.target(), way.back()) < 0;
    if (replaces) circle = way.end() - 2;
    if (circle != way.end()) Add({circle, way.end()});
    for (auto one = circle; one != way.begin();) Add({*--one});
  }
  void Add(std::vector<int> set) {
    for (int e : set) set_[static_cast<size_t>(e)] = static_cast<int>(sets_.size());
    sets_.push_back(std::move(set));
  }

  const digits::DigitModel& model_;
  std::vector<int> set_;  // of each digit, or -1
  std::vector<std::vector<int>> sets_;
};

// The digits of an exchange, with those of `level` that move cut into parts of at most `group`.
std::optional<digits::DigitModel> CutModel(const Layout& from, const Layout& to, const digits::MeshLevels* levels,
                                           int level, int64_t group) {
  const auto whole = digits::DigitModel::WithCuts(from, to, levels, {});
  if (!whole) return std::nullopt;
  std::vector<AxisRef> cuts;
  for (int e = 0; e < whole->num_digits(); ++e) {
    const auto i = static_cast<size_t>(e);
    const bool moves = whole->source().at[i] != whole->target().at[i];
    if (!moves || whole->refined()[i].level != level || whole->digit_size(e) <= group) continue;
    for (const AxisRef& part : PartsOf(whole->refined()[i].ref, group)) cuts.push_back(part);
  }
  return digits::DigitModel::WithCuts(from, to, levels, cuts);
}

}  // namespace

namespace {

// The stages of a pair that digits describe. Empty if an intermediate would be too large.
std::vector<Stage> StagesOf(const digits::DigitModel& model, const Layout& to, int level, int64_t group) {
  const int64_t most = std::max(model.LocalElements(model.source()), model.LocalElements(model.target()));
  const MovingSets moving(model);
  std::vector<Stage> out;
  digits::State state = model.source();
  int64_t devices = 1;
  const auto end = [&](const Layout& at) {
    out.push_back({{cost::ChainStep::Kind::kMove, at}, devices});
    devices = 1;
  };
  std::vector<std::vector<int>> left = moving.sets();
  while (!left.empty()) {
    // Among the sets whose places are free, the one that leaves the smallest fragment.
    const auto rank = [&](const std::vector<int>& set) {
      digits::State next = state;
      for (int e : set) next.at[static_cast<size_t>(e)] = model.target().at[static_cast<size_t>(e)];
      return std::pair(!moving.Free(set, state), model.LocalElements(next));
    };
    const auto set =
        std::min_element(left.begin(), left.end(), [&](const auto& a, const auto& b) { return rank(a) < rank(b); });
    const int64_t more = moving.Meeting(*set, level);
    if (devices > 1 && devices * more > group) end(model.ToLayout(state));
    devices *= more;
    for (int e : *set) state.at[static_cast<size_t>(e)] = model.target().at[static_cast<size_t>(e)];
    if (model.LocalElements(state) > most) return {};
    left.erase(set);
  }
  end(to);
  return out;
}

// The stages of a pair whose sizes do not divide. Empty where there are none that fit.
std::vector<Stage> UnevenStages(const Layout& from, const Layout& to, const digits::MeshLevels* levels, int level,
                                int64_t group) {
  const auto even = AsIfEven::Of(from, to);
  if (!even) return {};
  const auto model = CutModel(even->from(), even->to(), levels, level, group);
  if (!model) return {};
  const int64_t most = std::max(from.MaxLocalElements(), to.MaxLocalElements());
  std::vector<Stage> out = StagesOf(*model, to, level, group);
  for (size_t i = 0; i + 1 < out.size(); ++i) {
    auto real = even->AtRealSizes(out[i].step.to);
    if (!real || real->MaxLocalElements() > most) return {};
    out[i].step.to = *std::move(real);
  }
  return out;
}

}  // namespace

std::vector<Stage> Stages(const Layout& from, const Layout& to, const digits::MeshLevels* levels, int level,
                          int64_t group) {
  const auto model = CutModel(from, to, levels, level, group);
  std::vector<Stage> out = model ? StagesOf(*model, to, level, group) : UnevenStages(from, to, levels, level, group);
  if (out.empty()) out = {{{cost::ChainStep::Kind::kMove, to}, from.mesh().size()}};
  return out;
}

namespace {

// The chain with its steps within domains cut into two stages each where that is faster by the formula of a step.
Chain StagedWithin(const Layout& source, const Chain& chain, const digits::MeshLevels& levels, const Topology& topology,
                   int64_t element) {
  Chain out;
  const Layout* at = &source;
  for (const cost::ChainStep& step : chain) {
    std::vector<Stage> parts;
    if (step.kind == cost::ChainStep::Kind::kMove) {
      const int64_t bytes = std::max(at->MaxLocalElements(), step.to.MaxLocalElements()) * element;
      const auto time = [&](const std::vector<Stage>& stages) {
        int64_t sum = 0;
        for (const Stage& one : stages) sum += one.devices > 1 ? topology.StepTime(0, one.devices - 1, bytes) : 0;
        return sum;
      };
      const int64_t domain = topology.levels[0].devices;
      const std::vector<Stage> whole = Stages(*at, step.to, &levels, 0, domain);
      parts = Stages(*at, step.to, &levels, 0, RootOf(domain, 2));
      if (whole.size() > 1 || time(parts) >= time(whole)) parts.clear();
    }
    at = &step.to;
    if (parts.empty()) {
      out.push_back(step);
      continue;
    }
    for (Stage& part : parts) out.push_back(std::move(part.step));
  }
  return out;
}

}  // namespace

std::optional<ManyPeers> FindManyPeers(const Task& task, const SoFar& so_far) {
  const PlanOptions& options = task.options;
  const Topology& topology = options.topology;
  if (options.objective != Objective::kTime || options.boxes_only || task.reduces || !so_far.cheapest ||
      !(task.source.mesh() == task.target.mesh()) || task.source.mesh().size() < kManyDevices) {
    return std::nullopt;
  }
  const absl::StatusOr<Bounds> bounds = task.bounds();
  if (!bounds.ok()) return std::nullopt;
  ManyPeers out;
  out.level = topology.num_levels() - 1;
  out.time_ns = std::min(so_far.cheapest->time_ns, so_far.sampled_time_ns.value_or(so_far.cheapest->time_ns));
  out.across_bytes = bounds->levels.empty() ? bounds->recv_bytes_max : bounds->levels.back().nic_bytes_max;
  const int64_t latency = topology.levels.back().latency_ns;
  const int64_t at_least = topology.StepTime(out.level, 1, out.across_bytes);
  if (out.across_bytes == 0 || out.time_ns < 2 * at_least || out.time_ns < at_least + kManyPeers * latency) {
    return std::nullopt;
  }
  out.domains = task.source.mesh().size();
  if (out.level == 0) return out;
  out.levels = digits::LevelsOf(task.source.mesh(), topology);
  if (!out.levels) return std::nullopt;
  out.domains = 1;
  for (int64_t size : digits::OuterSizes(*out.levels, out.level - 1)) out.domains *= size;
  return out;
}

namespace {

// The layout with the parts of its axes that lead through `outer` domains cut part inside part, none larger than
// `group` unless it is prime. The layout itself where that would be larger than `most` elements.
Layout Nested(const Layout& layout, const std::vector<int64_t>& outer, int64_t group, int64_t most) {
  std::vector<DimLayout> dims = layout.dims();
  for (DimLayout& dim : dims) {
    std::vector<Factor> factors;
    for (const Factor& factor : dim.factors) {
      const bool is_axis = factor.kind == Factor::Kind::kAxis;
      const auto parts =
          is_axis ? digits::Apart(factor.axis, outer[static_cast<size_t>(factor.axis.axis)]) : std::nullopt;
      if (!parts || !parts->outside) {
        factors.push_back(factor);
        continue;
      }
      const AxisRef& outside = *parts->outside;
      for (const AxisRef& part : PartsOf(outside, group)) factors.push_back(Factor::Along(part));
      if (parts->inside > 1) {
        factors.push_back(Factor::Along({outside.axis, outside.pre * outside.size, parts->inside}));
      }
    }
    dim.factors = std::move(factors);
  }
  auto out = Layout::Create(layout.mesh(), std::move(dims));
  return out.ok() && out->MaxLocalElements() <= most ? *std::move(out) : layout;
}

}  // namespace

std::vector<Chain> InStages(const Task& task, const ManyPeers& many, const std::vector<Chain>& bases, size_t most,
                            AxisCuts cuts) {
  const Topology& topology = task.options.topology;
  const digits::MeshLevels* levels = many.levels ? &*many.levels : nullptr;
  std::vector<int64_t> outer;
  if (levels != nullptr && cuts == AxisCuts::kNested) outer = digits::OuterSizes(*levels, many.level - 1);
  const int64_t largest = std::max(task.source.MaxLocalElements(), task.target.MaxLocalElements());
  std::vector<std::pair<int64_t, Chain>> found;  // with its estimate
  for (const Chain& base : bases) {
    // The number of stages with the least time by the formula of a step, as if all moved the same bytes.
    Chain best;
    int64_t least = many.time_ns;
    for (int stages = 2; stages <= kMostStages; ++stages) {
      Chain chain;
      int64_t estimate = 0;
      const int64_t group = RootOf(many.domains, stages);
      const auto between = [&](const Layout& layout) {
        return outer.empty() || layout == task.target ? layout : Nested(layout, outer, group, largest);
      };
      Layout at = task.source;
      for (const cost::ChainStep& step : base) {
        const cost::ChainStep whole{step.kind, between(step.to)};
        std::vector<Stage> parts{{whole, many.domains}};
        if (step.kind == cost::ChainStep::Kind::kMove) parts = Stages(at, whole.to, levels, many.level, group);
        for (Stage& part : parts) {
          if (part.devices > 1) estimate += topology.StepTime(many.level, part.devices - 1, many.across_bytes);
          chain.push_back({part.step.kind, between(part.step.to)});
        }
        at = whole.to;
      }
      if (chain.size() == base.size() || estimate >= least) continue;
      least = estimate;
      best = std::move(chain);
    }
    if (best.empty()) continue;
    if (levels != nullptr) best = StagedWithin(task.source, best, *levels, topology, SizeOf(task.dtype));
    found.emplace_back(least, std::move(best));
  }
  std::stable_sort(found.begin(), found.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  if (found.size() > most) found.resize(most);
  std::vector<Chain> out;
  for (auto& [estimate, chain] : found) out.push_back(std::move(chain));
  return out;
}

Proposal Staged(const Task& task, const SoFar& so_far) {
  const auto many = FindManyPeers(task, so_far);
  if (!many) return {};
  std::vector<Chain> bases = ThreePhaseChains(task.source, task.target, task.options.topology);
  bases.resize(std::min(bases.size(), kBases));
  bases.push_back({{cost::ChainStep::Kind::kMove, task.target}});
  Proposal out{.chains = InStages(task, *many, bases, kProposed, AxisCuts::kAtOnce)};
  // Stages of uneven parts may move much more; saving a few latencies, which are uncertain, is not worth that.
  if (task.model == nullptr) out.faster_than_ns = many->time_ns - many->time_ns / 8;
  return out;
}

}  // namespace reshard::candidates
