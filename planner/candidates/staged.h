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

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "planner/candidates/family.h"
#include "planner/digits/domains.h"

namespace reshard::candidates {

struct Stage {
  cost::ChainStep step;
  int64_t devices = 1;  // about how many meet across the level
};

// The moves from -> to, cut into stages in which at most about `group` devices meet across `level`. A part of a digit
// is larger than that only where it is prime. Post-conditions: no layout is larger than max(from, to); the last is
// `to`. A single stage where digits do not describe the pair, there would be too many digits, or parts do not fit.
// `levels`: null on a topology of one level.
std::vector<Stage> Stages(const Layout& from, const Layout& to, const digits::MeshLevels* levels, int level,
                          int64_t group);

// An exchange whose time so far is mostly latencies.
struct ManyPeers {
  int level = 0;                             // the outermost of the topology
  int64_t time_ns = 0;                       // of the cheapest candidate so far, or of the fastest that waits
  int64_t across_bytes = 0;                  // that the busiest link of the level has to carry
  int64_t domains = 1;                       // that the level connects
  std::optional<digits::MeshLevels> levels;  // of the mesh, on a topology of several
};

// nullopt where the time is not that of an exchange with many peers, or is not the objective; and below 512 devices,
// where the latency of a message, which is the least certain figure of a topology, would decide too much.
std::optional<ManyPeers> FindManyPeers(const Task& task, const SoFar& so_far);

// How the layouts between steps cut a dimension by the nodes' part of an axis that stages move in parts. Where sizes
// divide, the elements are the same, but stages are found for the finer parts, often worse ones: kAtOnce.
enum class AxisCuts {
  kAtOnce,  // all coordinates alike: a:(1)512 cuts 50000 at multiples of 98
  // Part inside part, as the stages move them: a:(1)8,a:(8)8,a:(64)8 cuts it at 6250 i + 782 j + 98 k. What a stage
  // leaves, such as <8,8,a:(64)8>, then has the borders that it had before: a device has fewer peers.
  kNested,
};

// The chains with their moves cut into the number of stages with the least time by the formula of a step: at most
// `most` chains, the fastest by the formula first. Leaves out chains that stages make no faster than `many.time_ns`.
// kNested: where that makes no layout larger than max(source, target).
std::vector<Chain> InStages(const Task& task, const ManyPeers& many, const std::vector<Chain>& bases, size_t most,
                            AxisCuts cuts);

// As a family: from 512 devices on, where the objective is time and the time of the cheapest candidate is mostly
// latencies.
Proposal Staged(const Task& task, const SoFar& so_far);

}  // namespace reshard::candidates

#endif  // RESHARD_PLANNER_CANDIDATES_STAGED_H_
