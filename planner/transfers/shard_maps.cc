#include "planner/transfers/shard_maps.h"

#include "status/macros.h"

namespace reshard::transfers {

absl::StatusOr<std::shared_ptr<const ShardMap>> ShardMaps::Of(const Layout& layout) {
  std::shared_ptr<const ShardMap>* room = nullptr;
  for (auto& [kept, map] : kept_) {
    if (!(kept == layout)) continue;
    if (map != nullptr) return map;
    room = &map;
    break;
  }
  ASSIGN_OR_RETURN(ShardMap made, ShardMap::Create(layout));
  auto map = std::make_shared<const ShardMap>(std::move(made));
  if (room != nullptr) *room = map;
  return map;
}

}  // namespace reshard::transfers
