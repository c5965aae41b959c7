// Prices a chain of layouts: the one place where traffic becomes the bytes and nanoseconds of a plan.
#ifndef RESHARD_PLANNER_SEARCH_PRICE_H_
#define RESHARD_PLANNER_SEARCH_PRICE_H_

#include <array>
#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "reshard/planner/plan.h"

namespace reshard::search {

// What a chain's step does; movement is named after its pattern, a reduction is what it says. kPermute is a movement in
// which whole shards change hands even where a nearer holder could serve several receivers.
struct Hop {
  enum class Kind { kMove, kPermute, kReduceScatter, kAllReduce };
  Kind kind = Kind::kMove;
  Layout to;
};

// Compared from the first entry: objective, bytes over the outermost level, bytes over the next level inside, recv_max,
// recv_total, time, steps. The bytes of levels are 0 unless the objective is bytes and the topology has several levels.
using Cost = std::array<int64_t, 7>;

struct PricedChain {
  std::vector<Step> steps;
  Totals totals;
  int64_t sum_of_step_maxima = 0;  // recv bytes; what the search minimises
  // Smallest peak that cutting steps into rounds can reach. With a limit below it, `steps` and `totals` are not final.
  int64_t smallest_peak_bytes = 0;
};

// Prices source -> hops[0].to -> hops[1].to -> ... Steps are cut into rounds where the memory limit asks for it.
absl::StatusOr<PricedChain> Price(const Layout& source, const std::vector<Hop>& hops, DType dtype,
                                  const PlanOptions& options);

}  // namespace reshard::search

#endif  // RESHARD_PLANNER_SEARCH_PRICE_H_
