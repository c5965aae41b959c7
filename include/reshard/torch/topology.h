// The network that the PyTorch operators of this process plan for.
#ifndef RESHARD_TORCH_TOPOLOGY_H_
#define RESHARD_TORCH_TOPOLOGY_H_

#include <cstdint>
#include <optional>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "reshard/planner/topology.h"

namespace reshard {

// From the next call on, all operators of this process plan for this network, whose devices are the global ranks of the
// job; nullopt: for the one that RESHARD_TOPOLOGY names (a preset or a JSON file), or if that is not set, for one in
// which all ranks are equally far apart. Every rank must set the same one: where they differ, all get an error that
// names the topology. What is bound already (BoundBatch) keeps its plan. Any thread.
void SetTopology(std::optional<Topology> topology);

// The topology that is set, or nullopt. InvalidArgument or NotFound: RESHARD_TOPOLOGY names neither a preset nor a file
// with a topology.
absl::StatusOr<std::optional<Topology>> ConfiguredTopology();
[[deprecated("ConfiguredTopology")]] inline absl::StatusOr<std::optional<Topology>> ToldTopology() {  // until 0.4
  return ConfiguredTopology();
}

// Number of calls of SetTopology so far, plus one.
int64_t TopologyVersion();

// The same network for a group: its device i is device global_ranks[i] of `topology`. A level whose domains are not
// equally long runs of these ranks (the last run may be shorter) is left out: its devices meet at the next one.
// Post-condition: OnRanks(t, {0, 1, ..., n-1}) == t.
Topology OnRanks(const Topology& topology, absl::Span<const int64_t> global_ranks);

}  // namespace reshard

#endif  // RESHARD_TORCH_TOPOLOGY_H_
