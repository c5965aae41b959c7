#include "planner/simulate/classes.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <tuple>
#include <utility>

namespace reshard::simulate {
namespace {

// A sum of two independent hashes of each member: equal for equal multisets, and 128 bits apart otherwise.
struct Sum {
  uint64_t a = 0;
  uint64_t b = 0;
  auto operator<=>(const Sum&) const = default;  // NOLINT(modernize-use-nullptr): taken for a 0

  static uint64_t Mix(uint64_t x) {
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
  }
  void Add(uint64_t x, uint64_t y, uint64_t z) {
    a += Mix(Mix(Mix(x + 0x9e3779b97f4a7c15u) + y) + z);
    b += Mix(Mix(Mix(x + 0xd1b54a32d192ed03u) ^ y * 0xaef17502108ef2d9u) ^ z);
  }
};

// Replaces values by their rank among the distinct ones; returns how many there are.
template <typename T>
int32_t Rank(const std::vector<T>& values, std::vector<int32_t>& ranks) {
  std::vector<T> distinct = values;
  std::sort(distinct.begin(), distinct.end());
  distinct.erase(std::unique(distinct.begin(), distinct.end()), distinct.end());
  ranks.resize(values.size());
  for (size_t i = 0; i < values.size(); ++i) {
    ranks[i] = static_cast<int32_t>(std::lower_bound(distinct.begin(), distinct.end(), values[i]) - distinct.begin());
  }
  return static_cast<int32_t>(distinct.size());
}

class Classifier {
 public:
  Classifier(const FlowList& list, const Topology& topology) : list_(list), topology_(topology) {}

  ClassedFlows Run() {
    RankKinds();
    Refine();
    NamePorts();
    Group();
    return std::move(out_);
  }

 private:
  size_t num_devices() const { return list_.devices.size(); }

  // What can be seen of a flow without looking at its devices.
  void RankKinds() {
    std::vector<std::tuple<int32_t, int32_t, int32_t, int64_t>> kinds;
    kinds.reserve(list_.flows.size());
    for (const Flow& flow : list_.flows) kinds.emplace_back(flow.phase, flow.level, flow.turn, flow.bytes);
    Rank(kinds, kind_);
  }

  // What the devices of each link of `level` look like together.
  std::map<int64_t, Sum> LinkSums(int level) const {
    std::map<int64_t, Sum> sums;
    for (size_t d = 0; d < num_devices(); ++d) {
      sums[list_.devices[d] / topology_.DevicesPerNic(level)].Add(static_cast<uint64_t>(colour_[d]), 0, 0);
    }
    return sums;
  }

  void Refine() {
    colour_.assign(num_devices(), 0);
    int32_t colours = 1;
    for (;;) {
      std::vector<std::pair<int32_t, Sum>> seen(num_devices());
      for (size_t d = 0; d < num_devices(); ++d) seen[d].first = colour_[d];
      for (size_t f = 0; f < list_.flows.size(); ++f) {
        const auto s = static_cast<size_t>(list_.flows[f].sender), r = static_cast<size_t>(list_.flows[f].receiver);
        const auto kind = static_cast<uint64_t>(kind_[f]);
        seen[s].second.Add(kind, static_cast<uint64_t>(colour_[r]), 1);
        seen[r].second.Add(kind, static_cast<uint64_t>(colour_[s]), 2);
      }
      for (int level = 0; level < topology_.num_levels(); ++level) {
        if (topology_.DevicesPerNic(level) == 1) continue;
        const auto links = LinkSums(level);
        for (size_t d = 0; d < num_devices(); ++d) {
          const Sum& link = links.at(list_.devices[d] / topology_.DevicesPerNic(level));
          seen[d].second.Add(link.a, link.b, 3 + static_cast<uint64_t>(level));
        }
      }
      const int32_t refined = Rank(seen, colour_);
      if (refined == colours) break;
      colours = refined;
    }
    out_.num_colours = colours;
    out_.num_phases = static_cast<int32_t>(list_.phases.size());
  }

  // Links whose devices have the same colours are of one class; the first of each stands for all.
  void NamePorts() {
    std::map<std::tuple<int, bool, Sum>, int32_t> classes;
    links_.resize(topology_.num_levels());
    for (int level = 0; level < topology_.num_levels(); ++level) {
      for (const auto& [link, sum] : LinkSums(level)) {
        auto& ports = links_[level][link];
        for (const bool out : {false, true}) {
          const auto [it, added] = classes.emplace(std::make_tuple(level, out, sum), out_.ports.size());
          if (added) {
            const auto first =
                std::lower_bound(list_.devices.begin(), list_.devices.end(), link * topology_.DevicesPerNic(level));
            out_.ports.push_back({level, out, *first, 0});
          }
          (out ? ports.out : ports.in) = it->second;
          (out ? ports.first_out : ports.first_in) = added;
        }
      }
    }
  }

  void Group() {
    std::vector<std::tuple<int32_t, int32_t, int32_t>> looks;
    looks.reserve(list_.flows.size());
    for (size_t f = 0; f < list_.flows.size(); ++f) {
      const Flow& flow = list_.flows[f];
      looks.emplace_back(kind_[f], colour_[flow.sender], colour_[flow.receiver]);
    }
    std::vector<int32_t> class_of;
    out_.flows.resize(Rank(looks, class_of));
    for (size_t f = 0; f < list_.flows.size(); ++f) {
      const Flow& flow = list_.flows[f];
      FlowClass& c = out_.flows[class_of[f]];
      const auto level = static_cast<size_t>(flow.level);
      const int64_t share = topology_.DevicesPerNic(flow.level);
      const Link& from = links_[level][list_.devices[flow.sender] / share];
      const Link& to = links_[level][list_.devices[flow.receiver] / share];
      c.phase = flow.phase;
      c.level = flow.level;
      c.turn = flow.turn;
      c.bytes = flow.bytes;
      c.sender = std::get<1>(looks[f]);
      c.receiver = std::get<2>(looks[f]);
      c.out_port = from.out;
      c.in_port = to.in;
      if (from.first_out) {
        ++c.out_flows;
        out_.ports[from.out].bytes += flow.bytes;
      }
      if (to.first_in) {
        ++c.in_flows;
        out_.ports[to.in].bytes += flow.bytes;
      }
    }
  }

  struct Link {
    int32_t in = 0, out = 0;                   // port classes
    bool first_in = false, first_out = false;  // the one that stands for its class
  };

  const FlowList& list_;
  const Topology& topology_;
  ClassedFlows out_;
  std::vector<int32_t> kind_;                   // of each flow
  std::vector<int32_t> colour_;                 // of each device
  std::vector<std::map<int64_t, Link>> links_;  // by level
};

}  // namespace

ClassedFlows Classify(const FlowList& list, const Topology& topology) { return Classifier(list, topology).Run(); }

}  // namespace reshard::simulate
