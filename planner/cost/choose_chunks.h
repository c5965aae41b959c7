// Chooses the number of chunks into which to cut a chain, and computes how long it then takes.
#ifndef RESHARD_PLANNER_COST_CHOOSE_CHUNKS_H_
#define RESHARD_PLANNER_COST_CHOOSE_CHUNKS_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "reshard/planner/plan.h"

namespace reshard::cost {

// Nanoseconds of a chain in chunks: the sum over turns. A turn takes as long as one step that does everything the turn
// does: each level takes what its bytes and peers there take, see topology.h. The peers are those of all its steps, but
// no more than a domain has.
int64_t TimeInChunks(const std::vector<Step>& steps, const Topology& topology, int64_t count);

struct ChosenChunks {
  Chunks chunks;
  int64_t time_ns = 0;
  int64_t peak_bytes = 0;
};

// The fastest way to cut the chain with a peak within `limit` bytes; of several, the one with the fewest chunks.
// nullopt if the chain cannot be cut: it has one step that moves data, it has an AllReduce, or a layout of it cuts
// every dimension unevenly. `peak`: gives the peak of the chain in that many chunks, in bytes.
std::optional<ChosenChunks> ChooseChunks(const std::vector<Step>& steps, const Topology& topology,
                                         std::optional<int64_t> limit, const std::function<int64_t(int64_t)>& peak);

}  // namespace reshard::cost

#endif  // RESHARD_PLANNER_COST_CHOOSE_CHUNKS_H_
