// Exact search for the cheapest sequence of Slice, AllGather, AllToAll, AllPermute, ReduceScatter, AllReduce and, after
// a reduction, a final Exchange over the digit-level layouts of DigitModel (A*).
//
// A state assigns each digit (a factor of a mesh axis) to a place (a factor of a dimension), or leaves it replicated or
// partial. One step moves some digits at once. Example: bf16[8, 4] on {x:2, y:2}, from [<x,y>8, 4] to [<y>8, <x>4].
// Dimension 0 has the places p0 (major) and p1, dimension 1 has q0; the rest of both provides scratch slots, which the
// target does not use.
//
//     state            step that leads to it           received    f = g + h
//     x at p0, y at p1  (source)                              -    0 + 16 B
//     x at q0, y at p1  AllToAll over x                     8 B    8 +  8 B
//     x at q0, y at p0  AllToAll over y                     8 B   16 +  0 B   the target: emitted
//
// y cannot go to p0 first, because x is there. It could get there in a third step, via a scratch slot, at 8 B more:
// that state is never expanded, because its f is larger. An AllPermute could put y at p0 and x at p1 at once, but
// receives 16 B. ToLayout prints the states: [2<x,y>8, 4], [4<2,y>8, 2<x>4], [4<y>8, 2<x>4].
//
// Cost of a path: the sum over steps of Cost (cost.h), compared field by field. Heuristic: for each field, a lower
// bound on the rest of the path. It counts the bytes that the target still lacks, on each level of links, and for time
// also the latency: a step with p peers multiplies by at most 1 + p the number of shards whose elements a device has
// seen. Invariants: no state is larger than max(source, target); with options.boxes_only, the states between the
// ends are contiguous; if the search ends within its budget, no path has a smaller objective. Interchangeable digits
// and places are tried once; see search_space.h.
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
  std::vector<cost::ChainStep> steps;  // empty if nothing was found
  bool found = false;
  bool exhausted = false;  // the whole space below the bound was searched
  // The objective of the sequence found, and a lower bound on that of all sequences in the space, both in the
  // objective's unit. 0: the search was exhausted and nothing was found.
  int64_t objective = 0;
  int64_t lower_bound = 0;
};

// Finds the cheapest sequence from the model's source to its target. `incumbent`: the cost of a plan that is already
// known; only cheaper sequences matter. `budget`: most states to generate; up to a quarter more, greedily, if these
// find no path.
SequenceResult SearchSequence(const digits::DigitModel& model, DType dtype, const PlanOptions& options,
                              const std::optional<cost::Cost>& incumbent, int64_t budget);

}  // namespace reshard::sequence

#endif  // RESHARD_PLANNER_CANDIDATES_SEQUENCE_SEQUENCE_H_
