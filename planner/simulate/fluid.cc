#include "planner/simulate/fluid.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <queue>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace reshard::simulate {
namespace {

using Wide = __int128;

// Rates are counted in 1/65536 bytes a second, work in what flows in a nanosecond at such a rate: rounding a fair share
// down then costs less than a nanosecond in any transfer that this could price.
constexpr Wide kRateUnit = 65536;
constexpr Wide kWorkUnit = kRateUnit * 1'000'000'000;
// Flow classes looked at, over all events: some ten seconds.
constexpr int64_t kMostWork = int64_t{2} << 30;

class Fluid {
 public:
  Fluid(const ClassedFlows& flows, const Topology& topology) : in_(flows), topology_(topology) {}

  absl::StatusOr<FluidTimes> Run() {
    Prepare();
    while (!starts_.empty() || !active_.empty()) {
      if (work_ > kMostWork) {
        return absl::ResourceExhaustedError(absl::StrCat("too many different messages to follow: ", in_.flows.size(),
                                                         " classes; simulate fewer devices"));
      }
      Advance(NextEvent());
    }
    return std::move(out_);
  }

 private:
  struct Moving {
    int32_t flow = 0;
    Wide left = 0;
    Wide rate = 0;
  };
  struct Colour {
    std::vector<int32_t> phases;   // in which it sends or receives
    size_t next = 0;               // index of the phase it is in
    std::vector<int32_t> waiting;  // by that index: flow classes that have not ended
  };
  struct Port {
    Wide free = 0;
    int64_t users = 0;
    std::vector<int32_t> moving;  // indices into active_
  };

  void Prepare() {
    out_.phases.assign(static_cast<size_t>(in_.num_phases), {-1, 0});
    out_.port_busy_ns.assign(in_.ports.size(), 0);
    ports_.resize(in_.ports.size());
    colours_.resize(in_.num_colours);
    by_phase_.resize(in_.num_phases);
    entered_.assign(colours_.size(), {});
    std::vector<std::vector<int32_t>> phases(colours_.size());
    for (size_t f = 0; f < in_.flows.size(); ++f) {
      const FlowClass& flow = in_.flows[f];
      by_phase_[flow.phase].push_back(static_cast<int32_t>(f));
      phases[flow.sender].push_back(flow.phase);
      if (flow.receiver != flow.sender) phases[flow.receiver].push_back(flow.phase);
    }
    for (size_t c = 0; c < colours_.size(); ++c) {
      std::sort(phases[c].begin(), phases[c].end());
      for (const int32_t phase : phases[c]) {
        if (colours_[c].phases.empty() || colours_[c].phases.back() != phase) {
          colours_[c].phases.push_back(phase);
          colours_[c].waiting.push_back(0);
        }
        ++colours_[c].waiting.back();
      }
      entered_[c].assign(colours_[c].phases.size(), -1);
    }
    for (size_t c = 0; c < colours_.size(); ++c) Enter(static_cast<int32_t>(c));
  }

  // When the colour entered the phase; -1: not yet.
  Wide Entered(int32_t colour, int32_t phase) const {
    const Colour& c = colours_[colour];
    const auto at = std::lower_bound(c.phases.begin(), c.phases.end(), phase) - c.phases.begin();
    return entered_[colour][at];
  }

  void Enter(int32_t colour) {
    const Colour& c = colours_[colour];
    if (c.next == c.phases.size()) return;
    const int32_t phase = c.phases[c.next];
    entered_[colour][c.next] = now_;
    PhaseTime& times = out_.phases[phase];
    if (times.begin_ns < 0) times.begin_ns = Printed(now_);
    work_ += static_cast<int64_t>(by_phase_[phase].size());
    for (const int32_t f : by_phase_[phase]) {
      const FlowClass& flow = in_.flows[f];
      if (flow.sender != colour && flow.receiver != colour) continue;
      const Wide sender = Entered(flow.sender, phase), receiver = Entered(flow.receiver, phase);
      if (sender < 0 || receiver < 0) continue;
      const Wide latency = topology_.levels[flow.level].latency_ns;
      starts_.push({std::max(sender + latency * (2 + flow.turn), receiver), f});
    }
  }

  Wide NextEvent() {
    Wide next = starts_.empty() ? -1 : starts_.top().first;
    for (const Moving& m : active_) {
      const Wide end = now_ + (m.left + m.rate - 1) / m.rate;
      if (next < 0 || end < next) next = end;
    }
    work_ += static_cast<int64_t>(active_.size()) + 1;
    return next;
  }

