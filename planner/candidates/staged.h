// Plans for exchanges with more peers than bytes: a message to each of thousands of devices costs thousands of
// latencies, while moving the data twice, to a few dozen peers each time, costs hundreds.
//
// An exchange moves digits of the mesh to other places. Stages move them one after another: after each, every digit is
// either where the source has it or where the target does. A digit goes no earlier than the one whose place it takes;
// digits that take each other's places go together. Large digits are cut into parts of about the same size, so that k
// stages have about the k-th root of the peers each, and about as many bytes as the whole exchange.
//
// Example: [<a>4096, 4096] -> [4096, <a>4096] on {a:1024} has 1,023 peers. With a cut into 32 x 32 there are two stages
// of 31: [<a>4096, 4096] -> [<a:(1)32>4096, <32,a:(32)32>4096] -> [4096, <a>4096].
#ifndef RESHARD_PLANNER_CANDIDATES_STAGED_H_
#define RESHARD_PLANNER_CANDIDATES_STAGED_H_

#include <cstdint>
#include <vector>

#include "planner/candidates/family.h"
#include "planner/digits/domains.h"

namespace reshard::candidates {

struct Stage {
  cost::ChainStep step;
  int64_t devices = 1;  // that meet across the level, about
};

// The moves from -> to in which no more than about `group` devices meet across `level`. Parts of digits are prime where
// they cannot be as small. Post-conditions: no layout is larger than max(from, to); the last is
// `to`. One stage where digits say nothing about the pair, there would be too many of them, or parts do not fit.
// `levels`: null on a topology of one level.
std::vector<Stage> Stages(const Layout& from, const Layout& to, const digits::MeshLevels* levels, int level,
                          int64_t group);

// As a family: from 512 devices on, where the objective is time, and that of the cheapest candidate is mostly
// latencies.
Proposal Staged(const Task& task, const SoFar& so_far);

}  // namespace reshard::candidates

#endif  // RESHARD_PLANNER_CANDIDATES_STAGED_H_
