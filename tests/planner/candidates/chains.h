// Chains of layouts as the families of candidates make them, before the oracle; and random layouts to make them from.
#ifndef RESHARD_TESTS_PLANNER_CANDIDATES_CHAINS_H_
#define RESHARD_TESTS_PLANNER_CANDIDATES_CHAINS_H_

#include <cstdint>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "planner/candidates/family.h"
#include "reshard/planner/plan.h"

namespace reshard::testing {

using candidates::Chain;

// LocalityDomains of so many devices, with slow links between them.
inline Topology LocalityDomains(int64_t devices) {
  return {"domains", {{devices, 400'000'000'000, 3000, 0}, {0, 50'000'000'000, 12000, 0}}};
}
inline PlanOptions On(const Topology& topology) {
  PlanOptions options;
  options.topology = topology;
  return options;
}

// The chain as a plan, of i8 elements, with its steps priced. The test fails where it cannot be priced.
Plan PlanOf(const Layout& source, const Layout& target, const Chain& chain, const PlanOptions& options = {});

// Everything wrong with the chain, one line each: its messages are carried out on symbolic values, every op is held
// against its definition and every figure is counted again, and no layout on the way may be larger than both ends.
// Empty when nothing is wrong.
std::string WrongWith(const Layout& source, const Layout& target, const Chain& chain, const PlanOptions& options = {});

// The layouts on the way, each in one line.
std::string Text(const Layout& source, const Chain& chain);

struct Axis {
  std::string name;
  int64_t size = 1;
};
std::string MeshText(const std::vector<Axis>& axes, int64_t first_device = 0);
// Every axis cuts a dimension or replicates.
struct LayoutKinds {
  bool partial = false;  // an axis may also be partial, in one sum
  bool blocks = false;   // dimensions that are cut may be cut into blocks too
};
std::string RandomLayout(std::mt19937_64& random, const std::vector<Axis>& axes, const std::vector<int64_t>& shape,
                         const LayoutKinds& kinds = {});
// One of a few small shapes, which 2, 3 and 4 divide unless `uneven`.
std::vector<int64_t> RandomShape(std::mt19937_64& random, bool uneven);

}  // namespace reshard::testing

#endif  // RESHARD_TESTS_PLANNER_CANDIDATES_CHAINS_H_
