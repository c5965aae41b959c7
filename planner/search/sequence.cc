#include "planner/search/sequence.h"

#include <algorithm>
#include <numeric>

#include "planner/search/sequence_search.h"
#include "reshard/layout/checked.h"

namespace reshard::search {

SequenceSearch::SequenceSearch(const DigitModel& model, DType dtype, const PlanOptions& options,
                               const std::optional<Cost>& bound, int64_t budget)
    : model_(model),
      options_(options),
      cost_(model, dtype, options),
      bound_(bound),
      budget_(budget),
      k_(model.num_digits()) {
  cap_ = std::max(model.LocalElements(model.source()), model.LocalElements(model.target()));
  target_local_ = model.LocalElements(model.target());
  place_digit_.assign(model.places().size(), -1);
  digit_of_place_.assign(model.places().size(), -1);
  for (size_t p = 0; p < model.places().size(); ++p) {
    const auto& place = model.places()[p];
    if (place.fixed) continue;
    const auto dim = static_cast<size_t>(place.dim);
    if (places_of_dim_.size() <= dim) places_of_dim_.resize(dim + 1);
    places_of_dim_[dim].push_back(static_cast<int>(p));
  }
  for (std::vector<int>& places : places_of_dim_) {
    std::sort(places.begin(), places.end(), [&](int p, int q) {
      return model.places()[static_cast<size_t>(p)].lo < model.places()[static_cast<size_t>(q)].lo;
    });
  }
  std::vector<std::array<int64_t, 3>> kinds;
  std::vector<std::array<int64_t, 2>> kin;
  free_ = !options.boxes_only;
  joint_ = !options.boxes_only && options.objective == Objective::kSteps;
  for (int e = 0; e < k_; ++e) {
    const auto i = static_cast<size_t>(e);
    const int8_t at = model.target().at[i];
    if (at >= 0) digit_of_place_[static_cast<size_t>(at)] = e;
    reduces_ |= model.source().at[i] == kPendingDigit && at != kPendingDigit;
    kinds.push_back({model.digit_size(e), cost_.rank_of_digit(e), std::min<int64_t>(at, 0)});
    kin.push_back({model.digit_size(e), cost_.rank_of_digit(e)});
  }
  for (int e = 0; e < k_; ++e) {
    const auto i = static_cast<size_t>(e);
    class_.push_back(static_cast<int>(std::find(kinds.begin(), kinds.end(), kinds[i]) - kinds.begin()));
    kin_.push_back(static_cast<int>(std::find(kin.begin(), kin.end(), kin[i]) - kin.begin()));
    int digits = 0;
    int places = 0;
    for (int f = 0; f < k_; ++f) digits += model.digit_size(f) == model.digit_size(e) ? 1 : 0;
    for (size_t p = 0; p < digit_of_place_.size(); ++p) {
      places += digit_of_place_[p] < 0 && model.Fits(e, static_cast<int>(p)) ? 1 : 0;
    }
    free_ &= places >= digits;
  }
}

void SequenceSearch::LackedElements(const State& state, int rank, int64_t* max, int64_t* total) const {
  // The target's places: same digit on both sides, another digit (a clash), or one side only.
  int64_t overlap = model_.elements();
  int64_t wanted = model_.elements();
  int64_t devices = 1;  // that count as one
  bool clash = false;
  std::array<int8_t, kMaxSearchDigits> parent;
  std::iota(parent.begin(), parent.end(), int8_t{0});
  auto find = [&](int8_t e) {
    while (parent[static_cast<size_t>(e)] != e) e = parent[static_cast<size_t>(e)];
    return e;
  };
  std::array<bool, kMaxSearchDigits> met{};  // digits of the target at whose place another one of the rank is
  int64_t agree = 1;                         // one device in so many has clashing digits with equal coordinates
  for (int e = 0; e < k_; ++e) {
    if (cost_.rank_of_digit(e) < rank) {
      devices *= model_.digit_size(e);
      continue;
    }
    const int8_t place = state.at[static_cast<size_t>(e)];
    if (place < 0) continue;
    overlap /= model_.digit_size(e);
    const int other = digit_of_place_[static_cast<size_t>(place)];
    if (other < 0 || cost_.rank_of_digit(other) < rank) continue;
    met[static_cast<size_t>(other)] = true;
    if (other == e) continue;
    clash = true;
    const int8_t a = find(static_cast<int8_t>(e)), b = find(static_cast<int8_t>(other));
    if (a != b) {
      parent[static_cast<size_t>(a)] = b;
      agree *= model_.digit_size(e);
    }
  }
  for (int e = 0; e < k_; ++e) {
    if (model_.target().at[static_cast<size_t>(e)] < 0 || cost_.rank_of_digit(e) < rank) continue;
    wanted /= model_.digit_size(e);
    // The target narrows the overlap further unless the state already uses that place.
    if (!met[static_cast<size_t>(e)]) overlap /= model_.digit_size(e);
  }
  *max = CeilDiv(clash ? wanted : wanted - overlap, devices);
  if (total != nullptr) *total = model_.devices() * wanted - model_.devices() / agree * overlap;
}

Cost SequenceSearch::Heuristic(const State& state) const {
  if (state == model_.target()) return {};
  Lacks lacks{};
  int64_t total = 0;
  LackedElements(state, 0, lacks.data(), &total);
  for (int r = 1; r < cost_.num_ranks(); ++r) LackedElements(state, r, &lacks[static_cast<size_t>(r)], nullptr);
  // Distinct shards and contributions that meet in a device's target box.
  int64_t shards = 1;
  for (int e = 0; e < k_; ++e) {
    const int8_t place = state.at[static_cast<size_t>(e)];
    const bool reduced = place == kPendingDigit && model_.target().at[static_cast<size_t>(e)] != kPendingDigit;
    if (reduced || (place >= 0 && digit_of_place_[static_cast<size_t>(place)] < 0)) shards *= model_.digit_size(e);
  }
  return cost_.AtLeast(lacks, total, shards);
}

// With a name, what counts of a digit is whether it is at its own place, at that of another digit, off, replicated or
// pending. So the state is a set of chains e -> f: "e is at the place of f".
SequenceSearch::Key SequenceSearch::KeyOf(const State& state, int phase) const {
  if (!free_) return KeyOfPlaces(state, phase);
  std::array<int, kMaxSearchDigits> next;
  std::array<uint8_t, kMaxSearchDigits> before{};  // who is at the digit's place: nobody, an anonymous digit, a digit
  std::array<uint8_t, kMaxSearchDigits> off_count{};
  for (int e = 0; e < k_; ++e) {
    const auto i = static_cast<size_t>(e);
    const int8_t place = state.at[i];
    next[i] = -1;
    const int other = place < 0 ? -1 : digit_of_place_[static_cast<size_t>(place)];
    if (Anonymous(e, phase, place)) {
      const auto kin = static_cast<size_t>(kin_[i]);
      if (other >= 0) before[static_cast<size_t>(other)] = static_cast<uint8_t>(0x40 + kin);
      if (place >= 0 && other < 0) ++off_count[kin];
    } else if (other >= 0) {
      next[i] = other;
      before[static_cast<size_t>(other)] = 0xff;
    }
  }
  constexpr uint8_t kOff = 0x80, kWhole = 0x81, kSums = 0x82, kNobody = 0x83, kCycle = 0x84;
  using Chain = unsigned __int128;  // its bytes, none of them 0
  const auto class_byte = [&](int e) { return static_cast<Chain>(1 + class_[static_cast<size_t>(e)]); };
  std::array<Chain, kMaxSearchDigits + 1> chains;
  size_t count = 0;
  const auto add = [&](Chain chain) {  // in ascending order
    size_t at = count++;
    for (; at > 0 && chain < chains[at - 1]; --at) chains[at] = chains[at - 1];
    chains[at] = chain;
  };
  std::array<bool, kMaxSearchDigits> seen{};
  for (int e = 0; e < k_; ++e) {
    if (before[static_cast<size_t>(e)] == 0xff) continue;
    Chain chain = before[static_cast<size_t>(e)];
    int last = e;
    for (int at = e; at >= 0; at = next[static_cast<size_t>(at)]) {
      seen[static_cast<size_t>(at)] = true;
      chain = chain << 8 | class_byte(at);
      last = at;
    }
    const int8_t place = state.at[static_cast<size_t>(last)];
    add(chain << 8 | (Anonymous(last, phase, place) ? kNobody
                      : place >= 0                  ? kOff
                      : place == kPendingDigit      ? kSums
                                                    : kWhole));
  }
  for (int e = 0; e < k_; ++e) {
    if (seen[static_cast<size_t>(e)]) continue;
    std::array<Chain, kMaxSearchDigits> cycle{};
    size_t length = 0;
    for (int at = e; !seen[static_cast<size_t>(at)]; at = next[static_cast<size_t>(at)]) {
      seen[static_cast<size_t>(at)] = true;
      cycle[length++] = class_byte(at);
    }
    Chain least = ~Chain{0};
    for (size_t turn = 0; turn < length; ++turn) {
      Chain turned = 0;
      for (size_t i = 0; i < length; ++i) turned = turned << 8 | cycle[(turn + i) % length];
      least = std::min(least, turned << 8 | kCycle);
    }
    add(least);
  }
  std::array<uint8_t, sizeof(Key)> bytes{};
  size_t used = 0;
  bytes[used++] = static_cast<uint8_t>(phase + 1);
  if (phase != kNamed) {
    for (uint8_t n : off_count) bytes[used++] = n;
  }
  for (size_t c = 0; c < count; ++c) {
    for (Chain rest = chains[c]; rest != 0; rest >>= 8) bytes[used++] = static_cast<uint8_t>(rest);
  }
  Key key;
  std::copy(bytes.begin(), bytes.end(), reinterpret_cast<uint8_t*>(key.data()));
  return key;
}

SequenceSearch::Key SequenceSearch::KeyOfPlaces(const State& state, int phase) const {
  State sorted = state;
  for (int e = 0; e < k_; ++e) {
    for (int f = e + 1; f < k_; ++f) {
      const auto i = static_cast<size_t>(e), j = static_cast<size_t>(f);
      if (kin_[i] == kin_[j] && Anonymous(e, phase, sorted.at[i]) && Anonymous(f, phase, sorted.at[j]) &&
          sorted.at[j] < sorted.at[i]) {
        std::swap(sorted.at[i], sorted.at[j]);
      }
    }
  }
  return {sorted.Key(), static_cast<uint64_t>(phase + 1), 0, 0, 0};
}

void SequenceSearch::Emit(const State& next, int phase, Move move, const Cost& step) {
  ++generated_;
  const bool any_shape = boxed_ || !options_.boxes_only;
  if (!any_shape && !(next == model_.target()) && !(next == model_.source()) && !model_.IsBox(next)) return;
  Cost g = g_;
  for (size_t i = 0; i < g.size(); ++i) g[i] += step[i];
  const Cost h = Heuristic(next);
  Cost f = h;
  for (size_t i = 0; i < f.size(); ++i) f[i] += g[i];
  if (bound_ && f >= *bound_) return;
  if (phase == kNamed && next == model_.target()) bound_ = g;
  const auto [it, added] = index_.emplace(KeyOf(next, phase), static_cast<int64_t>(nodes_.size()));
  if (added) {
    nodes_.push_back({next, phase, move, false, at_, g});
  } else {
    Node& node = nodes_[static_cast<size_t>(it->second)];
    if (node.g <= g) return;
    node = {next, phase, move, false, at_, g};
  }
  open_.push({greedy_ ? h : f, generated_, it->second});
}

// The chain of layouts that leads to a node.
std::vector<Hop> SequenceSearch::PathTo(int64_t index) const {
  std::vector<State> states;
  for (int64_t i = index; i >= 0; i = nodes_[static_cast<size_t>(i)].parent) {
    states.push_back(nodes_[static_cast<size_t>(i)].state);
  }
  const DigitModel model = model_.Compacted(states);
  std::vector<Hop> out;
  for (int64_t i = index; nodes_[static_cast<size_t>(i)].parent >= 0; i = nodes_[static_cast<size_t>(i)].parent) {
    const Node& node = nodes_[static_cast<size_t>(i)];
    Hop hop;
    hop.kind = node.move == Move::kReduceScatter ? Hop::Kind::kReduceScatter
               : node.move == Move::kAllReduce   ? Hop::Kind::kAllReduce
               : node.move == Move::kAllPermute  ? Hop::Kind::kPermute
                                                 : Hop::Kind::kMove;
    hop.to = model.ToLayout(node.state);
    out.push_back(std::move(hop));
  }
  std::reverse(out.begin(), out.end());
  return out;
}

SequenceResult SequenceSearch::Run(bool greedy) {
  greedy_ = greedy;
  const Cost first = Heuristic(model_.source());
  for (int phase = kNamed; phase < (options_.ops.contains(Op::kAllPermute) ? cost_.num_ranks() : 0); ++phase) {
    const auto index = static_cast<int64_t>(nodes_.size());
    if (!index_.emplace(KeyOf(model_.source(), phase), index).second) continue;
    nodes_.push_back({model_.source(), phase, Move::kNone, false, -1, {}});
    open_.push({first, index, index});
  }
  const Key target = KeyOf(model_.target(), kNamed);
  SequenceResult out;
  out.exhausted = true;
  while (!open_.empty()) {
    const Open top = open_.top();
    if (OverBudget()) {
      out.exhausted = false;
      out.bound = top.f[0];
      break;
    }
    open_.pop();
    Node& node = nodes_[static_cast<size_t>(top.node)];
    if (node.closed) continue;
    node.closed = true;
    if (node.phase == kNamed && node.state == model_.target()) break;
    Expand(top.node);
  }
  // Out of budget: a path may be known all the same, only its optimality is not.
  const auto found = index_.find(target);
  if (found == index_.end()) return out;
  out.found = true;
  out.hops = PathTo(found->second);
  out.objective = nodes_[static_cast<size_t>(found->second)].g[0];
  if (out.exhausted) out.bound = out.objective;
  return out;
}

SequenceResult SearchSequence(const DigitModel& model, DType dtype, const PlanOptions& options,
                              const std::optional<Cost>& bound, int64_t budget) {
  SequenceResult best = SequenceSearch(model, dtype, options, bound, budget).Run(false);
  if (best.found || best.exhausted) return best;
  SequenceResult some = SequenceSearch(model, dtype, options, bound, budget / 4).Run(true);
  some.exhausted = false;
  some.bound = best.bound;
  return some;
}

}  // namespace reshard::search
