// Linear assignment where many rows and many columns are alike: a transportation problem.
#ifndef RESHARD_PLANNER_RELABEL_ASSIGNMENT_H_
#define RESHARD_PLANNER_RELABEL_ASSIGNMENT_H_

#include <cstdint>
#include <vector>

namespace reshard::relabel {

// supply[r] devices of row class r go to demand[c] places of column class c; both sums are the same. Sending a device
// of r to a place of c is worth weight[r * columns + c] >= 0. The first stay[r * columns + c] of them stay where they
// are, which is worth more than going elsewhere for the same weight.
struct Transportation {
  std::vector<int64_t> supply;
  std::vector<int64_t> demand;
  std::vector<int64_t> weight;
  std::vector<int64_t> stay;
};

// How many devices of each row class go to each column class. Post-conditions: no other flow has a larger sum of
// weights; of those with the same sum none lets more devices stay.
//
// Successive shortest paths (Jonker and Volgenant's algorithm with capacities): duals from row and column minima and a
// greedy start, then one Dijkstra search for each group of devices left. A search takes O(n^2) for n classes.
std::vector<int64_t> BestFlow(const Transportation& problem);

}  // namespace reshard::relabel

#endif  // RESHARD_PLANNER_RELABEL_ASSIGNMENT_H_
