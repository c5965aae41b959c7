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

absl::StatusOr<ShardMaps::Sample> ShardMaps::SampleOf(const Layout& from, const Layout& to, const Topology& topology) {
  for (const Move& move : moves_) {
    if (move.from == from && move.to == to) return move.sample;
  }
  ASSIGN_OR_RETURN(const std::shared_ptr<const ShardMap> before, Of(from));
  ASSIGN_OR_RETURN(const std::shared_ptr<const ShardMap> after, Of(to));
  Sample sample{RowsAndIntervals(*before) + RowsAndIntervals(*after),
                FindBusiest({from, *before}, {to, *after}, topology)};
  moves_.push_back({from, to, sample});
  return sample;
}

}  // namespace reshard::transfers
