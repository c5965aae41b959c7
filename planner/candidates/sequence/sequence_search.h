// The implementation of SearchSequence: A* over the states of a SearchSpace.
#ifndef RESHARD_PLANNER_CANDIDATES_SEQUENCE_SEQUENCE_SEARCH_H_
#define RESHARD_PLANNER_CANDIDATES_SEQUENCE_SEQUENCE_SEARCH_H_

#include <cstdint>
#include <optional>
#include <queue>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "planner/candidates/sequence/expansion.h"
#include "planner/candidates/sequence/search_space.h"
#include "planner/candidates/sequence/sequence.h"

namespace reshard::sequence {

// State: one node per key, which is the cheapest known path to the states with that key, and the queue of nodes not yet
// expanded. Invariant: a node's parent is older or cheaper, and its state follows from that of its parent by one legal
// step.
class SequenceSearch {
 public:
  // `space` must outlive it. Only paths cheaper than `bound` matter; `budget`: most states to generate.
  SequenceSearch(const SearchSpace& space, const std::optional<cost::Cost>& bound, int64_t budget)
      : space_(space), bound_(bound), budget_(budget), expansion_(space) {}
  // `greedy`: expands the state closest to the target first, to find some path; otherwise the one with the smallest f,
  // to find the best path.
  SequenceResult Run(bool greedy);

 private:
  struct Node {
    digits::State state;
    int phase = kLabeled;
    Move move = Move::kNone;
    bool closed = false;
    int64_t parent = -1;
    cost::Cost g{};
  };
  struct Open {
    cost::Cost f;
    int64_t order;  // first in, first out among equals, so that the result does not depend on the queue
    int64_t node;
    bool operator<(const Open& other) const { return f != other.f ? f > other.f : order > other.order; }
  };

  // Records a step from node `from`: adds the state that it leads to, or updates a known one if this path is cheaper.
  void Reach(int64_t from, const ReachedState& step);
  std::vector<cost::ChainStep> PathTo(int64_t index) const;

  const SearchSpace& space_;
  std::optional<cost::Cost> bound_;
  const int64_t budget_;
  bool greedy_ = false;
  Expansion expansion_;
  std::vector<Node> nodes_;
  absl::flat_hash_map<SearchSpace::Key, int64_t> index_;
  std::priority_queue<Open> open_;
  int64_t generated_ = 0;
};

}  // namespace reshard::sequence

#endif  // RESHARD_PLANNER_CANDIDATES_SEQUENCE_SEQUENCE_SEARCH_H_
