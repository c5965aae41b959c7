// The steps that lead on from one state of the search, each of them once.
#ifndef RESHARD_PLANNER_CANDIDATES_SEQUENCE_EXPANSION_H_
#define RESHARD_PLANNER_CANDIDATES_SEQUENCE_EXPANSION_H_

#include <array>
#include <cstdint>
#include <vector>

#include "absl/functional/function_ref.h"
#include "planner/candidates/sequence/search_space.h"

namespace reshard::sequence {

// A state that one step leads to.
struct ReachedState {
  const digits::State& to;
  int phase = kLabeled;
  Move move = Move::kNone;
  const cost::Cost& cost;  // of the step
  bool allowed = true;     // false: no box where only boxes may be
};

// State: the step that is being put together, as the choices made so far; between calls of Run it is scratch.
class Expansion {
 public:
  // Returns false when no more steps are wanted.
  using Sink = absl::FunctionRef<bool(const ReachedState&)>;

  // `space` must outlive it.
  explicit Expansion(const SearchSpace& space) : space_(space), place_digit_(space.model.places().size(), -1) {}

  // Gives the sink the steps from a state, copied first, that was reached by `before`. Of choices that differ only by
  // digits or places that are interchangeable there, one is given.
  void Run(const digits::State& from, int phase, Move before, Sink sink);

 private:
  void FindInterchangeable();
  void FindScratchSlots();
  bool CanMove(Move move, int e) const;
  void ChooseAll(Move move);
  // Enumerates all sets of digits that one step of a kind can move, with digit e and those after it still to be chosen.
  void Choose(Move move, int e);
  void ChooseMoved(Move move, int e, int place, int code);
  // The same as Choose if the states before and after must be boxes: digits leave dimensions at the end, and are added
  // at the end of those that no digit leaves.
  void ChooseBoxes(Move move, size_t dim);
  void FillBoxes(Move move, size_t dim, size_t at);
  void EmitMoved(Move move);
  void ChoosePermutes();
  void ChoosePermute(size_t index, int to_phase);
  void PutPermuted(size_t index, int to_phase, int e);
  void EmitPermute(int to_phase);
  void EmitExchange();
  void Emit(const digits::State& next, int phase, Move move, const cost::Cost& step);

  const SearchSpace& space_;
  const Sink* sink_ = nullptr;
  bool stopped_ = false;  // by the sink

  digits::State from_;
  int phase_ = kLabeled;
  int64_t local_ = 0;
  std::vector<int> place_digit_;                         // per place: the digit there, or -1
  std::vector<bool> taken_;                              // per place, while moves are chosen
  std::array<int, digits::kMaxSearchDigits> scratch_{};  // per digit: its first empty scratch slot, or -1
  std::array<int, digits::kMaxSearchDigits>
      interchangeable_{};                             // per digit: an earlier one interchangeable with it, or -1
  std::array<int, digits::kMaxSearchDigits> code_{};  // what was chosen for each digit; 0: it stays where it is
  digits::State next_;
  bool boxed_ = false;  // both ends of the step must be boxes
  Group group_;
  int64_t next_local_ = 0;
  std::vector<int> leaving_;         // digits, with boxes
  std::vector<size_t> left_of_dim_;  // places still occupied, with boxes
  std::vector<int> occupied_;        // places of unlabeled digits, the target's first
};

}  // namespace reshard::sequence

#endif  // RESHARD_PLANNER_CANDIDATES_SEQUENCE_EXPANSION_H_
