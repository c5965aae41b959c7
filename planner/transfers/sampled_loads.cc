#include "planner/transfers/sampled_loads.h"

#include <algorithm>

namespace reshard::transfers {

std::optional<LevelLoads> SampledLoads::Of(const Layout& from, const Layout& to) {
  if (exhausted()) return std::nullopt;
  const auto before = maps_.Of(from), after = maps_.Of(to);
  if (!before.ok() || !after.ok()) return std::nullopt;
  looked_at_ += RowsAndIntervals(**before) + RowsAndIntervals(**after);
  return maps_.BusiestLoads(from, to, topology_);
}

int64_t SampledLoads::LinkBytes(const LevelLoads& loads, int level) const {
  const LevelLoad& load = loads[static_cast<size_t>(level)];
  return std::max(load.recv, load.send) * SizeOf(dtype_) * topology_.DevicesPerNic(level);
}

}  // namespace reshard::transfers
