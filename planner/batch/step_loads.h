// What devices receive and send in the steps of a plan, as lists of those that do anything.
#ifndef RESHARD_PLANNER_BATCH_STEP_LOADS_H_
#define RESHARD_PLANNER_BATCH_STEP_LOADS_H_

#include <cstdint>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "planner/transfers/shard_maps.h"
#include "reshard/planner/plan.h"

namespace reshard::batch {

// Device ids of all meshes, ascending, and their places in that list.
class DeviceList {
 public:
  // Adds a mesh's devices; Finish() before anything else.
  void Add(const Mesh& mesh);
  void Finish();
  size_t size() const { return ids_.size(); }
  int64_t id(size_t index) const { return ids_[index]; }
  int32_t IndexOf(int64_t id) const { return index_.empty() ? static_cast<int32_t>(id - ids_[0]) : index_.at(id); }

 private:
  std::vector<int64_t> ids_;
  absl::flat_hash_map<int64_t, int32_t> index_;  // empty where ids are consecutive
};

// Bytes of one device over the links of one level.
struct Load {
  int32_t device = 0;  // place in a DeviceList
  int32_t level = 0;
  int64_t recv = 0;
  int64_t send = 0;
};

// Every device that receives or sends anything in a step; ascending by device, then level. `maps` provides the maps of
// both layouts.
absl::StatusOr<std::vector<Load>> LoadsOf(const Step& step, DType dtype, const Topology& topology,
                                          const DeviceList& devices, transfers::ShardMaps& maps);

// How a step between meshes changes with its first holder. Holders of one shard are a list of devices in order of their
// positions in the source mesh; counting them from f instead of 0 moves what each sends f places on. (On a topology
// with levels near holders go first, so there this is a guess.)
class HolderRotation {
 public:
  // The shards' holders under step.from.
  static absl::StatusOr<HolderRotation> Create(const Step& step, const DeviceList& devices);
  int64_t holders() const { return holders_; }
  // The device that sends with first holder `first` what `device` sends with 0.
  int32_t Moved(int32_t device, int64_t first) const;
  // The smallest first > 0 that changes nothing, a divisor of holders(): with it, `loads` are the same as with 0.
  int64_t Period(const std::vector<Load>& loads) const;

 private:
  int64_t holders_ = 1;
  std::vector<int32_t> order_;  // holders_ devices per shard
  absl::flat_hash_map<int32_t, int32_t> place_;
};

}  // namespace reshard::batch

#endif  // RESHARD_PLANNER_BATCH_STEP_LOADS_H_
