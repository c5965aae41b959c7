// What SearchSequence searches: the states of a problem, the phases and canonical keys under which they count as one,
// and the least that the rest of a path can cost.
//
// Phase. An AllPermute may put any digits of equal size at the occupied places, so before a permute it does not matter
// which of two digits of equal size and rank (level) is where. In phase r >= 0 a permute is still to come, and digits
// of rank <= r that are not partial are anonymous; in phase -1 no permute is to come and every digit has its name. A
// path with two permutes of one rank is never better than one with a single permute: relabeling the digits between them
// merges the first into the second, or vice versa, and every other step stays what it was.
//
// If every digit has a place of its own beyond those of the target ("off"; `free_` below), more is known:
//  - places that the target does not use are all alike, so that they count as one;
//  - a digit with a name goes to its own place or off, never to the place of another, since off serves as well;
//  - a digit at its own place stays there;
//  - a permute gives an occupied place to the digit that belongs there rather than to another of its size and rank: the
//    other one can take its part until the place would have been left.
// Each of these follows by replaying the steps of a path that does otherwise, with the same or smaller groups and no
// larger local sizes, so it holds for every objective. See docs/design/planner.md.
#ifndef RESHARD_PLANNER_CANDIDATES_SEQUENCE_SEARCH_SPACE_H_
#define RESHARD_PLANNER_CANDIDATES_SEQUENCE_SEARCH_SPACE_H_

#include <array>
#include <cstdint>
#include <vector>

#include "planner/candidates/sequence/move_cost.h"
#include "planner/digits/digit_model.h"
#include "reshard/planner/plan.h"

namespace reshard::sequence {

inline constexpr int kNamed = -1;  // the phase in which every digit has its name

// The facts of one problem; nothing here changes during a search. Model and options must outlive it.
struct SearchSpace {
  // From states of one phase with the same key, the rest of the path costs the same.
  using Key = std::array<uint64_t, 5>;

  SearchSpace(const digits::DigitModel& of_model, DType dtype, const PlanOptions& with);

  bool Anonymous(int e, int phase, int8_t place) const {
    return cost.rank_of_digit(e) <= phase && place != digits::kPendingDigit;
  }
  // What the target still lacks if digits not yet reduced count as replicated. Devices that differ only in digits of a
  // rank below `rank` count as one. `total` may be null.
  void LackedElements(const digits::State& state, int rank, int64_t* max, int64_t* total) const;
  // At most the cost of any path from the state to the target.
  cost::Cost Heuristic(const digits::State& state) const;
  Key KeyOf(const digits::State& state, int phase) const;

  const digits::DigitModel& model;
  const PlanOptions& options;
  const MoveCost cost;
  const int k;                                  // number of digits
  int64_t cap = 0;                              // most elements that a device may hold in between
  std::vector<int> digit_of_place;              // of the target, or -1
  std::vector<std::vector<int>> places_of_dim;  // those that may move, in order
  std::vector<int> class_of;                    // by digit: of equal size, rank and kind of target
  std::vector<int> kin;                         // by digit: of equal size and rank
  bool reduces = false;                         // something is to be reduced
  bool free = false;                            // every digit has a place of its own beyond those of the target
  // Whether an AllToAll may slice along some digits what it gathers along others. Its bytes and time are at best those
  // of the two steps, so this only helps with the number of steps.
  bool joint = false;

 private:
  Key KeyOfPlaces(const digits::State& state, int phase) const;  // if places are not all alike
};

}  // namespace reshard::sequence

#endif  // RESHARD_PLANNER_CANDIDATES_SEQUENCE_SEARCH_SPACE_H_
