#include "planner/transfers/shard_maps.h"

#include "status/macros.h"

namespace reshard::transfers {
namespace {

// Rows and intervals of all maps that are kept: about 64 MiB.
constexpr int64_t kMostKept = int64_t{1} << 21;

}  // namespace

int64_t RowsAndIntervals(const ShardMap& map) {
  size_t size = 0;
  for (int d = 0; d < map.rank(); ++d) size += map.dim(d).length.size() + map.dim(d).intervals.size();
  return static_cast<int64_t>(size);
}

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
  if (room != nullptr) {
    *room = map;
  } else if (const int64_t size = RowsAndIntervals(*map); size_ + size <= kMostKept) {
    size_ += size;
    kept_.emplace_back(layout, map);
  }
  return map;
}

std::optional<LevelLoads> ShardMaps::BusiestLoads(const Layout& from, const Layout& to, const Topology& topology) {
  for (const Move& move : moves_) {
    if (move.from == from && move.to == to) return move.busiest;
  }
  const auto before = Of(from), after = Of(to);
  if (!before.ok() || !after.ok()) return std::nullopt;
  moves_.push_back({from, to, transfers::BusiestLoads({from, **before}, {to, **after}, topology)});
  return moves_.back().busiest;
}

}  // namespace reshard::transfers
