#include <algorithm>
#include <limits>
#include <memory>
#include <numeric>
#include <optional>
#include <string>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "planner/batch/bucket_figures.h"
#include "planner/batch/first_holders.h"
#include "planner/batch/slot_rows.h"
#include "planner/batch/step_loads.h"
#include "planner/cost/lower_bound.h"
#include "planner/cost/slot_bounds.h"
#include "reshard/layout/checked.h"
#include "reshard/layout/shard_map.h"
#include "reshard/planner/batch.h"
#include "reshard/planner/planner.h"
#include "status/macros.h"
#include "status/no_throw.h"

namespace reshard {
namespace {

using batch::Load;

// State: the batch as far as it is known. Invariant: places in `like_`, `counts_` and out_.plans are the same.
class Batcher {
 public:
  Batcher(absl::Span<const Problem> problems, const BatchOptions& options, std::vector<std::string> names)
      : problems_(problems) {
    out_.options = options;
    out_.names = std::move(names);
  }
  absl::StatusOr<BatchPlan> Make();

 private:
  absl::Status Validate() const;
  absl::Status MakePlans();
  absl::StatusOr<Plan> PlanOne(const Problem& problem, PlanOptions options) const;
  absl::Status PreferFewerBytes();
  void ListDevices();
  absl::Status ChooseHolders();
  absl::Status FindBounds();
  void CutBuckets();
  absl::Status FillBuckets();
  void SumUp(const batch::LoadSums& all, const batch::LoadSums& between);
  absl::StatusOr<const batch::Variant*> VariantOf(const BatchTensor& tensor);
  std::string NameOf(size_t tensor) const {
    return out_.names.empty() || out_.names[tensor].empty() ? absl::StrCat("tensor ", tensor) : out_.names[tensor];
  }

