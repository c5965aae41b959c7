// The exact optimum of sequences of Slice, AllGather, AllToAll and AllPermute, found without a planner: every state is
// a list of element sets, every legal single step between two states is found by its definition, and the cheapest
// sequence is the shortest path.
//
// The setting is one tensor of side^rank elements, side a power of two, over binary axes A, B, C, ... (each of size 2).
// A state gives each axis a binary digit of a dimension, or none. Digits in front of a dimension alone make boxes.
#ifndef RESHARD_TESTS_ORACLE_EXHAUSTIVE_H_
#define RESHARD_TESTS_ORACLE_EXHAUSTIVE_H_

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "tests/oracle/holdings.h"

namespace oracle {

class Exhaustive {
 public:
  // Which single steps are legal. kDefinition: all that meet the definition of their op. kOthersStay: only those in
  // which the axes outside the group keep their places as well. It leaves out an AllToAll such as [<C>8,8] -> [8,<B>8]
  // along C, which is a Slice along B and an AllGather along C in one.
  enum class Steps { kDefinition, kOthersStay };

  // What a step costs in which the worst device receives that many elements from that many devices; a Slice receives
  // nothing from nobody. Without one it is the elements.
  using StepCost = std::function<int64_t(int64_t elements, int64_t peers)>;

  // All states when `boxes_only` is false: 748 of 3 axes, rank 3, side 8; else the boxes alone: 106.
  Exhaustive(int axes, int rank, int64_t side, bool boxes_only, Steps steps = Steps::kDefinition,
             StepCost cost = nullptr);

  struct State {
    std::string layout;  // its text over mesh()
    bool is_box = false;
    int64_t local = 0;             // elements of every device
    std::vector<int> places;       // by axis: a number for the digit it has, or -1
    std::vector<ElementSet> sets;  // by position
  };
  const std::string& mesh() const { return mesh_; }
  const std::vector<State>& states() const { return states_; }

  // The cost of the cheapest legal single step, or -1.
  int64_t Step(size_t from, size_t to) const { return step_[from * states_.size() + to]; }
  // The least sum over steps of their costs, with no state larger than both ends.
  int64_t Optimum(size_t from, size_t to) const;
  // What the worst device lacks.
  int64_t Bound(size_t from, size_t to) const;

 private:
  int64_t CheapestStep(size_t from, size_t to) const;
  void ShortestPaths();

  std::string mesh_;
  Steps steps_;
  StepCost cost_;
  std::vector<State> states_;
  std::vector<int64_t> step_;
  std::vector<int64_t> sizes_;                   // distinct local sizes, ascending
  std::vector<std::vector<int32_t>> distances_;  // by cap: no state above sizes_[i]
};

}  // namespace oracle

#endif  // RESHARD_TESTS_ORACLE_EXHAUSTIVE_H_
