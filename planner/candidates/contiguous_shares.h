// Plans in which a device meets few others far away, although its domain exchanges with nearly all of them.
//
// The devices of a domain share what it holds, or what it is to hold, by contiguous parts of a dimension, so that each
// of them concerns only those domains whose own cuts are there: of D domains, with n devices each, about D / n.
//
// Example: [<a>8192, 8192] -> [8192, <a>8192] on {a:1024} in nodes of 8. Directly, a device has 1,016 peers in other
// nodes. By way of M1 = [<a:(1)128>8192, <a:(128)8>8192] and M2 = [<a:(128)8>8192, <a:(1)128>8192], a device has an
// eighth of the columns in M1, which 16 nodes need, and of these the one device that has its rows in M2: 16 peers.
#ifndef RESHARD_PLANNER_CANDIDATES_CONTIGUOUS_SHARES_H_
#define RESHARD_PLANNER_CANDIDATES_CONTIGUOUS_SHARES_H_

#include <cstdint>
#include <vector>

#include "planner/candidates/family.h"

namespace reshard::candidates {

struct ShareChain {
  Chain chain;                   // source -> M1 (may be left out) -> M2 (likewise) -> target
  int64_t time_ns = 0;           // of its moves, estimated from a few hundred devices
  bool replicas_gather = false;  // domains that are to hold the same share it in M2
};

// At most four in which replicas gather, and four others; fastest first.
// Post-conditions: every chain leads from source to target; no intermediate layout is larger than max(source, target).
// Empty if the topology has one level, the domains are not sub-meshes, something is partial, or the layouts are over
// different meshes.
std::vector<ShareChain> ContiguousShareChains(const Layout& source, const Layout& target, DType dtype,
                                              const Topology& topology, transfers::ShardMaps& maps);

// As a family: where FindManyPeers says so. Proposes the fastest chain of either kind, and the best chain in stages.
Proposal ContiguousShares(const Task& task, const SoFar& so_far);

}  // namespace reshard::candidates

#endif  // RESHARD_PLANNER_CANDIDATES_CONTIGUOUS_SHARES_H_
