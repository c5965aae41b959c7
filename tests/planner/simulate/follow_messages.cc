#include "tests/planner/simulate/follow_messages.h"

#include <algorithm>
#include <map>
#include <set>
#include <tuple>
#include <vector>

#include "reshard/planner/traffic.h"

namespace reshard::testing {
namespace {

struct Packet {
  size_t step;
  int64_t sender, receiver;
  int level;
  int64_t turn;
  double left;
  double rate = 0;
  bool moving = false, done = false;
  std::vector<std::tuple<int, bool, int64_t>> ports;
};

// Bytes by sender and receiver.
using Sent = std::map<std::pair<int64_t, int64_t>, double>;

// What happens at once: a step, or in chunks what the steps do with theirs.
std::vector<Sent> SentAtOnce(const Plan& plan) {
  const auto chunks = static_cast<size_t>(plan.chunks.count);
  std::vector<Sent> out(plan.steps.empty() ? 0 : plan.steps.size() + chunks - 1);
  for (size_t i = 0; i < plan.steps.size(); ++i) {
    const auto transfers = *TransferSchedule::Create(plan.steps[i], plan.options.topology);
    for (const int64_t device : transfers->Devices()) {
      for (const Message& m : transfers->Receives(device)) {
        if (m.sender == device) continue;
        const auto bytes = static_cast<double>(m.elements() * SizeOf(plan.dtype)) / static_cast<double>(chunks);
        for (size_t c = 0; c < chunks; ++c) out[i + c][{m.sender, device}] += bytes;
      }
    }
  }
  return out;
}

std::vector<Packet> PacketsOf(const Plan& plan, const Topology& topology) {
  std::vector<Packet> out;
  const std::vector<Sent> at_once = SentAtOnce(plan);
  for (size_t i = 0; i < at_once.size(); ++i) {
    std::map<std::pair<int64_t, int>, std::vector<int64_t>> receivers;
    std::vector<Packet> step;
    for (const auto& [ends, bytes] : at_once[i]) {
      const auto [sender, receiver] = ends;
      const int level = topology.LevelOf(sender, receiver);
      receivers[{sender, level}].push_back(receiver);
      const int64_t per_nic = topology.DevicesPerNic(level);
      step.push_back({i,
                      sender,
                      receiver,
                      level,
                      0,
                      bytes,
                      0,
                      false,
                      false,
                      {{level, true, sender / per_nic}, {level, false, receiver / per_nic}}});
    }
    for (Packet& p : step) {
      // Receivers in front of this one: in domains sooner reached going up and around, or there at an earlier place.
      const auto away = [&](int64_t r) {
        std::vector<int64_t> digits;
        for (size_t l = topology.levels.size(); l-- > 0;) {
          const int64_t inside = l == 0 ? 1 : topology.levels[l - 1].devices;
          const int64_t around =
              l + 1 == topology.levels.size() ? int64_t{1} << 40 : topology.levels[l].devices / inside;
          const int64_t mine = p.sender / inside % around, its = r / inside % around;
          digits.push_back((its - mine + around) % around);
        }
        return digits;
      };
      for (const int64_t r : receivers[{p.sender, p.level}]) p.turn += away(r) < away(p.receiver);
      out.push_back(p);
    }
  }
  return out;
}

// Raises the rates of all moving packets together until a port is full, again and again.
void Share(std::vector<Packet>& packets, const Topology& topology) {
  std::set<Packet*> open;
  for (Packet& p : packets) {
    p.rate = 0;
    if (p.moving) open.insert(&p);
  }
  while (!open.empty()) {
    std::map<std::tuple<int, bool, int64_t>, std::pair<double, int>> ports;  // used, packets still open
    for (const Packet& p : packets) {
      if (!p.moving) continue;
      for (const auto& port : p.ports) {
        ports[port].first += p.rate;
        ports[port].second += open.count(const_cast<Packet*>(&p)) > 0;
      }
    }
    double raise = 1e300;
    const auto room = [&](const auto& entry) {
      const auto level = static_cast<size_t>(std::get<0>(entry.first));
      return static_cast<double>(topology.levels[level].bytes_per_second) / 1e9 - entry.second.first;
    };
    for (const auto& entry : ports) {
      if (entry.second.second > 0) raise = std::min(raise, room(entry) / entry.second.second);
    }
    std::set<std::tuple<int, bool, int64_t>> full;
    for (const auto& entry : ports) {
      if (entry.second.second > 0 && room(entry) / entry.second.second <= raise * (1 + 1e-9)) full.insert(entry.first);
    }
    for (Packet* p : std::set<Packet*>(open)) {
      p->rate += raise;
      if (full.count(p->ports[0]) + full.count(p->ports[1]) > 0) open.erase(p);
    }
  }
}

}  // namespace

double FollowMessages(const Plan& plan, const Topology& topology) {
  std::vector<Packet> packets = PacketsOf(plan, topology);
  double now = 0;
  // When a device has ended all steps before `step`; -1 while it has not.
  std::map<int64_t, std::map<size_t, double>> ended;  // device, step: when its last packet of it ended
  const auto entered = [&](int64_t device, size_t step) {
    double at = 0;
    for (const Packet& p : packets) {
      if ((p.sender == device || p.receiver == device) && p.step < step) {
        if (!p.done) return -1.0;
        at = std::max(at, ended[device][p.step]);
      }
    }
    return at;
  };
  for (;;) {
    double next = 1e300;
    std::vector<Packet*> starting;
    for (Packet& p : packets) {
      if (p.done) continue;
      if (p.moving) {
        next = std::min(next, now + p.left / p.rate);
        continue;
      }
      const double sender = entered(p.sender, p.step), receiver = entered(p.receiver, p.step);
      if (sender < 0 || receiver < 0) continue;
      const auto latency = static_cast<double>(topology.levels[p.level].latency_ns);
      const double start = std::max(sender + latency * static_cast<double>(2 + p.turn), receiver);
      next = std::min(next, std::max(start, now));
      if (start <= now + 1e-7) starting.push_back(&p);
    }
    if (next == 1e300) return now;
    if (!starting.empty()) next = now;
    for (Packet& p : packets) {
      if (!p.moving) continue;
      p.left -= p.rate * (next - now);
      if (p.left <= 1e-6) {
        p.moving = false;
        p.done = true;
        ended[p.sender][p.step] = ended[p.receiver][p.step] = next;
      }
    }
    now = next;
    for (Packet* p : starting) p->moving = true;
    Share(packets, topology);
  }
}

}  // namespace reshard::testing
