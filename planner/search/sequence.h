// Exact search for the cheapest sequence of Slice, AllGather, AllToAll, AllPermute, ReduceScatter and AllReduce over
// the digit-level layouts of DigitModel (A*).
//
// State: where each digit is. Cost of a path: the sum over steps of (objective, bytes received by the worst device,
// bytes received in total, time, steps), compared in that order. Heuristic, component by component a lower bound of the
// rest: bytes the target still lacks, on each level of links; for time also the latency, since a step with p peers
// multiplies by at most 1 + p the number of shards whose elements a device has seen. Invariants: no state larger than
// max(source, target); with `boxes` only contiguous ones between the ends; where the search ends before its budget no
// path has a smaller objective. Interchangeable digits and places are tried once; see sequence_search.h.
#ifndef RESHARD_PLANNER_SEARCH_SEQUENCE_H_
#define RESHARD_PLANNER_SEARCH_SEQUENCE_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "planner/search/digit_model.h"
#include "planner/search/price.h"
#include "reshard/planner/plan.h"

namespace reshard::search {

struct SequenceResult {
  std::vector<Hop> hops;  // empty when nothing was found
  bool found = false;
  bool exhausted = false;  // the whole space within the bound was searched
  // Of the sequence found, and what no sequence of the space can go below, both in the objective's unit.
  int64_t objective = 0;
  int64_t bound = 0;
};

// `bound`: only sequences cheaper than this matter (a plan already known). `budget`: states generated at most.
SequenceResult SearchSequence(const DigitModel& model, DType dtype, const PlanOptions& options,
                              const std::optional<Cost>& bound, int64_t budget);

}  // namespace reshard::search

#endif  // RESHARD_PLANNER_SEARCH_SEQUENCE_H_
