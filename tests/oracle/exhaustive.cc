#include "tests/oracle/exhaustive.h"

#include <algorithm>
#include <limits>
#include <map>
#include <set>
#include <utility>

namespace oracle {
namespace {

constexpr int32_t kFar = std::numeric_limits<int32_t>::max() / 4;

// The text of a layout in which digits[d][i] is the axis at binary digit i of dimension d, or -1.
std::string Text(const std::vector<std::vector<int>>& digits, int64_t side) {
  std::string text = "[";
  for (size_t d = 0; d < digits.size(); ++d) {
    size_t used = digits[d].size();
    while (used > 0 && digits[d][used - 1] < 0) --used;
    if (d > 0) text += ", ";
    if (used > 0) {
      text += "<";
      for (size_t i = 0; i < used; ++i) {
        text += (i > 0 ? "," : "") +
                (digits[d][i] < 0 ? std::string("2") : std::string(1, static_cast<char>('A' + digits[d][i])));
      }
      text += ">";
    }
    text += std::to_string(side);
  }
  return text + "]";
}

bool IsBox(const std::vector<std::vector<int>>& digits) {
  for (const auto& dim : digits) {
    for (size_t i = 1; i < dim.size(); ++i) {
      if (dim[i] >= 0 && dim[i - 1] < 0) return false;
    }
  }
  return true;
}

}  // namespace

Exhaustive::Exhaustive(int axes, int rank, int64_t side, bool boxes_only, Steps steps, StepCost cost)
    : steps_(steps), cost_(std::move(cost)) {
  mesh_ = "{";
  for (int a = 0; a < axes; ++a) mesh_ += std::string(a > 0 ? "," : "") + static_cast<char>('A' + a) + ":2";
  mesh_ += "}";
  const Mesh mesh = ParseMesh(mesh_);

  size_t bits = 0;
  while ((int64_t{1} << bits) < side) ++bits;
  const int places = rank * static_cast<int>(bits);
  // Every way to give each axis no place (-1) or a place of its own.
  std::vector<std::vector<int>> assignments = {{}};
  for (int a = 0; a < axes; ++a) {
    std::vector<std::vector<int>> longer;
    for (const auto& assignment : assignments) {
      for (int place = -1; place < places; ++place) {
        if (place >= 0 && std::count(assignment.begin(), assignment.end(), place) != 0) continue;
        longer.push_back(assignment);
        longer.back().push_back(place);
      }
    }
    assignments = std::move(longer);
  }
  for (const auto& assignment : assignments) {
    std::vector<std::vector<int>> digits(static_cast<size_t>(rank), std::vector<int>(bits, -1));
    for (size_t a = 0; a < assignment.size(); ++a) {
      if (assignment[a] < 0) continue;
      const auto place = static_cast<size_t>(assignment[a]);
      digits[place / bits][place % bits] = static_cast<int>(a);
    }
    State state;
    state.is_box = IsBox(digits);
    if (boxes_only && !state.is_box) continue;
    state.layout = Text(digits, side);
    state.places = assignment;
    const Holdings holdings(ParseLayout(state.layout, mesh));
    state.sets = holdings.sets;
    state.local = holdings.sets[0].Count();
    states_.push_back(std::move(state));
  }
  step_.resize(states_.size() * states_.size());
  for (size_t s = 0; s < states_.size(); ++s) {
    for (size_t t = 0; t < states_.size(); ++t) step_[s * states_.size() + t] = CheapestStep(s, t);
  }
  ShortestPaths();
}

int64_t Exhaustive::CheapestStep(size_t from, size_t to) const {
  const std::vector<ElementSet>& a = states_[from].sets;
  const std::vector<ElementSet>& b = states_[to].sets;
  const size_t n = a.size();

  // Slice: everybody keeps a part.
  bool slice = true;
  for (size_t p = 0; p < n && slice; ++p) slice = b[p].Within(a[p]);
  int64_t best = -1;
  auto offer = [&](int64_t elements, int64_t peers) {
    const int64_t cost = cost_ ? cost_(elements, peers) : elements;
    best = best < 0 ? cost : std::min(best, cost);
  };
  if (slice) {
    offer(0, 0);
    return best;
  }
  if (states_[to].local < states_[from].local) return -1;

  for (size_t group = 1; group < n; ++group) {  // the set of axes that vary inside a group, one bit an axis
    const int64_t members = int64_t{1} << __builtin_popcountll(group);
    bool gather = states_[to].local == states_[from].local * members;
    bool trade = states_[to].local == states_[from].local && states_[from].local % members == 0;
    const size_t axes = states_[from].places.size();
    for (size_t x = 0; steps_ == Steps::kOthersStay && x < axes; ++x) {
      // The last axis is the lowest bit of a position.
      if ((group >> (axes - 1 - x) & 1) == 0 && states_[from].places[x] != states_[to].places[x])
        gather = trade = false;
    }
    for (size_t q = 0; q < n && (gather || trade); ++q) {
      ElementSet pool = a[q];
      int64_t pooled = 0;
      for (size_t p = 0; p < n && (gather || trade); ++p) {
        if (((p ^ q) & ~group) != 0) continue;  // not in q's group
        const int64_t part = b[q].CountCommon(a[p]);
        trade = trade && part * members == states_[to].local;
        gather = gather && part == states_[from].local;
        pool.Merge(a[p]);
        pooled += part;
      }
      // The parts must not overlap and be all: then they add up to what the union has.
      const bool covers = b[q].Within(pool) && pooled == states_[to].local;
      trade = trade && covers;
      gather = gather && covers;
    }
    if (gather) offer(states_[to].local - states_[from].local, members - 1);
    if (trade) offer(states_[from].local - states_[from].local / members, members - 1);
  }

  // AllPermute: as many devices want a shard as hold it, and all local shapes are equal. A device that has it already
  // keeps it.
  if (states_[to].local == states_[from].local) {
    std::map<ElementSet, int64_t> balance;
    for (size_t p = 0; p < n; ++p) {
      ++balance[a[p]];
      --balance[b[p]];
    }
    const bool permutes =
        std::all_of(balance.begin(), balance.end(), [](const auto& entry) { return entry.second == 0; });
    if (permutes) offer(states_[from].local, 1);
  }
  return best;
}

void Exhaustive::ShortestPaths() {
  std::set<int64_t> sizes;
  for (const State& state : states_) sizes.insert(state.local);
  sizes_.assign(sizes.begin(), sizes.end());
  const size_t n = states_.size();
  for (const int64_t cap : sizes_) {
    std::vector<int32_t>& distance = distances_.emplace_back(n * n, kFar);
    std::vector<size_t> allowed;
    for (size_t s = 0; s < n; ++s) {
      if (states_[s].local <= cap) allowed.push_back(s);
    }
    for (const size_t s : allowed) {
      for (const size_t t : allowed) {
        if (step_[s * n + t] >= 0) distance[s * n + t] = static_cast<int32_t>(step_[s * n + t]);
      }
      distance[s * n + s] = 0;
    }
    for (const size_t via : allowed) {
      for (const size_t s : allowed) {
        const int32_t first = distance[s * n + via];
        if (first == kFar) continue;
        const int32_t* second = &distance[via * n];
        int32_t* row = &distance[s * n];
        for (size_t t = 0; t < n; ++t) row[t] = std::min(row[t], first + second[t]);
      }
    }
  }
}

int64_t Exhaustive::Optimum(size_t from, size_t to) const {
  const int64_t cap = std::max(states_[from].local, states_[to].local);
  const auto at = std::find(sizes_.begin(), sizes_.end(), cap) - sizes_.begin();
  const int32_t distance = distances_[at][from * states_.size() + to];
  return distance >= kFar ? -1 : distance;
}

int64_t Exhaustive::Bound(size_t from, size_t to) const {
  int64_t bound = 0;
  for (size_t p = 0; p < states_[from].sets.size(); ++p) {
    bound = std::max(bound, states_[to].local - states_[to].sets[p].CountCommon(states_[from].sets[p]));
  }
  return bound;
}

}  // namespace oracle
