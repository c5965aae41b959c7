// What the tensors of a bucket do together: their steps merged stage by stage, with the sums of their loads.
#ifndef RESHARD_PLANNER_BATCH_BUCKET_FIGURES_H_
#define RESHARD_PLANNER_BATCH_BUCKET_FIGURES_H_

#include <cstdint>
#include <utility>
#include <vector>

#include "planner/batch/step_loads.h"
#include "reshard/planner/batch.h"

namespace reshard::batch {

// A plan with one choice of first holders, and the loads of its steps.
struct Variant {
  const Plan* plan = nullptr;
  std::vector<std::vector<Load>> steps;
};

// Sums of loads over tensors and steps, by device and level.
class LoadSums {
 public:
  LoadSums(size_t devices, int levels)
      : devices_(devices),
        levels_(static_cast<size_t>(levels)),
        recv_(devices_ * levels_, 0),
        send_(devices_ * levels_, 0) {}

  void Add(const std::vector<Load>& loads, int64_t times);
  void Clear();
  int64_t Recv(size_t device) const { return Sum(recv_, device); }
  int64_t Send(size_t device) const { return Sum(send_, device); }
  // One per level; peers_max is left 0.
  std::vector<LevelFigures> Levels(const Topology& topology) const;

 private:
  int64_t Sum(const std::vector<int64_t>& of, size_t device) const;

  size_t devices_, levels_;
  std::vector<int64_t> recv_, send_;  // by device, then level
};

// `counts`: how many tensors of the bucket have each variant. `scratch` has the batch's devices and levels.
std::vector<BatchStep> MergedSteps(const std::vector<std::pair<const Variant*, int64_t>>& counts,
                                   const Topology& topology, size_t num_devices, LoadSums& scratch);

}  // namespace reshard::batch

#endif  // RESHARD_PLANNER_BATCH_BUCKET_FIGURES_H_
