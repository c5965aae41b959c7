#include "planner/transfers/sampled_loads.h"

#include <algorithm>

namespace reshard::transfers {

std::optional<LevelLoads> SampledLoads::Of(const Layout& from, const Layout& to) {
  if (exhausted()) return std::nullopt;
  const absl::StatusOr<ShardMaps::Sample> sample = maps_.SampleOf(from, to, topology_);
  if (!sample.ok()) return std::nullopt;
  looked_at_ += sample->looked_at;
  if (!sample->busiest) return std::nullopt;
  return sample->busiest->all;
}

int64_t SampledLoads::LinkBytes(const LevelLoads& loads, int level) const {
  const LevelLoad& load = loads[static_cast<size_t>(level)];
  return std::max(load.recv, load.send) * SizeOf(dtype_) * topology_.DevicesPerNic(level);
}

}  // namespace reshard::transfers
