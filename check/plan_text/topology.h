// The levels of links as a plan has them, and the time that they cost: the same formula as in
// include/reshard/planner/topology.h, implemented independently.
#ifndef RESHARD_CHECK_PLAN_TEXT_TOPOLOGY_H_
#define RESHARD_CHECK_PLAN_TEXT_TOPOLOGY_H_

#include <algorithm>
#include <cstdint>
#include <limits>
#include <vector>

namespace reshard::plan_text {

struct Level {
  int64_t devices = 0;  // ids k*devices .. (k+1)*devices-1 are a domain; 0 on the outermost level
  int64_t bytes_per_second = 50'000'000'000;
  int64_t latency_ns = 5000;
  int64_t nics = 0;  // links that a domain of the next level in has; 0: one per device
};

struct Links {
  std::vector<Level> levels = {Level{}};  // innermost first; the default is the flat network

  int size() const { return static_cast<int>(levels.size()); }
  // The domain of a device at a level; the outermost level is one domain.
  int64_t Domain(int level, int64_t id) const {
    const int64_t devices = levels[level].devices;
    return level + 1 == size() ? 0 : id / devices;
  }
  // The innermost level whose domains hold both.
  int Of(int64_t a, int64_t b) const {
    int level = 0;
    while (level + 1 < size() && Domain(level, a) != Domain(level, b)) ++level;
    return level;
  }
  int64_t DevicesPerLink(int level) const {
    const int64_t nics = levels[level].nics;
    return nics == 0 || level == 0 ? 1 : std::max<int64_t>(1, levels[static_cast<size_t>(level) - 1].devices / nics);
  }
  // Devices that a device meets at a level; 0: not known.
  int64_t Others(int level) const {
    const auto at = static_cast<size_t>(level);
    if (levels[at].devices == 0) return 0;
    return levels[at].devices - (level == 0 ? 1 : levels[at - 1].devices);
  }
  // All bytes flow after two latencies, or the last message is posted and flows by itself: the later of the two. Each
  // round has latencies of its own. Never more than a 1024th of an int64.
  int64_t Time(int level, int64_t peers, int64_t bytes, int64_t rounds) const {
    const Level& link = levels[level];
    constexpr int64_t kMost = std::numeric_limits<int64_t>::max() / 1024;
    const auto flow = [&](__int128 of) {
      return (of * 1'000'000'000 + link.bytes_per_second - 1) / link.bytes_per_second;
    };
    // Each product is cut before the next factor, so that nothing wraps whatever a plan claims.
    const auto latencies = [&](__int128 messages) {
      return std::min<__int128>(messages * rounds, kMost) * link.latency_ns;
    };
    const __int128 all = latencies(std::min<__int128>(static_cast<__int128>(peers) + 1, 2)) + flow(bytes);
    const __int128 each = peers == 0 ? 0 : (static_cast<__int128>(bytes) + peers - 1) / peers;
    const __int128 last = latencies(static_cast<__int128>(peers) + 1) + flow(each);
    return static_cast<int64_t>(std::min<__int128>(std::max(all, last), kMost));
  }
};

}  // namespace reshard::plan_text

#endif  // RESHARD_CHECK_PLAN_TEXT_TOPOLOGY_H_
