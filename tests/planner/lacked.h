// What devices lack, counted element by element from the layouts alone.
#ifndef RESHARD_TESTS_PLANNER_LACKED_H_
#define RESHARD_TESTS_PLANNER_LACKED_H_

#include <cstdint>
#include <vector>

#include "reshard/layout/layout.h"

namespace reshard::testing {

// Elements of the target's shard at `position` that the device with this id does not hold in the source.
inline int64_t LackedElements(const Layout& source, const Layout& target, int64_t device, int64_t position) {
  const auto from = source.mesh().Position(device);
  int64_t needs = 1, has = from ? 1 : 0;
  for (int d = 0; d < source.rank(); ++d) {
    std::vector<bool> held(static_cast<size_t>(source.dim(d).size), false);
    if (from) {
      for (const Interval& interval : source.Intervals(*from, d)) {
        for (int64_t i = interval.begin; i < interval.end; ++i) held[i] = true;
      }
    }
    int64_t needed = 0, both = 0;
    for (const Interval& interval : target.Intervals(position, d)) {
      for (int64_t i = interval.begin; i < interval.end; ++i) {
        ++needed;
        both += held[i] ? 1 : 0;
      }
    }
    needs *= needed;
    has *= both;
  }
  return needs - has;
}

}  // namespace reshard::testing

#endif  // RESHARD_TESTS_PLANNER_LACKED_H_
