// Where one axis or one dimension is cut.
#ifndef RESHARD_PLANNER_DIGITS_CUTS_H_
#define RESHARD_PLANNER_DIGITS_CUTS_H_

#include <algorithm>
#include <cstdint>
#include <initializer_list>

#include "absl/container/inlined_vector.h"

namespace reshard::digits {

// A sorted set of products of leading digits. There are few of them, so they need no allocation.
// Example: an axis of 12 that is cut into digits of 2, 3 and 2: {1, 2, 6, 12}.
class Cuts {
 public:
  using Sorted = absl::InlinedVector<int64_t, 8>;
  using const_iterator = Sorted::const_iterator;

  Cuts() = default;
  Cuts(std::initializer_list<int64_t> cuts) {
    for (int64_t cut : cuts) Add(cut);
  }
  // Whether the cut is new.
  bool Add(int64_t cut) {
    const auto at = lower_bound(cut);
    if (at != end() && *at == cut) return false;
    const auto index = at - begin();
    sorted_.push_back(cut);
    std::rotate(sorted_.begin() + index, sorted_.end() - 1, sorted_.end());
    return true;
  }
  // Whether each cut divides the next one.
  bool IsChain() const {
    const auto breaks = [](int64_t cut, int64_t next) { return next % cut != 0; };
    return std::adjacent_find(begin(), end(), breaks) == end();
  }
  // Whether `cut`, which need not be there, divides the next cut above it and is a multiple of the one below.
  bool Fits(int64_t cut) const {
    const auto above = upper_bound(cut);
    const auto below = lower_bound(cut);
    return (above == end() || *above % cut == 0) && (below == begin() || cut % *(below - 1) == 0);
  }
  const_iterator begin() const { return sorted_.begin(); }
  const_iterator end() const { return sorted_.end(); }
  const_iterator lower_bound(int64_t cut) const { return std::lower_bound(begin(), end(), cut); }
  const_iterator upper_bound(int64_t cut) const { return std::upper_bound(begin(), end(), cut); }

 private:
  Sorted sorted_;
};

}  // namespace reshard::digits

#endif  // RESHARD_PLANNER_DIGITS_CUTS_H_
