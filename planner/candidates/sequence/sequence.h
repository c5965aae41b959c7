// Exact search for the cheapest sequence of Slice, AllGather, AllToAll, AllPermute, ReduceScatter and AllReduce over
// the digit-level layouts of DigitModel (A*).
//
// State: where each digit is. Cost of a path: the sum over steps of Cost (price.h), compared from its first entry.
// Heuristic: component by component, a lower bound on the rest of the path, namely the bytes that the target still
// lacks, on each level of links, and for time also the latency, since a step with p peers multiplies the number of
// shards whose elements a device has seen by at most 1 + p. Invariants: no state is larger than max(source, target);
// with `boxes` only contiguous states between the ends; if the search ends within its budget, no path has a smaller
// objective. Interchangeable digits and places are tried once; see sequence_search.h.
#ifndef RESHARD_PLANNER_CANDIDATES_SEQUENCE_SEQUENCE_H_
#define RESHARD_PLANNER_CANDIDATES_SEQUENCE_SEQUENCE_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "planner/cost/price.h"
#include "planner/digits/digit_model.h"
#include "reshard/planner/plan.h"

namespace reshard::sequence {

struct SequenceResult {
  std::vector<cost::Hop> hops;  // empty if nothing was found
  bool found = false;
  bool exhausted = false;  // the whole space below the bound was searched
  // That of the sequence found, and a lower bound over all sequences of the space, both in the objective's unit.
  int64_t objective = 0;
  int64_t bound = 0;
};

// `bound`: the cost of a plan that is already known; only cheaper sequences matter. `budget`: most states to generate.
SequenceResult SearchSequence(const digits::DigitModel& model, DType dtype, const PlanOptions& options,
                              const std::optional<cost::Cost>& bound, int64_t budget);

}  // namespace reshard::sequence

#endif  // RESHARD_PLANNER_CANDIDATES_SEQUENCE_SEQUENCE_H_
