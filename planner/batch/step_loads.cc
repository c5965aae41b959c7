#include "planner/batch/step_loads.h"

#include <algorithm>

#include "reshard/layout/shard_map.h"
#include "reshard/planner/traffic.h"
#include "status/macros.h"

namespace reshard::batch {

void DeviceList::Add(const Mesh& mesh) {
  for (int64_t p = 0; p < mesh.size(); ++p) ids_.push_back(mesh.Device(p));
}

void DeviceList::Finish() {
  std::sort(ids_.begin(), ids_.end());
  ids_.erase(std::unique(ids_.begin(), ids_.end()), ids_.end());
  if (ids_.empty() || ids_.back() - ids_.front() + 1 == static_cast<int64_t>(ids_.size())) return;
  for (size_t i = 0; i < ids_.size(); ++i) index_.emplace(ids_[i], static_cast<int32_t>(i));
}

absl::StatusOr<std::vector<Load>> LoadsOf(const Step& step, DType dtype, const Topology& topology,
                                          const DeviceList& devices, transfers::ShardMaps& maps) {
  const int64_t element = SizeOf(dtype);
  std::vector<Load> out;
  if (step.op == Op::kSlice) return out;
  ASSIGN_OR_RETURN(auto transfers, transfers::CreateLoads(step, topology, maps));
  const std::vector<int64_t> ids = transfers->Devices();
  const std::vector<DeviceLoad> loads = transfers->Loads();
  for (size_t i = 0; i < loads.size(); ++i) {
    if (loads[i].recv == 0 && loads[i].send == 0) continue;
    const int32_t device = devices.IndexOf(ids[i]);
    if (topology.num_levels() == 1) {
      out.push_back({device, 0, loads[i].recv * element, loads[i].send * element});
      continue;
    }
    for (size_t level = 0; level < loads[i].levels.size(); ++level) {
      const LevelLoad& part = loads[i].levels[level];
      if (part.recv == 0 && part.send == 0) continue;
      out.push_back({device, static_cast<int32_t>(level), part.recv * element, part.send * element});
    }
  }
  std::sort(out.begin(), out.end(), [](const Load& a, const Load& b) {
    return a.device != b.device ? a.device < b.device : a.level < b.level;
  });
  return out;
}

absl::StatusOr<HolderRotation> HolderRotation::Create(const Step& step, const DeviceList& devices) {
  HolderRotation out;
  // Where a slot table cuts, an index has its own holders.
  if (step.from.slot_dim() || step.to.slot_dim()) return out;
  ASSIGN_OR_RETURN(auto map, ShardMap::Create(step.from));
  const Mesh& mesh = step.from.mesh();
  int64_t shards = 1;
  for (int d = 0; d < map.rank(); ++d) shards *= map.dim(d).num_rows();
  out.holders_ = mesh.size() / shards;
  if (out.holders_ <= 1) return out;
  std::vector<int32_t> filled(static_cast<size_t>(shards), 0);
  out.order_.resize(mesh.size());
  for (int64_t p = 0; p < mesh.size(); ++p) {
    int64_t shard = 0;
    for (int d = 0; d < map.rank(); ++d) shard = shard * map.dim(d).num_rows() + map.Row(p, d);
    const auto at = static_cast<int32_t>(shard * out.holders_ + filled[shard]++);
    out.order_[at] = devices.IndexOf(mesh.Device(p));
    out.place_.emplace(out.order_[at], at);
  }
  return out;
}

int32_t HolderRotation::Moved(int32_t device, int64_t first) const {
  if (holders_ <= 1) return device;
  const int64_t at = place_.at(device);
  const int64_t base = at / holders_ * holders_;
  return order_[base + (at - base + first) % holders_];
}

int64_t HolderRotation::Period(const std::vector<Load>& loads) const {
  if (holders_ <= 1) return 1;
  std::vector<int64_t> sent(order_.size(), 0);
  for (const Load& load : loads) {
    if (load.send > 0) sent[place_.at(load.device)] += load.send;
  }
  const auto h = static_cast<size_t>(holders_);
  const auto unchanged_by = [&](size_t first) {
    for (size_t base = 0; base < sent.size(); base += h) {
      for (size_t i = 0; i < h; ++i) {
        if (sent[base + (i + first) % h] != sent[base + i]) return false;
      }
    }
    return true;
  };
  for (size_t first = 1; first < h; ++first) {
    if (h % first == 0 && unchanged_by(first)) return static_cast<int64_t>(first);
  }
  return holders_;
}

}  // namespace reshard::batch
