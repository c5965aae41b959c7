#include "planner/candidates/sequence/search_space.h"

#include <algorithm>
#include <numeric>

#include "reshard/layout/checked.h"

namespace reshard::sequence {

SearchSpace::SearchSpace(const digits::DigitModel& of_model, DType dtype, const PlanOptions& with)
    : model(of_model), options(with), cost(of_model, dtype, with), k(of_model.num_digits()) {
  // No intermediate may be larger than the larger end: a plan must not need more memory than its problem does.
  cap = std::max(model.LocalElements(model.source()), model.LocalElements(model.target()));
  digit_of_place.assign(model.places().size(), -1);
  for (size_t p = 0; p < model.places().size(); ++p) {
    const auto& place = model.places()[p];
    if (place.fixed) continue;
    const auto dim = static_cast<size_t>(place.dim);
    if (places_of_dim.size() <= dim) places_of_dim.resize(dim + 1);
    places_of_dim[dim].push_back(static_cast<int>(p));
  }
  for (std::vector<int>& places : places_of_dim) {
    std::sort(places.begin(), places.end(), [&](int p, int q) { return model.places()[p].lo < model.places()[q].lo; });
  }
  std::vector<std::array<int64_t, 3>> kinds;
  std::vector<std::array<int64_t, 2>> swap_kinds;
  scratch_for_all = !options.boxes_only;
  joint = !options.boxes_only && options.objective == Objective::kSteps;
  for (int e = 0; e < k; ++e) {
    const auto i = static_cast<size_t>(e);
    const int8_t at = model.target().at[i];
    if (at >= 0) digit_of_place[at] = e;
    reduces |= model.source().at[i] == digits::kPartialDigit && at != digits::kPartialDigit;
    // A digit's kind says whether the target shards along it, but not at which place: renaming digits together with
    // their places gives the same problem (see KeyOf).
    kinds.push_back({model.digit_size(e), cost.tier_of_digit(e), std::min<int64_t>(at, 0)});
    swap_kinds.push_back({model.digit_size(e), cost.tier_of_digit(e)});
  }
  for (int e = 0; e < k; ++e) {
    const auto i = static_cast<size_t>(e);
    class_of.push_back(static_cast<int>(std::find(kinds.begin(), kinds.end(), kinds[i]) - kinds.begin()));
    swap_class.push_back(
        static_cast<int>(std::find(swap_kinds.begin(), swap_kinds.end(), swap_kinds[i]) - swap_kinds.begin()));
    int digits = 0;
    int places = 0;
    for (int f = 0; f < k; ++f) digits += model.digit_size(f) == model.digit_size(e) ? 1 : 0;
    for (size_t p = 0; p < digit_of_place.size(); ++p) {
      places += digit_of_place[p] < 0 && model.Fits(e, static_cast<int>(p)) ? 1 : 0;
    }
    // Room for all digits of this size at once, so that none ever has to wait for another to leave a place.
    scratch_for_all &= places >= digits;
  }
}

void SearchSpace::MissingElements(const digits::State& state, int tier, int64_t* max, int64_t* total) const {
  // Each digit at a place divides a box by its size, so boxes and their overlaps are quotients, and no element is
  // looked at. A place has the same digit in state and target, two different digits (a clash), or a digit on one side
  // only.
  int64_t overlap = model.elements();
  int64_t wanted = model.elements();
  int64_t devices = 1;  // that count as one
  bool clash = false;
  std::array<int8_t, digits::kMaxSearchDigits> parent;
  std::iota(parent.begin(), parent.end(), int8_t{0});
  auto find = [&](int8_t e) {
    while (parent[e] != e) e = parent[e];
    return e;
  };
  std::array<bool, digits::kMaxSearchDigits> met{};  // digits of the target whose places the state uses, too
  int64_t agree = 1;                                 // 1 in `agree` devices has clashing digits with equal coordinates
  for (int e = 0; e < k; ++e) {
    if (cost.tier_of_digit(e) < tier) {
      devices *= model.digit_size(e);
      continue;
    }
    const int8_t place = state.at[e];
    if (place < 0) continue;
    overlap /= model.digit_size(e);
    const int other = digit_of_place[place];
    if (other < 0 || cost.tier_of_digit(other) < tier) continue;
    met[other] = true;
    if (other == e) continue;
    clash = true;
    // Only devices on which both digits have equal coordinates overlap with their target box there. An equation that
    // closes a cycle follows from the others and excludes no further device.
    const int8_t a = find(static_cast<int8_t>(e)), b = find(static_cast<int8_t>(other));
    if (a != b) {
      parent[a] = b;
      agree *= model.digit_size(e);
    }
  }
  for (int e = 0; e < k; ++e) {
    if (model.target().at[e] < 0 || cost.tier_of_digit(e) < tier) continue;
    wanted /= model.digit_size(e);
    // The target narrows the overlap further unless the state already uses that place.
    if (!met[e]) overlap /= model.digit_size(e);
  }
  // With a clash some device holds nothing of its target box, and that one is the worst. Devices that count as one can
  // share what they lack, and the worst of them still receives an even share.
  *max = CeilDiv(clash ? wanted : wanted - overlap, devices);
  if (total != nullptr) *total = model.devices() * wanted - model.devices() / agree * overlap;
}

cost::Cost SearchSpace::Heuristic(const digits::State& state) const {
  if (state == model.target()) return {};
  std::array<int64_t, digits::kMaxSearchDigits> missing{};
  int64_t total = 0;
  MissingElements(state, 0, missing.data(), &total);
  for (int r = 1; r < cost.num_tiers(); ++r) MissingElements(state, r, &missing[r], nullptr);
  // Distinct shards and contributions that meet in a device's target box.
  int64_t shards = 1;
  for (int e = 0; e < k; ++e) {
    const int8_t place = state.at[e];
    const bool reduced = place == digits::kPartialDigit && model.target().at[e] != digits::kPartialDigit;
    if (reduced || (place >= 0 && digit_of_place[place] < 0)) shards *= model.digit_size(e);
  }
  return cost.AtLeast(missing, total, shards);
}

// What counts about a labeled digit is whether it is at its own target, at the target of another digit, in scratch,
// replicated or partial. So the state is a set of chains e -> f: "e is at the target of f".
SearchSpace::Key SearchSpace::KeyOf(const digits::State& state, int phase) const {
  if (!scratch_for_all) return KeyOfPlaces(state, phase);
  // What is at a digit's target: 0 for nothing, kUnlabeledAt and its class for an unlabeled digit, kLabeledAt.
  constexpr uint8_t kUnlabeledAt = 0x40, kLabeledAt = 0xff;
  std::array<int, digits::kMaxSearchDigits> next;
  std::array<uint8_t, digits::kMaxSearchDigits> before{};
  std::array<uint8_t, digits::kMaxSearchDigits> off_count{};
  for (int e = 0; e < k; ++e) {
    const auto i = static_cast<size_t>(e);
    const int8_t place = state.at[i];
    next[i] = -1;
    const int other = place < 0 ? -1 : digit_of_place[place];
    if (Unlabeled(e, phase, place)) {
      const auto swap = static_cast<size_t>(swap_class[i]);
      if (other >= 0) before[other] = static_cast<uint8_t>(kUnlabeledAt + swap);
      if (place >= 0 && other < 0) ++off_count[swap];
    } else if (other >= 0) {
      next[i] = other;
      before[other] = kLabeledAt;
    }
  }
  constexpr uint8_t kScratch = 0x80, kReplicatedEnd = 0x81, kPartialEnd = 0x82, kUnlabeledEnd = 0x83, kCycle = 0x84;
  using Chain = unsigned __int128;  // its bytes, none of them 0
  const auto class_byte = [&](int e) {
    const int byte = 1 + class_of[e];  // added as an int: 128 bits take longer
    return static_cast<Chain>(byte);
  };
  std::array<Chain, digits::kMaxSearchDigits + 1> chains;
  size_t count = 0;
  const auto add = [&](Chain chain) {  // keeps them in ascending order
    size_t at = count++;
    for (; at > 0 && chain < chains[at - 1]; --at) chains[at] = chains[at - 1];
    chains[at] = chain;
  };
  std::array<bool, digits::kMaxSearchDigits> seen{};
  for (int e = 0; e < k; ++e) {
    if (before[e] == kLabeledAt) continue;
    Chain chain = before[e];
    int last = e;
    for (int at = e; at >= 0; at = next[at]) {
      seen[at] = true;
      chain = chain << 8 | class_byte(at);
      last = at;
    }
    const int8_t place = state.at[last];
    add(chain << 8 | (Unlabeled(last, phase, place)    ? kUnlabeledEnd
                      : place >= 0                     ? kScratch
                      : place == digits::kPartialDigit ? kPartialEnd
                                                       : kReplicatedEnd));
  }
  for (int e = 0; e < k; ++e) {
    if (seen[e]) continue;
    // A cycle has no first digit: of its rotations, the one with the smallest code counts.
    std::array<Chain, digits::kMaxSearchDigits> cycle{};
    size_t length = 0;
    for (int at = e; !seen[at]; at = next[at]) {
      seen[at] = true;
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
  // Chains are written from their ends, whose bytes are the only ones above 0x7f. So the sequence of bytes can be taken
  // apart again, and equal keys mean equal multisets of chains. It fits: one byte for the phase, one per digit for the
  // counts, and at most three per digit for the chains.
  std::array<uint8_t, sizeof(Key)> bytes{};
  size_t used = 0;
  bytes[used++] = static_cast<uint8_t>(phase + 1);
  if (phase != kLabeled) {
    for (uint8_t n : off_count) bytes[used++] = n;
  }
  for (size_t c = 0; c < count; ++c) {
    for (Chain rest = chains[c]; rest != 0; rest >>= 8) bytes[used++] = static_cast<uint8_t>(rest);
  }
  Key key;
  std::copy(bytes.begin(), bytes.end(), reinterpret_cast<uint8_t*>(key.data()));
  return key;
}

SearchSpace::Key SearchSpace::KeyOfPlaces(const digits::State& state, int phase) const {
  digits::State sorted = state;
  for (int e = 0; e < k; ++e) {
    for (int f = e + 1; f < k; ++f) {
      const auto i = static_cast<size_t>(e), j = static_cast<size_t>(f);
      if (swap_class[i] == swap_class[j] && Unlabeled(e, phase, sorted.at[i]) && Unlabeled(f, phase, sorted.at[j]) &&
          sorted.at[j] < sorted.at[i]) {
        std::swap(sorted.at[i], sorted.at[j]);
      }
    }
  }
  return {sorted.Key(), static_cast<uint64_t>(phase + 1), 0, 0, 0};
}

}  // namespace reshard::sequence
