// The inside of SearchSequence: A* over states, phases and canonical keys.
//
// Phase. AllPermute may put any digits of equal size at the occupied places, so before a permute it does not matter
// which of two digits of equal size and rank (level) is where. In phase r >= 0 a permute is still to come and digits of
// rank <= r that are not pending are anonymous; in phase -1 none is and every digit has its name. A path that has two
// permutes of one rank is never better than one: relabelling the digits between them moves the first to the second, or
// the other way round, and every other step stays what it was.
//
// Where every digit has a place of its own beyond those of the target ("off"; `free_` below), more is known:
//  - places that the target does not use are all alike, so that they count as one;
//  - a digit with a name goes to its own place or off, never to the place of another: off serves as well;
//  - a digit at its own place stays there;
//  - a permute gives an occupied place to the digit that belongs there rather than to another of its size and rank: the
//    other one can play its part until the place would have been left.
// Each follows by replaying the steps of a path that does otherwise, with the same or smaller groups and no larger
// local sizes, so it holds for every objective. See docs/design/planner.md.
#ifndef RESHARD_PLANNER_SEARCH_SEQUENCE_SEARCH_H_
#define RESHARD_PLANNER_SEARCH_SEQUENCE_SEARCH_H_

#include <array>
#include <cstdint>
#include <optional>
#include <queue>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "planner/search/move_cost.h"
#include "planner/search/sequence.h"

namespace reshard::search {

inline constexpr int kNamed = -1;  // the phase in which every digit has its name

// State: nodes, each the cheapest known path to all states of one key, and those whose successors are not known yet.
// Invariant: a node's parent is older or cheaper, and its state follows from its parent's in one legal step.
class SequenceSearch {
 public:
  SequenceSearch(const DigitModel& model, DType dtype, const PlanOptions& options, const std::optional<Cost>& bound,
                 int64_t budget);
  // `greedy`: nearest to the target first, for some path; else cheapest first, for the best one.
  SequenceResult Run(bool greedy);

 private:
  // Two states of a phase with the same key cost the same from there on.
  using Key = std::array<uint64_t, 5>;
  struct Node {
    State state;
    int phase = kNamed;
    Move move = Move::kNone;
    bool closed = false;
    int64_t parent = -1;
    Cost g{};
  };
  struct Open {
    Cost f;
    int64_t order;  // first come, first served among equals
    int64_t node;
    bool operator<(const Open& other) const { return f != other.f ? f > other.f : order > other.order; }
  };
  using Lacks = std::array<int64_t, kMaxSearchDigits>;

  // What the target still lacks when the digits not yet reduced count as replicated; devices that share digits of a
  // rank below `rank` count as one.
  void LackedElements(const State& state, int rank, int64_t* max, int64_t* total) const;
  Cost Heuristic(const State& state) const;
  Key KeyOf(const State& state, int phase) const;
  Key KeyOfPlaces(const State& state, int phase) const;  // where places are not all alike
  bool Anonymous(int e, int phase, int8_t place) const {
    return cost_.rank_of_digit(e) <= phase && place != kPendingDigit;
  }

  bool OverBudget() const { return generated_ > budget_; }
  void Expand(int64_t index);
  void FindTwins();
  void FindOff();
  // All sets of digits that one step of a kind can move, digit e and those behind it still to choose.
  void Choose(Move move, int e);
  void ChooseMoved(Move move, int e, int place, int code);
  void ChoosePermutes();
  void ChoosePermute(size_t index, int to_phase);
  void PutPermuted(size_t index, int to_phase, int e);
  void EmitPermute(int to_phase);
  void EmitExchange();
  void Emit(const State& next, int phase, Move move, const Cost& step);
  std::vector<Hop> PathTo(int64_t index) const;

  const DigitModel& model_;
  const PlanOptions& options_;
  const MoveCost cost_;
  std::optional<Cost> bound_;  // only cheaper paths matter
  const int64_t budget_;
  const int k_;
  int64_t cap_ = 0;
  std::vector<int> digit_of_place_;  // of the target, or -1
  std::vector<int> class_;           // by digit: of equal size, rank and kind of target
  std::vector<int> kin_;             // by digit: of equal size and rank
  bool reduces_ = false;
  bool free_ = false;
  int64_t target_local_ = 1;

  bool greedy_ = false;
  std::vector<Node> nodes_;
  absl::flat_hash_map<Key, int64_t> index_;
  std::priority_queue<Open> open_;
  int64_t generated_ = 0;

  // The node being expanded.
  int64_t at_ = 0;
  State from_;
  int phase_ = kNamed;
  Cost g_{};
  int64_t local_ = 0;
  std::vector<int> place_digit_;              // per place: the digit there, or -1
  std::vector<bool> taken_;                   // per place, while moves are being chosen
  std::array<int, kMaxSearchDigits> off_{};   // per digit: the first empty place off the target's, or -1
  std::array<int, kMaxSearchDigits> twin_{};  // an earlier digit that is interchangeable with this one, or -1
  std::array<int, kMaxSearchDigits> code_{};  // what was chosen for each digit; 0: it stays
  State next_;
  Group group_;
  int64_t next_local_ = 0;
  std::vector<int> occupied_;  // places of anonymous digits, the target's first
};

}  // namespace reshard::search

#endif  // RESHARD_PLANNER_SEARCH_SEQUENCE_SEARCH_H_
