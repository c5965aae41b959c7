// The space that SearchSequence searches: the states of a problem, the phases and canonical keys by which equivalent
// states count as one, and a lower bound on the cost of the rest of a path.
//
// Swap class. The digits of one size and tier. A tier is a level of links that digits cross, so swapping two digits of
// a class changes no cost.
//
// Phase. An AllPermute may put any digits of a swap class at the occupied places, so before a permute it does not
// matter which of two such digits is where. In phase t >= 0 a permute is still to come, and digits of tier <= t that
// are not partial are unlabeled: the state says only that some digit of the class is there. In phase -1 no permute is
// to come, and every digit is labeled. Example: [<x,y>8] to [<y>8] on {x:2, y:2} starts in phase 0 with "two digits of
// the class at p0 and p1"; AllPermute labels them y at p0, x at p1 (phase -1); AllGather over x reaches the target. A
// path with two permutes of one tier is never better than one with a single permute: relabeling the digits between them
// merges the first into the second, or vice versa, and every other step stays the same.
//
// If every digit has a scratch slot, a place that the target does not use (`scratch_for_all` below), more is known:
//  - scratch slots are interchangeable, so they count as one;
//  - a labeled digit goes to its target or to a scratch slot, never to another digit's target, since a slot serves as
//    well;
//  - a digit at its target stays there;
//  - a permute gives an occupied place to the digit whose target it is rather than to another of its swap class: that
//    digit can play the other's part until the other would have left the place.
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

inline constexpr int kLabeled = -1;  // the phase in which every digit is labeled

// The facts of one problem; nothing here changes during a search. Model and options must outlive it.
struct SearchSpace {
  // From states of one phase with the same key, the rest of the path costs the same.
  using Key = std::array<uint64_t, 5>;

  SearchSpace(const digits::DigitModel& of_model, DType dtype, const PlanOptions& with);

  bool Unlabeled(int e, int phase, int8_t place) const {
    return cost.tier_of_digit(e) <= phase && place != digits::kPartialDigit;
  }
  // The elements of the target that are still missing, on the worst device (`max`) and over all devices (`total`, may
  // be null), if digits not yet reduced count as replicated. Devices that differ only in digits of a tier below `tier`
  // count as one.
  void MissingElements(const digits::State& state, int tier, int64_t* max, int64_t* total) const;
  // A lower bound on the cost of any path from the state to the target.
  cost::Cost Heuristic(const digits::State& state) const;
  Key KeyOf(const digits::State& state, int phase) const;

  const digits::DigitModel& model;
  const PlanOptions& options;
  const MoveCost cost;
  const int k;                                  // number of digits
  int64_t cap = 0;                              // most elements that a device may hold between the ends
  std::vector<int> digit_of_place;              // per place: the target's digit there, or -1
  std::vector<std::vector<int>> places_of_dim;  // those that digits may take, in order
  std::vector<int> class_of;                    // per digit: one class for equal size, tier and kind of target
  std::vector<int> swap_class;                  // per digit
  bool reduces = false;                         // something is to be reduced
  bool scratch_for_all = false;                 // there is a scratch slot for every digit
  // Whether an AllToAll may slice along some digits what it gathers along others. Its bytes and time are at best those
  // of the two steps, so this only helps with the number of steps.
  bool joint = false;

 private:
  Key KeyOfPlaces(const digits::State& state, int phase) const;  // KeyOf if not `scratch_for_all`
};

}  // namespace reshard::sequence

#endif  // RESHARD_PLANNER_CANDIDATES_SEQUENCE_SEARCH_SPACE_H_