  const absl::Span<const Problem> problems_;
  BatchPlan out_;
  std::vector<int64_t> counts_;  // tensors of each plan
  std::vector<size_t> like_;     // the first plan that moves the same bytes between the same devices; mostly itself
  std::vector<std::vector<batch::Load>> bound_;  // what devices lack, of each plan
  batch::DeviceList devices_;
  std::vector<bool> sends_between_meshes_;  // devices of the meshes that such steps leave
  absl::flat_hash_map<std::pair<int64_t, int64_t>, std::unique_ptr<batch::Variant>> variants_;
};

absl::Status Batcher::Validate() const {
  if (out_.options.bucket_bytes && *out_.options.bucket_bytes < 0) {
    return absl::InvalidArgumentError("the bytes of a bucket are negative");
  }
  if (!out_.names.empty() && out_.names.size() != problems_.size()) {
    return absl::InvalidArgumentError(absl::StrCat(out_.names.size(), " names for ", problems_.size(), " tensors"));
  }
  // No sum of the batch is more than four times all tensors on all devices.
  int64_t total = 0;
  for (size_t t = 0; t < problems_.size(); ++t) {
    const Problem& problem = problems_[t];
    auto bytes = CheckedMul(problem.source.num_elements(), 4 * SizeOf(problem.dtype));
    if (bytes) bytes = CheckedMul(*bytes, problem.source.mesh().size() + problem.target.mesh().size());
    if (bytes) bytes = CheckedAdd(total, *bytes);
    if (!bytes) {
      return absl::InvalidArgumentError(absl::StrCat(
          NameOf(t), ": the bytes of the tensors up to here on all devices together do not fit in 64 bits"));
    }
    total = *bytes;
  }
  return absl::OkStatus();
}

// Tensors that share exchanges do not go in chunks.
absl::StatusOr<Plan> Batcher::PlanOne(const Problem& problem, PlanOptions options) const {
  const bool overlap = options.overlap;
  options.overlap = overlap && problems_.size() == 1;
  ASSIGN_OR_RETURN(Plan plan, MakePlan(problem, options));
  plan.options.overlap = overlap;
  return plan;
}

absl::Status Batcher::MakePlans() {
  absl::flat_hash_map<Problem, int64_t> plan_of;
  absl::flat_hash_map<batch::SlotRows, size_t> first_of_rows;
  out_.tensors.reserve(problems_.size());
  for (size_t t = 0; t < problems_.size(); ++t) {
    const Problem& problem = problems_[t];
    const size_t p = out_.plans.size();
    const auto [known, added] = plan_of.emplace(problem, static_cast<int64_t>(p));
    if (added) {
      std::optional<batch::SlotRows> rows = batch::SlotRows::Of(problem);
      const size_t like = rows ? first_of_rows.emplace(*std::move(rows), p).first->second : p;
      std::optional<Plan> plan = like == p ? std::nullopt : batch::WithDimsOf(problem, out_.plans[like]);
      like_.push_back(plan ? like : p);
      if (!plan) {
        auto made = PlanOne(problem, out_.options.plan);
        if (!made.ok()) {
          return absl::Status(made.status().code(), absl::StrCat(NameOf(t), ": ", made.status().message()));
        }
        plan = *std::move(made);
      }
      out_.plans.push_back(*std::move(plan));
      counts_.push_back(0);
    }
    out_.tensors.push_back({known->second, 0, 0});
    ++counts_[known->second];
  }
  return absl::OkStatus();
}

// The time of a plan's steps without latencies, and the latencies.
struct TimeParts {
  __int128 transfer = 0;
  __int128 latency = 0;
};

TimeParts TimePartsOf(const Plan& plan) {
  TimeParts out;
  const Topology& topology = plan.options.topology;
  for (const Step& step : plan.steps) {
    int64_t transfer = 0, latency = 0;
    for (size_t i = 0; i < step.levels.size(); ++i) {
      const int level = static_cast<int>(i);
      if (step.levels[i].nic_bytes_max == 0) continue;
      transfer = std::max(transfer,
                          topology.StepTime(level, 0, step.levels[i].nic_bytes_max) - topology.StepTime(level, 0, 0));
      latency = std::max(latency, topology.StepTime(level, step.levels[i].peers_max, 0));
    }
    out.transfer += transfer;
    out.latency += latency;
  }
  return out;
}

// A plan for time may receive more than its bound to save latencies, which a bucket pays once for all its tensors.
// Where the batch is so large that latencies hardly count, a plan with fewer bytes is taken unless its transfers take
// longer.
absl::Status Batcher::PreferFewerBytes() {
  constexpr int kHardly = 20;
  if (out_.options.plan.objective != Objective::kTime) return absl::OkStatus();
  TimeParts batch;
  for (size_t p = 0; p < out_.plans.size(); ++p) {
    const TimeParts parts = TimePartsOf(out_.plans[p]);
    batch.transfer += counts_[p] * parts.transfer;
    batch.latency = std::max(batch.latency, parts.latency);
  }
  if (batch.transfer < kHardly * batch.latency) return absl::OkStatus();
  PlanOptions for_bytes = out_.options.plan;
  for_bytes.objective = Objective::kBytes;
  bool replaced = false;
  for (Plan& plan : out_.plans) {
    if (plan.totals.recv_bytes_total == plan.bounds.recv_bytes_total) continue;
    ASSIGN_OR_RETURN(auto other, PlanOne({plan.source, plan.target, plan.dtype}, for_bytes));
    const bool fewer = other.totals.recv_bytes_max <= plan.totals.recv_bytes_max &&
                       other.totals.recv_bytes_total < plan.totals.recv_bytes_total;
    if (!fewer || TimePartsOf(other).transfer > TimePartsOf(plan).transfer) continue;
    plan = std::move(other);
    replaced = true;
  }
  if (replaced) std::iota(like_.begin(), like_.end(), size_t{0});  // a plan by bytes may be like no other
  return absl::OkStatus();
}

void Batcher::ListDevices() {
  absl::flat_hash_set<Mesh> meshes;
  for (const Plan& plan : out_.plans) {
    meshes.insert(plan.source.mesh());
    meshes.insert(plan.target.mesh());
  }
  for (const Mesh& mesh : meshes) devices_.Add(mesh);
  devices_.Finish();
  sends_between_meshes_.assign(devices_.size(), false);
  for (const Plan& plan : out_.plans) {
    for (const Step& step : plan.steps) {
      const Mesh& mesh = step.from.mesh();
      for (int64_t p = 0; step.crosses_meshes() && p < mesh.size(); ++p) {
        sends_between_meshes_[devices_.IndexOf(mesh.Device(p))] = true;
      }
    }
  }
}

absl::StatusOr<const batch::Variant*> Batcher::VariantOf(const BatchTensor& tensor) {
  const auto known = variants_.find({tensor.plan, tensor.first_holder});
  if (known != variants_.end()) return known->second.get();
  auto variant = std::make_unique<batch::Variant>();
  const Plan& plan = out_.plans[tensor.plan];
  variant->plan = &plan;
  if (const auto like = static_cast<int64_t>(like_[tensor.plan]); like != tensor.plan) {
    ASSIGN_OR_RETURN(const batch::Variant* same, VariantOf({like, tensor.first_holder, 0}));
    variant->steps = same->steps;
  } else {
    transfers::ShardMaps maps({});
    for (Step step : plan.steps) {
      if (step.crosses_meshes()) step.first_holder = tensor.first_holder;
      ASSIGN_OR_RETURN(auto loads, batch::LoadsOf(step, plan.dtype, out_.options.plan.topology, devices_, maps));
      variant->steps.push_back(std::move(loads));
    }
  }
  return variants_.emplace(std::pair(tensor.plan, tensor.first_holder), std::move(variant)).first->second.get();
}

absl::Status Batcher::ChooseHolders() {
  std::vector<batch::HolderChoice> choices;
  for (size_t p = 0; p < out_.plans.size(); ++p) {
    batch::HolderChoice choice{counts_[p], {}};
    ASSIGN_OR_RETURN(auto variant, VariantOf({static_cast<int64_t>(p), 0, 0}));
    for (size_t s = 0; s < out_.plans[p].steps.size(); ++s) {
      const Step& step = out_.plans[p].steps[s];
      if (!step.crosses_meshes()) continue;
      ASSIGN_OR_RETURN(auto rotation, batch::HolderRotation::Create(step, devices_));
      choice.steps.emplace_back(std::move(rotation), variant->steps[s]);
    }
    choices.push_back(std::move(choice));
  }
  const auto chosen = batch::ChooseFirstHolders(choices, devices_.size());
  std::vector<size_t> next(out_.plans.size(), 0);
  for (BatchTensor& tensor : out_.tensors) {
    const auto p = static_cast<size_t>(tensor.plan);
    tensor.first_holder = chosen[p][next[p]++];
  }
  return absl::OkStatus();
}

// What every device lacks. A direct exchange receives exactly that. Where values are reduced, every element of a
// device's target fragment needs at least one contribution from elsewhere.
absl::Status Batcher::FindBounds() {
  const Topology flat = Topology::Flat();
  for (size_t p = 0; p < out_.plans.size(); ++p) {
    const Plan& plan = out_.plans[p];
    std::vector<batch::Load> lacks;
    if (like_[p] != p) {
      lacks = bound_[like_[p]];
    } else if (!cost::ReducedAxes(plan.source, plan.target).empty()) {
      const Mesh& mesh = plan.target.mesh();
      ASSIGN_OR_RETURN(auto map, ShardMap::Create(plan.target));
      for (int64_t q = 0; q < mesh.size(); ++q) {
        lacks.push_back({devices_.IndexOf(mesh.Device(q)), 0, map.LocalElements(q) * SizeOf(plan.dtype), 0});
      }
    } else if (plan.steps.size() == 1) {
      lacks = variants_.at({static_cast<int64_t>(p), 0})->steps[0];
    } else if (const auto slot_dim = cost::SlotDimOf(plan.source, plan.target)) {
      ASSIGN_OR_RETURN(const cost::Lack lack,
                       cost::LackWithSlots(plan.source, plan.target, *slot_dim, [](int64_t device) { return device; }));
      for (const auto& [device, elements] : lack.each) {
        lacks.push_back({devices_.IndexOf(device), 0, elements * SizeOf(plan.dtype), 0});
      }
    } else if (plan.steps.size() > 1) {
      Step direct;
      direct.from = plan.source;
      direct.to = plan.target;
      transfers::ShardMaps maps({});
      ASSIGN_OR_RETURN(auto loads, batch::LoadsOf(direct, plan.dtype, flat, devices_, maps));
      lacks = std::move(loads);
    }
    bound_.push_back(std::move(lacks));
    out_.bounds.recv_bytes_total += counts_[p] * plan.bounds.recv_bytes_total;
  }
  return absl::OkStatus();
}

void Batcher::CutBuckets() {
  const int64_t none = std::numeric_limits<int64_t>::max();
  const int64_t most_bytes = out_.options.bucket_bytes.value_or(none);
  const int64_t most_peak = out_.options.plan.memory_limit_bytes.value_or(none);
  std::vector<int64_t> bytes_of;
  for (const Plan& plan : out_.plans) {
    int64_t bytes = 0;
    for (const Step& step : plan.steps) {
      bytes = std::max(bytes, step.local_bytes_before_max + step.local_bytes_after_max);
    }
    bytes_of.push_back(bytes);
  }
  for (size_t t = 0; t < out_.tensors.size(); ++t) {
    const auto p = static_cast<size_t>(out_.tensors[t].plan);
    const int64_t peak = out_.plans[p].totals.peak_bytes;
    if (out_.buckets.empty() || out_.buckets.back().bytes > most_bytes - bytes_of[p] ||
        out_.buckets.back().peak_bytes > most_peak - peak) {
      out_.buckets.push_back({static_cast<int64_t>(t), 0, 0, 0, 0, {}});
    }
    BatchBucket& bucket = out_.buckets.back();
    ++bucket.count;
    bucket.bytes += bytes_of[p];
    bucket.peak_bytes += peak;
    out_.tensors[t].bucket = static_cast<int64_t>(out_.buckets.size()) - 1;
  }
}

absl::Status Batcher::FillBuckets() {
  const Topology& topology = out_.options.plan.topology;
  const int levels = topology.num_levels();
  batch::LoadSums all(devices_.size(), levels), between = all, scratch = all;
  absl::flat_hash_map<const batch::Variant*, size_t> places;
  for (BatchBucket& bucket : out_.buckets) {
    std::vector<std::pair<const batch::Variant*, int64_t>> counts;
    places.clear();
    for (int64_t t = bucket.first; t < bucket.first + bucket.count; ++t) {
      ASSIGN_OR_RETURN(auto variant, VariantOf(out_.tensors[t]));
      const auto [it, added] = places.emplace(variant, counts.size());
      if (added) counts.emplace_back(variant, 0);
      ++counts[it->second].second;
    }
    for (const auto& [variant, count] : counts) {
      for (size_t s = 0; s < variant->steps.size(); ++s) {
        all.Add(variant->steps[s], count);
        if (variant->plan->steps[s].crosses_meshes()) between.Add(variant->steps[s], count);
      }
    }
    bucket.steps = batch::MergedSteps(counts, topology, devices_.size(), scratch);
    constexpr int64_t kMostTime = std::numeric_limits<int64_t>::max() / 2;
    for (const BatchStep& step : bucket.steps) bucket.time_ns = std::min(bucket.time_ns + step.time_ns, kMostTime);
    // A tensor by itself may go in chunks.
    if (out_.tensors.size() == 1) bucket.time_ns = out_.plans[0].totals.time_ns;
    out_.totals.time_ns = std::min(out_.totals.time_ns + bucket.time_ns, kMostTime);
    out_.totals.peak_bytes = std::max(out_.totals.peak_bytes, bucket.peak_bytes);
  }
  SumUp(all, between);
  return absl::OkStatus();
}

void Batcher::SumUp(const batch::LoadSums& all, const batch::LoadSums& between) {
  batch::LoadSums lacks(devices_.size(), 1);
  for (size_t p = 0; p < out_.plans.size(); ++p) {
    for (batch::Load load : bound_[p]) {
      load.level = 0;
      lacks.Add({load}, counts_[p]);
    }
  }
  BatchTotals& totals = out_.totals;
  int64_t senders = 0, sent = 0, sent_between = 0;
  for (size_t d = 0; d < devices_.size(); ++d) {
    const BatchDevice device{devices_.id(d), all.Recv(d), all.Send(d), between.Send(d), lacks.Recv(d)};
    totals.recv_bytes_max = std::max(totals.recv_bytes_max, device.recv);
    totals.recv_bytes_total += device.recv;
    totals.send_bytes_max = std::max(totals.send_bytes_max, device.send);
    totals.send_between_meshes_max = std::max(totals.send_between_meshes_max, device.send_between_meshes);
    sent += device.send;
    sent_between += device.send_between_meshes;
    senders += sends_between_meshes_[d] ? 1 : 0;
    out_.bounds.recv_bytes_max = std::max(out_.bounds.recv_bytes_max, device.recv_bound);
    out_.devices.push_back(device);
  }
  const auto count = static_cast<int64_t>(devices_.size());
  if (count > 0) {
    out_.bounds.recv_bytes_max = std::max(out_.bounds.recv_bytes_max, CeilDiv(out_.bounds.recv_bytes_total, count));
    totals.send_bytes_mean = static_cast<double>(sent) / static_cast<double>(count);
  }
  if (senders > 0) totals.send_between_meshes_mean = static_cast<double>(sent_between) / static_cast<double>(senders);
  if (sent_between > 0) {
    totals.send_imbalance = static_cast<double>(totals.send_between_meshes_max) / totals.send_between_meshes_mean;
  } else if (sent > 0) {
    totals.send_imbalance = static_cast<double>(totals.send_bytes_max) / totals.send_bytes_mean;
  }
  totals.levels = all.Levels(out_.options.plan.topology);
  for (const BatchBucket& bucket : out_.buckets) {
    for (const BatchStep& step : bucket.steps) {
      for (size_t level = 0; level < totals.levels.size(); ++level) {
        int64_t& peers = totals.levels[level].peers_max;
        peers = std::max(peers, step.levels[level].peers_max);
      }
    }
  }
}

absl::StatusOr<BatchPlan> Batcher::Make() {
  RETURN_IF_ERROR(Validate());
  RETURN_IF_ERROR(MakePlans());
  RETURN_IF_ERROR(PreferFewerBytes());
  ListDevices();
  RETURN_IF_ERROR(ChooseHolders());
  RETURN_IF_ERROR(FindBounds());
  CutBuckets();
  RETURN_IF_ERROR(FillBuckets());
  return std::move(out_);
}

}  // namespace

Plan BatchPlan::PlanOf(int64_t tensor) const {
  const BatchTensor& which = tensors[tensor];
  Plan out = plans[which.plan];
  for (Step& step : out.steps) {
    if (step.crosses_meshes()) step.first_holder = which.first_holder;
  }
  return out;
}

absl::StatusOr<BatchPlan> PlanBatch(absl::Span<const Problem> problems, const BatchOptions& options,
                                    std::vector<std::string> names) {
  return status::NoThrow("planning a batch", [&] { return Batcher(problems, options, std::move(names)).Make(); });
}

}  // namespace reshard
