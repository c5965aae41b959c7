// Prices a chain of layouts: the one place where transfers become the bytes and nanoseconds of a plan.
#ifndef RESHARD_PLANNER_COST_PRICE_H_
#define RESHARD_PLANNER_COST_PRICE_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "planner/cost/cost.h"
#include "planner/transfers/shard_maps.h"
#include "reshard/planner/plan.h"

namespace reshard::cost {

// One step of a chain. A movement gets the name of the op whose pattern it turns out to have; a reduction is what it
// says. kPermute is a movement in which whole shards change places even if a nearer holder could serve several
// receivers.
struct ChainStep {
  enum class Kind { kMove, kPermute, kReduceScatter, kAllReduce };
  Kind kind = Kind::kMove;
  Layout to;
};

struct PricedChain {
  std::vector<Step> steps;
  Chunks chunks;
  Totals totals;
  int64_t sum_of_step_maxima = 0;  // of received bytes: what the search minimizes
  // The smallest peak in bytes that splitting steps into rounds allows, or the peak of the chosen chunks. If the limit
  // is below it, `steps` and `totals` are not final.
  int64_t smallest_peak_bytes = 0;
};

// Prices source -> steps[0].to -> steps[1].to -> ... Steps are split into rounds if the memory limit requires it. The
// chain is cut into chunks if options.overlap allows it and that is faster by a 32nd, or the only way to fit the limit.
// `maps` may have some of the layouts' maps already.
absl::StatusOr<PricedChain> Price(const Layout& source, const std::vector<ChainStep>& steps, DType dtype,
                                  const PlanOptions& options, transfers::ShardMaps& maps);
absl::StatusOr<PricedChain> Price(const Layout& source, const std::vector<ChainStep>& steps, DType dtype,
                                  const PlanOptions& options);

// About the least time that Price() can say for the chain, at a fraction of its cost: a few hundred devices tell what
// each step moves across each level, and a level is busy for the sum of its steps, whether they overlap or not. Steps
// of which a sample cannot tell count nothing.
int64_t TimeAtLeast(const Layout& source, const std::vector<ChainStep>& steps, DType dtype, const Topology& topology,
                    transfers::ShardMaps& maps);

}  // namespace reshard::cost

#endif  // RESHARD_PLANNER_COST_PRICE_H_