  void Advance(Wide to) {
    const Wide passed = to - now_;
    now_ = to;
    for (size_t p = 0; p < ports_.size(); ++p) {
      if (!ports_[p].moving.empty()) busy(p) = Printed(Wide{busy(p)} + passed);
    }
    std::vector<int32_t> ended;
    size_t kept = 0;
    for (Moving& m : active_) {
      m.left -= m.rate * passed;
      if (m.left > 0) {
        active_[kept++] = m;
      } else {
        ended.push_back(m.flow);
      }
    }
    active_.resize(kept);
    for (const int32_t f : ended) {
      const FlowClass& flow = in_.flows[f];
      out_.phases[flow.phase].end_ns = Printed(now_);
      Ended(flow.sender);
      if (flow.receiver != flow.sender) Ended(flow.receiver);
    }
    while (!starts_.empty() && starts_.top().first <= now_) {
      const int32_t f = starts_.top().second;
      starts_.pop();
      active_.push_back({f, in_.flows[f].bytes * kWorkUnit, 0});
    }
    ShareFairly();
  }

  void Ended(int32_t colour) {
    Colour& c = colours_[colour];
    if (--c.waiting[c.next] > 0) return;
    ++c.next;
    Enter(colour);
  }

  // Max-min fair: the port with the least for each of its flows decides their rate; what is left goes to the others.
  void ShareFairly() {
    for (size_t p = 0; p < ports_.size(); ++p) {
      ports_[p].free = Wide{topology_.levels[in_.ports[p].level].bytes_per_second} * kRateUnit;
      ports_[p].users = 0;
      ports_[p].moving.clear();
    }
    for (size_t i = 0; i < active_.size(); ++i) {
      const FlowClass& flow = FlowOf(i);
      active_[i].rate = 0;
      Port& out = ports_[flow.out_port];
      Port& in = ports_[flow.in_port];
      out.users += flow.out_flows;
      in.users += flow.in_flows;
      out.moving.push_back(static_cast<int32_t>(i));
      in.moving.push_back(static_cast<int32_t>(i));
    }
    std::vector<int32_t> open;
    for (size_t p = 0; p < ports_.size(); ++p) {
      if (ports_[p].users > 0) open.push_back(static_cast<int32_t>(p));
    }
    while (!open.empty()) {
      const Port* least = nullptr;
      for (const int32_t p : open) {
        const Port& port = ports_[p];
        if (least == nullptr || port.free * least->users < least->free * port.users) least = &port;
      }
      const Wide free = least->free;
      const int64_t users = least->users;
      std::vector<int32_t> full;
      for (const int32_t p : open) {
        const Port& port = ports_[p];
        if (port.free * users == free * port.users) full.push_back(p);
      }
      // Never zero, however many share a slow port: every flow ends.
      const Wide rate = std::max<Wide>(1, free / users);
      for (const int32_t p : full) {
        for (const int32_t i : ports_[p].moving) Freeze(static_cast<size_t>(i), rate);
      }
      std::erase_if(open, [&](int32_t p) { return ports_[p].users == 0; });
      work_ += static_cast<int64_t>(open.size() + full.size());
    }
    work_ += static_cast<int64_t>(active_.size() + ports_.size());
  }

  void Freeze(size_t i, Wide rate) {
    if (active_[i].rate > 0) return;
    active_[i].rate = rate;
    const FlowClass& flow = FlowOf(i);
    for (const auto& [port, flows] :
         {std::pair(flow.out_port, flow.out_flows), std::pair(flow.in_port, flow.in_flows)}) {
      ports_[port].users -= flows;
      ports_[port].free -= std::min(ports_[port].free, rate * flows);
    }
  }

  const FlowClass& FlowOf(size_t i) const { return in_.flows[active_[i].flow]; }
  int64_t& busy(size_t port) { return out_.port_busy_ns[port]; }
  // Sums and products of times with small numbers must not wrap either.
  static int64_t Printed(Wide time) {
    return static_cast<int64_t>(std::min<Wide>(time, std::numeric_limits<int64_t>::max() / 1024));
  }

  const ClassedFlows& in_;
  const Topology& topology_;
  FluidTimes out_;
  Wide now_ = 0;
  int64_t work_ = 0;
  std::vector<Colour> colours_;
  std::vector<std::vector<Wide>> entered_;      // by colour and index of its phases
  std::vector<std::vector<int32_t>> by_phase_;  // flow classes
  std::vector<Port> ports_;
  std::vector<Moving> active_;
  std::priority_queue<std::pair<Wide, int32_t>, std::vector<std::pair<Wide, int32_t>>, std::greater<>> starts_;
};

}  // namespace

absl::StatusOr<FluidTimes> Follow(const ClassedFlows& flows, const Topology& topology) {
  return Fluid(flows, topology).Run();
}

}  // namespace reshard::simulate
