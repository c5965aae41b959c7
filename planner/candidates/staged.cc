#include "planner/candidates/staged.h"

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "planner/candidates/three_phase.h"
#include "planner/digits/digit_model.h"

namespace reshard::candidates {
namespace {

constexpr int kMostStages = 6;       // of one exchange
constexpr size_t kBases = 3;         // chains whose steps are staged
constexpr int64_t kManyPeers = 32;   // so many latencies more than needed are worth another step

// Parts of a digit, none larger than `group` unless it is prime.
std::vector<int64_t> PartsOf(int64_t size, int64_t group) {
  std::vector<int64_t> out;
  while (size > 1) {
    int64_t part = std::min(size, group);
    while (part > 1 && size % part != 0) --part;
    if (part == 1) {
      part = 2;
      while (size % part != 0) ++part;
    }
    out.push_back(part);
    size /= part;
  }
  return out;
}

// The digits that move, in an order in which each finds its place free: sets of those that take each other's places.
class Order {
 public:
  explicit Order(const digits::DigitModel& model) : model_(model), set_(static_cast<size_t>(model.num_digits()), -1) {
    for (int e = 0; e < model.num_digits(); ++e) Visit(e);
  }
  const std::vector<std::vector<int>>& sets() const { return sets_; }

  // Devices that one exchanges data with when a set moves.
  int64_t Peers(const std::vector<int>& set) const {
    if (set.size() > 1) return 1;
    return At(model_.source(), set[0]) >= 0 ? model_.digit_size(set[0]) : 1;
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
  // Everything that `e` has to wait for, then `e`. A digit waits for at most one other, so that there is at most one
  // circle on its way.
  void Visit(int e) {
    if (!Moves(e) || set_[static_cast<size_t>(e)] >= 0) return;
    std::vector<int> way;
    int at = e;
    while (at >= 0 && set_[static_cast<size_t>(at)] < 0 && std::find(way.begin(), way.end(), at) == way.end()) {
      way.push_back(at);
      at = After(at);
    }
    const auto circle = at < 0 ? way.end() : std::find(way.begin(), way.end(), at);
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

// The digits of an exchange, with those that move cut into parts of at most `group`.
std::optional<digits::DigitModel> CutModel(const Layout& from, const Layout& to, const digits::MeshLevels* levels,
                                           int64_t group) {
  const auto whole = digits::DigitModel::Create(from, to, false, levels);
  if (!whole) return std::nullopt;
  std::vector<AxisRef> cuts;
  for (int e = 0; e < whole->num_digits(); ++e) {
    const auto i = static_cast<size_t>(e);
    if (whole->source().at[i] == whole->target().at[i] || whole->digit_size(e) <= group) continue;
    AxisRef part = whole->refined()[i].ref;
    for (int64_t size : PartsOf(part.size, group)) {
      part.size = size;
      cuts.push_back(part);
      part.pre *= size;
    }
  }
  return digits::DigitModel::Create(from, to, false, levels, false, cuts);
}

}  // namespace

Chain Stages(const Layout& from, const Layout& to, const digits::MeshLevels* levels, int64_t group) {
  const auto model = CutModel(from, to, levels, group);
  if (!model) return {{cost::ChainStep::Kind::kMove, to}};
  const Order order(*model);
  // What is sliced first makes everything after it smaller, what is gathered last leaves it so; a set keeps its place
  // behind those that it waits for.
  std::vector<digits::State> states;
  digits::State state = model->source();
  int64_t peers = 1;
  for (const bool gathered : {false, true}) {
    for (const std::vector<int>& set : order.sets()) {
      const bool gathers = set.size() == 1 && model->target().at[static_cast<size_t>(set[0])] < 0;
      if (gathers != gathered) continue;
      const int64_t more = order.Peers(set);
      if (peers * more > group && peers > 1) {
        states.push_back(state);
        peers = 1;
      }
      peers *= more;
      for (int e : set) state.at[static_cast<size_t>(e)] = model->target().at[static_cast<size_t>(e)];
    }
  }
  Chain out;
  for (const digits::State& one : states) out.push_back({cost::ChainStep::Kind::kMove, model->ToLayout(one)});
  out.push_back({cost::ChainStep::Kind::kMove, to});
  return out;
}

Proposal Staged(const Task& task, const SoFar& so_far) {
  const PlanOptions& options = task.options;
  const Topology& topology = options.topology;
  if (options.objective != Objective::kTime || options.boxes_only || task.reduces || !so_far.cheapest ||
      !(task.source.mesh() == task.target.mesh())) {
    return {};
  }
  const absl::StatusOr<Bounds> bounds = task.bounds();
  if (!bounds.ok()) return {};
  const int outermost = topology.num_levels() - 1;
  const int64_t latency = topology.levels.back().latency_ns;
  const int64_t across = bounds->levels.empty() ? bounds->recv_bytes_max : bounds->levels.back().nic_recv_bytes_max;
  const int64_t at_least = topology.StepTime(outermost, 1, across);
  const int64_t time = so_far.cheapest->time_ns;
  if (across == 0 || time < 2 * at_least || time < at_least + kManyPeers * latency) return {};

  std::optional<digits::MeshLevels> levels;
  if (topology.num_levels() > 1) {
    levels = digits::LevelsOf(task.source.mesh(), topology);
    if (!levels) return {};
  }
  std::vector<Chain> bases = ThreePhaseChains(task.source, task.target, topology);
  bases.resize(std::min(bases.size(), kBases));
  bases.push_back({{cost::ChainStep::Kind::kMove, task.target}});
  Proposal out;
  for (const Chain& base : bases) {
    // Of the numbers of stages the one with the least time by the formula of a step, if all move the same.
    Chain best;
    int64_t least = time;
    for (int stages = 2; stages <= kMostStages; ++stages) {
      int64_t group = 2;
      const auto power = [stages](int64_t one) {
        int64_t product = 1;
        for (int i = 0; i < stages && product < (int64_t{1} << 40); ++i) product *= one;
        return product;
      };
      while (power(group) < task.source.mesh().size()) ++group;
      Chain chain;
      int64_t estimate = 0;
      const Layout* at = &task.source;
      for (const cost::ChainStep& step : base) {
        Chain part{step};
        if (step.kind == cost::ChainStep::Kind::kMove) part = Stages(*at, step.to, levels ? &*levels : nullptr, group);
        estimate += static_cast<int64_t>(part.size()) * topology.StepTime(outermost, group, across);
        chain.insert(chain.end(), part.begin(), part.end());
        at = &step.to;
      }
      if (chain.size() == base.size() || estimate >= least) continue;
      least = estimate;
      best = std::move(chain);
    }
    if (!best.empty()) out.chains.push_back(std::move(best));
  }
  return out;
}

}  // namespace reshard::candidates
