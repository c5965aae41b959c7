#include "planner/cost/choose_chunks.h"

#include <algorithm>
#include <numeric>

#include "reshard/layout/checked.h"

namespace reshard::cost {
namespace {

// More would hardly be faster, and every turn is an exchange with its messages.
constexpr int64_t kMostChunks = 64;

// The largest block along each dimension that no layout of the chain cuts; 0: none.
std::vector<int64_t> BlocksOf(const std::vector<Step>& steps) {
  std::vector<int64_t> blocks;
  for (int d = 0; d < steps[0].from.rank(); ++d) {
    int64_t block = LargestBlock(steps[0].from, d);
    for (const Step& step : steps) {
      const int64_t next = LargestBlock(step.to, d);
      block = block == 0 || next == 0 ? 0 : std::gcd(block, next);
    }
    blocks.push_back(block);
  }
  return blocks;
}

// Devices that a device meets at a level; 0: not known.
int64_t OthersAt(const Topology& topology, int level) {
  const auto devices = [&](int of) { return of < 0 ? 1 : topology.levels[of].devices; };
  return devices(level) == 0 ? 0 : devices(level) - devices(level - 1);
}

// A turn is one exchange, and an AllReduce takes two.
bool CanBeCut(const std::vector<Step>& steps) {
  const auto halves = [](const Step& step) { return step.op == Op::kAllReduce; };
  const auto moves = [](const Step& step) { return step.op != Op::kSlice; };
  return std::none_of(steps.begin(), steps.end(), halves) && std::count_if(steps.begin(), steps.end(), moves) > 1;
}

}  // namespace

int64_t TimeInChunks(const std::vector<Step>& steps, const Topology& topology, int64_t count) {
  const Chunks chunks{count};
  const auto last_step = static_cast<int64_t>(steps.size()) - 1;
  int64_t time = 0;
  for (int64_t turn = 0; turn < chunks.Turns(last_step + 1); ++turn) {
    const Interval at_work = chunks.StepsIn(turn, last_step + 1);
    int64_t longest = 0;
    bool moves = false;
    for (int level = 0; level < topology.num_levels(); ++level) {
      int64_t bytes = 0, peers = 0;
      for (int64_t s = at_work.begin; s < at_work.end; ++s) {
        const Step& step = steps[s];
        const LevelFigures& figures = step.levels[level];
        moves |= step.op != Op::kSlice;
        if (figures.nic_bytes_max == 0) continue;
        bytes += CeilDiv(figures.nic_bytes_max, count);
        peers += figures.peers_max;
      }
      // What several steps send to one device is one message.
      const int64_t others = OthersAt(topology, level);
      if (others > 0) peers = std::min(peers, others);
      if (bytes > 0) longest = std::max(longest, topology.StepTime(level, peers, bytes));
    }
    if (longest == 0 && moves) longest = topology.StepTime(0, 0, 0);
    // The turns in which all steps are at work are alike.
    const int64_t alike = turn == last_step ? std::max<int64_t>(1, count - last_step) : 1;
    time += alike * longest;
    turn += alike - 1;
  }
  return time;
}

std::optional<ChosenChunks> ChooseChunks(const std::vector<Step>& steps, const Topology& topology,
                                         std::optional<int64_t> limit, const std::function<int64_t(int64_t)>& peak) {
  if (topology.num_levels() < 2 || !CanBeCut(steps)) return std::nullopt;
  const std::vector<int64_t> blocks = BlocksOf(steps);
  std::optional<ChosenChunks> best;
  for (int64_t count = 2; count <= kMostChunks; ++count) {
    // Along an outer dimension, a chunk's part of a fragment lies in longer runs.
    const auto divisible = [count](int64_t block) { return block > 0 && block % count == 0; };
    const auto dim = std::find_if(blocks.begin(), blocks.end(), divisible);
    if (dim == blocks.end()) continue;
    const int64_t time = TimeInChunks(steps, topology, count);
    if (best && best->time_ns <= time) continue;
    const int64_t bytes = peak(count);
    if (limit && bytes > *limit) continue;
    best = {{count, static_cast<int>(dim - blocks.begin()), *dim}, time, bytes};
  }
  return best;
}

}  // namespace reshard::cost
