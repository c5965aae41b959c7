#include "planner/batch/bucket_figures.h"

#include <algorithm>

namespace reshard::batch {
namespace {

bool SameGroups(const Step& a, const Step& b) {
  return a.op == b.op && !a.crosses_meshes() && a.from.mesh() == b.from.mesh() && a.axes == b.axes;
}

// Moves share one exchange; a reduction is shared with those of the same op over the same groups.
bool ShareExchange(const Step& a, const Step& b) { return Reduces(a.op) ? SameGroups(a, b) : !Reduces(b.op); }

}  // namespace

void LoadSums::Add(const std::vector<Load>& loads, int64_t times) {
  for (const Load& load : loads) {
    const size_t at = static_cast<size_t>(load.device) * levels_ + static_cast<size_t>(load.level);
    recv_[at] += times * load.recv;
    send_[at] += times * load.send;
  }
}

void LoadSums::Clear() {
  std::fill(recv_.begin(), recv_.end(), 0);
  std::fill(send_.begin(), send_.end(), 0);
}

int64_t LoadSums::Sum(const std::vector<int64_t>& of, size_t device) const {
  int64_t out = 0;
  for (size_t level = 0; level < levels_; ++level) out += of[device * levels_ + level];
  return out;
}

std::vector<LevelFigures> LoadSums::Levels(const Topology& topology) const {
  std::vector<LevelFigures> out(levels_);
  for (size_t device = 0; device < devices_; ++device) {
    for (size_t level = 0; level < levels_; ++level) {
      const size_t at = device * levels_ + level;
      out[level].recv_bytes_max = std::max(out[level].recv_bytes_max, recv_[at]);
      out[level].send_bytes_max = std::max(out[level].send_bytes_max, send_[at]);
      out[level].recv_bytes_total += recv_[at];
    }
  }
  for (size_t level = 0; level < levels_; ++level) {
    out[level].nic_bytes_max = std::max(out[level].recv_bytes_max, out[level].send_bytes_max) *
                               topology.DevicesPerNic(static_cast<int>(level));
  }
  return out;
}

std::vector<BatchStep> MergedSteps(const std::vector<std::pair<const Variant*, int64_t>>& counts,
                                   const Topology& topology, size_t num_devices, LoadSums& scratch) {
  std::vector<BatchStep> out;
  size_t stages = 0;
  for (const auto& [variant, count] : counts) stages = std::max(stages, variant->plan->steps.size());
  for (size_t stage = 0; stage < stages; ++stage) {
    std::vector<bool> done(counts.size(), false);
    for (size_t i = 0; i < counts.size(); ++i) {
      if (done[i] || stage >= counts[i].first->plan->steps.size()) continue;
      const Step& first = counts[i].first->plan->steps[stage];
      BatchStep merged;
      merged.op = first.op;
      merged.stage = static_cast<int64_t>(stage);
      scratch.Clear();
      int64_t rounds = 1;
      std::vector<int64_t> peers(static_cast<size_t>(topology.num_levels()), 0);
      for (size_t k = i; k < counts.size(); ++k) {
        const auto& [variant, count] = counts[k];
        if (done[k] || stage >= variant->plan->steps.size()) continue;
        const Step& step = variant->plan->steps[stage];
        if (!ShareExchange(first, step)) continue;
        done[k] = true;
        if (step.op != merged.op || (!(step.from.mesh() == first.from.mesh()) || step.axes != first.axes)) {
          merged.op = Op::kExchange;
        }
        merged.tensors += count;
        merged.peers_max = std::max(merged.peers_max, step.peers_max);
        rounds = std::max(rounds, step.rounds);
        for (size_t level = 0; level < peers.size(); ++level) {
          peers[level] =
              std::max(peers[level], level < step.levels.size() ? step.levels[level].peers_max : step.peers_max);
        }
        scratch.Add(variant->steps[stage], count);
      }
      merged.levels = scratch.Levels(topology);
      for (size_t device = 0; device < num_devices; ++device) {
        const int64_t recv = scratch.Recv(device);
        merged.recv_bytes_max = std::max(merged.recv_bytes_max, recv);
        merged.recv_bytes_total += recv;
        merged.send_bytes_max = std::max(merged.send_bytes_max, scratch.Send(device));
      }
      for (size_t level = 0; level < peers.size(); ++level) {
        LevelFigures& figures = merged.levels[level];
        if (figures.nic_bytes_max == 0) continue;
        figures.peers_max = peers[level];
        merged.time_ns = std::max(
            merged.time_ns, topology.StepTime(static_cast<int>(level), peers[level], figures.nic_bytes_max, rounds));
      }
      out.push_back(std::move(merged));
    }
  }
  return out;
}

}  // namespace reshard::batch
