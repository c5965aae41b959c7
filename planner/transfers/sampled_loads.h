// What a few hundred devices tell about moves over a large mesh, for families that look at many moves to find a few.
#ifndef RESHARD_PLANNER_TRANSFERS_SAMPLED_LOADS_H_
#define RESHARD_PLANNER_TRANSFERS_SAMPLED_LOADS_H_

#include <cstdint>
#include <optional>

#include "planner/transfers/shard_maps.h"
#include "reshard/layout/dtype.h"
#include "reshard/planner/topology.h"
#include "reshard/planner/traffic.h"

namespace reshard::transfers {

// On meshes of up to this many devices every device is looked at; on larger ones a sample is worth taking.
inline constexpr int64_t kAllLookedAt = 1024;

// State: how much has been looked at, in rows and intervals of shard maps, or in devices. Not thread-safe.
class SampledLoads {
 public:
  // Looks at moves until it has looked at more than `most`. The topology and the maps must outlive it.
  SampledLoads(DType dtype, const Topology& topology, ShardMaps& maps, int64_t most)
      : dtype_(dtype), topology_(topology), maps_(maps), most_(most) {}

  bool exhausted() const { return looked_at_ > most_; }
  void LookedAt(int64_t devices) { looked_at_ += devices; }
  // nullopt if it is exhausted, or a few devices cannot tell.
  std::optional<LevelLoads> Of(const Layout& from, const Layout& to);
  // Bytes through the busiest link of the level.
  int64_t LinkBytes(const LevelLoads& loads, int level) const;

 private:
  const DType dtype_;
  const Topology& topology_;
  ShardMaps& maps_;
  const int64_t most_;
  int64_t looked_at_ = 0;
};

}  // namespace reshard::transfers

#endif  // RESHARD_PLANNER_TRANSFERS_SAMPLED_LOADS_H_
