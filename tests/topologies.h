// Topologies for tests.
#ifndef RESHARD_TESTS_TOPOLOGIES_H_
#define RESHARD_TESTS_TOPOLOGIES_H_

#include <cstdint>
#include <vector>

#include "reshard/planner/topology.h"

namespace reshard::testing {

// A level for each size of domains, innermost first, and one around them that is slow; without sizes, only that.
inline Topology OfDomains(const std::vector<int64_t>& domains) {
  Topology out;
  out.name = "test";
  for (int64_t size : domains) out.levels.push_back({size, 100'000'000'000, 1000, 0});
  out.levels.push_back({0, 10'000'000'000, 5000, 0});
  return out;
}

}  // namespace reshard::testing

#endif  // RESHARD_TESTS_TOPOLOGIES_H_
