#include "planner/batch/first_holders.h"

#include <algorithm>
#include <numeric>
#include <tuple>

#include "reshard/layout/mesh.h"

namespace reshard::batch {
namespace {

// Choices looked at for one tensor; more would cost time and gain little.
constexpr int64_t kMostCandidates = 64;

// How many different first holders there are.
int64_t PeriodOf(const HolderChoice& plan) {
  int64_t period = 1;
  for (const auto& [rotation, loads] : plan.steps) period = std::lcm(period, rotation.Period(loads));
  return std::min(period, kMaxDevices);
}

int64_t LargestSend(const HolderChoice& plan) {
  int64_t out = 0;
  for (const auto& [rotation, loads] : plan.steps) {
    for (const Load& load : loads) out = std::max(out, load.send);
  }
  return out;
}

void Send(const HolderChoice& plan, int64_t first, int64_t times, std::vector<int64_t>& sent) {
  for (const auto& [rotation, loads] : plan.steps) {
    for (const Load& load : loads) {
      if (load.send > 0) sent[rotation.Moved(load.device, first)] += times * load.send;
    }
  }
}

// The busiest sender that a tensor would touch, and how much those it touches have sent already.
std::pair<int64_t, int64_t> Cost(const HolderChoice& plan, int64_t first, const std::vector<int64_t>& sent) {
  int64_t busiest = 0, before = 0;
  for (const auto& [rotation, loads] : plan.steps) {
    for (const Load& load : loads) {
      if (load.send == 0) continue;
      const int64_t so_far = sent[rotation.Moved(load.device, first)];
      busiest = std::max(busiest, so_far + load.send);
      before += so_far / static_cast<int64_t>(loads.size());  // a mean: sums of sums must not wrap
    }
  }
  return {busiest, before};
}

}  // namespace

std::vector<std::vector<int64_t>> ChooseFirstHolders(absl::Span<const HolderChoice> plans, size_t num_devices) {
  std::vector<std::vector<int64_t>> out(plans.size());
  std::vector<int64_t> sent(num_devices, 0), periods;
  for (size_t i = 0; i < plans.size(); ++i) {
    periods.push_back(PeriodOf(plans[i]));
    const int64_t cycles = plans[i].tensors / periods[i];
    for (int64_t first = 0; cycles > 0 && first < periods[i]; ++first) Send(plans[i], first, cycles, sent);
    for (int64_t t = 0; t < cycles * periods[i]; ++t) out[i].push_back(t % periods[i]);
  }
  std::vector<size_t> order(plans.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return LargestSend(plans[a]) > LargestSend(plans[b]); });
  for (size_t i : order) {
    const int64_t candidates = std::min(periods[i], kMostCandidates);
    const int64_t stride = (periods[i] + candidates - 1) / candidates;
    for (int64_t t = 0; static_cast<int64_t>(out[i].size()) < plans[i].tensors; ++t) {
      // (busiest, before, first holder)
      std::tuple<int64_t, int64_t, int64_t> best;
      for (int64_t c = 0; c < candidates; ++c) {
        const int64_t first = (t + c * stride) % periods[i];
        const auto [busiest, before] = Cost(plans[i], first, sent);
        if (c == 0 || std::tuple(busiest, before, first) < best) best = {busiest, before, first};
      }
      out[i].push_back(std::get<2>(best));
      Send(plans[i], std::get<2>(best), 1, sent);
    }
  }
  return out;
}

}  // namespace reshard::batch
