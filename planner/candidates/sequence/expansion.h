// Expands a state of the search: lists the steps that lead on from it, each once.
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
  bool allowed = true;     // false: not a box where only boxes are allowed
};

// State: the choices made so far for the step under construction; meaningless between calls to Run.
class Expansion {
 public:
  // Returns false when no more steps are wanted.
  using Sink = absl::FunctionRef<bool(const ReachedState&)>;

  // `space` must outlive it.
  explicit Expansion(const SearchSpace& space) : space_(space), place_digit_(space.model.places().size(), -1) {}

  // Passes the steps from state `from`, which the step `before` reached, to the sink. Copies `from` first. Of choices
  // that differ only in digits or places that are interchangeable in `from`, passes one.
  void Run(const digits::State& from, int phase, Move before, Sink sink);

 private:
  void FindInterchangeable();            // fills interchangeable_
  void FindScratchSlots();               // fills scratch_
  bool CanMove(Move move, int e) const;  // whether a step of this kind can move digit e
  void ChooseAll(Move move);             // passes all steps of one kind to the sink
  // Enumerates all steps of one kind: chooses whether and where digit e moves, then recursively the digits after it.
  void Choose(Move move, int e);
  void ChooseMoved(Move move, int e, int place, int code);  // moves digit e to `place`, then calls Choose for e + 1
  // The same as Choose if the states before and after must be boxes: digits leave dimensions only at the end, and are
  // added only at the end of dimensions that no digit leaves.
  void ChooseBoxes(Move move, size_t dim);
  void FillBoxes(Move move, size_t dim, size_t at);
  void EmitMoved(Move move);  // prices the digits moved in next_ as one step
  void ChoosePermutes();      // passes all AllPermutes to the sink
  void ChoosePermute(size_t index, int to_phase);
  void PutPermuted(size_t index, int to_phase, int e);  // digit e goes to occupied_[index]
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
  std::vector<bool> taken_;                              // per place: occupied in from_, or chosen for this step
  std::array<int, digits::kMaxSearchDigits> scratch_{};  // per digit: its first empty scratch slot, or -1
  std::array<int, digits::kMaxSearchDigits>
      interchangeable_{};                             // per digit: an earlier one interchangeable with it, or -1
  std::array<int, digits::kMaxSearchDigits> code_{};  // what was chosen for each digit; 0: it stays where it is
  digits::State next_;
  bool boxed_ = false;  // both ends of the step must be boxes
  Group group_;
  int64_t next_local_ = 0;
  std::vector<int> leaving_;         // with boxes: digits that leave, or that may be added
  std::vector<size_t> left_of_dim_;  // with boxes, per dimension: places still occupied
  std::vector<int> occupied_;        // places of unlabeled digits, the target's first
};

}  // namespace reshard::sequence

#endif  // RESHARD_PLANNER_CANDIDATES_SEQUENCE_EXPANSION_H_
