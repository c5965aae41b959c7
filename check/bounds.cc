#include "check/bounds.h"

#include <algorithm>
#include <map>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "check/groups.h"
#include "reshard/layout/checked.h"

namespace reshard::check {
namespace {

// More pairs of boxes than this are not looked at.
constexpr int64_t kMaxBoxPairs = int64_t{1} << 26;

int64_t Product(const std::vector<AxisRef>& refs) {
  int64_t out = 1;
  for (const AxisRef& ref : refs) out *= ref.size;
  return out;
}

int64_t ContributionsOf(const Holdings& of) { return of.dim(of.num_dims() - 1).num_rows(); }

// Whether everything that `target` leaves partial is partial in `source`, by the same reduction.
bool PartialWithin(const Holdings& source, const Holdings& target) {
  const auto before = PartialRefs(source.layout());
  const auto after = PartialRefs(target.layout());
  if (after.empty()) return true;
  if (!(source.mesh() == target.mesh()) || before.empty()) return false;
  if (source.layout().partial()->op != target.layout().partial()->op) return false;
  return std::all_of(after.begin(), after.end(), [&](const AxisRef& ref) {
    return std::any_of(before.begin(), before.end(), [&](const AxisRef& other) {
      return other.axis == ref.axis && other.pre <= ref.pre && ref.pre * ref.size <= other.pre * other.size;
    });
  });
}

// Elements, with the contributions that the target keeps apart, that some device both adds to and needs. Boxes of one
// layout are the same or disjoint, so every pair of boxes counts once.
int64_t AddedAndNeeded(const Holdings& source, const Holdings& target, const std::vector<Contents>& contents) {
  const Meeting meeting(source, target, contents, /*contributions=*/false);
  absl::flat_hash_set<std::pair<int64_t, int64_t>> seen;
  int64_t out = 0;
  for (int64_t q = 0; q < target.mesh().size(); ++q) {
    const int64_t p = source.PositionOf(target.DeviceAt(q));
    if (p < 0) continue;
    if (!seen.insert({source.Cell(p) / ContributionsOf(source), target.Cell(q)}).second) continue;
    out += meeting.Shared(p, q);
  }
  return out;
}

using Positions = std::vector<int64_t>;

// Elements that some of the targets need and none of the sources holds, each once: on a grid of all borders of their
// boxes. Nothing where the grid is too large.
std::optional<int64_t> Lack(const Holdings& source, const Positions& sources, const Holdings& target,
                            const Positions& targets, const std::vector<Contents>& contents) {
  const int rank = source.layout().rank();
  std::vector<std::vector<int64_t>> borders(static_cast<size_t>(rank));
  int64_t cells = 1;
  for (int d = 0; d < rank; ++d) {
    std::vector<int64_t>& along = borders[d];
    along = {0, source.layout().dim(d).size};
    const auto add = [&](const Holdings& side, const Positions& positions) {
      for (const int64_t position : positions) {
        for (const Interval& interval : contents[d].intervals(side.Content(position, d))) {
          along.insert(along.end(), {interval.begin, interval.end});
        }
      }
    };
    add(source, sources);
    add(target, targets);
    std::sort(along.begin(), along.end());
    along.erase(std::unique(along.begin(), along.end()), along.end());
    const auto parts = static_cast<int64_t>(along.size()) - 1;
    if (parts == 0) return 0;
    if (cells > kMaxBoxPairs / parts) return std::nullopt;
    cells *= parts;
  }
  enum : char { kNothing, kNeeded, kHeld };
  std::vector<char> grid(static_cast<size_t>(cells), kNothing);
  const auto mark = [&](const Holdings& side, const Positions& positions, char as) {
    for (const int64_t position : positions) {
      std::vector<size_t> at = {0};
      for (int d = 0; d < rank; ++d) {
        const std::vector<int64_t>& along = borders[d];
        std::vector<size_t> next;
        for (const Interval& interval : contents[d].intervals(side.Content(position, d))) {
          const auto first = std::lower_bound(along.begin(), along.end(), interval.begin) - along.begin();
          const auto last = std::lower_bound(along.begin(), along.end(), interval.end) - along.begin();
          for (const size_t prefix : at) {
            for (auto i = first; i < last; ++i) next.push_back(prefix * (along.size() - 1) + static_cast<size_t>(i));
          }
        }
        at = std::move(next);
      }
      for (const size_t cell : at) grid[cell] = as;
    }
  };
  mark(target, targets, kNeeded);
  mark(source, sources, kHeld);
  int64_t out = 0;
  for (size_t cell = 0; cell < grid.size(); ++cell) {
    if (grid[cell] != kNeeded) continue;
    int64_t volume = 1;
    size_t rest = cell;
    for (size_t d = borders.size(); d-- > 0;) {
      const size_t i = rest % (borders[d].size() - 1);
      rest /= borders[d].size() - 1;
      volume *= borders[d][i + 1] - borders[d][i];
    }
    out += volume;
  }
  return out;
}

}  // namespace

std::optional<BoundFacts> Bounds(const Holdings& source, const Holdings& target, const std::vector<Contents>& contents,
                                 const Devices& devices, int64_t element_bytes) {
  if (!PartialWithin(source, target)) return std::nullopt;
  BoundFacts out;
  out.local_max = std::max(source.MaxElements(), target.MaxElements()) * element_bytes;
  if (source.layout().slot_dim() || target.layout().slot_dim()) {
    for (int64_t device = 0; device < devices.size(); ++device) {
      const int64_t p = source.PositionOf(device), q = target.PositionOf(device);
      if (q < 0) continue;
      const int64_t lacks = DistinctLack(source, p, target, q, contents);
      out.recv_max = std::max(out.recv_max, lacks * element_bytes);
      out.recv_total += lacks * element_bytes;
    }
    return out;
  }
  const int64_t kept = Product(PartialRefs(target.layout()));
  const int64_t reduced = Product(PartialRefs(source.layout())) / kept;
  if (reduced == 1) {
    const Meeting meeting(source, target, contents, source.mesh() == target.mesh());
    for (int64_t q = 0; q < target.mesh().size(); ++q) {
      const int64_t lacks = target.Elements(q) - meeting.Kept(target.DeviceAt(q));
      out.recv_max = std::max(out.recv_max, lacks * element_bytes);
      out.recv_total += lacks * element_bytes;
    }
    return out;
  }
  // Every element has `reduced` contributions that have to come together and then reach its holders.
  out.reduces = true;
  out.recv_total = (target.layout().num_elements() * kept * (reduced + target.copies() - 1) -
                    AddedAndNeeded(source, target, contents)) *
                   element_bytes;
  int64_t taking_part = 0;
  for (int64_t device = 0; device < devices.size(); ++device) {
    taking_part += source.PositionOf(device) >= 0 || target.PositionOf(device) >= 0 ? 1 : 0;
  }
  out.recv_max = std::max(CeilDiv(out.recv_total, taking_part), target.MaxElements() * element_bytes);
  return out;
}

namespace {

struct Domain {
  std::vector<int64_t> sources, targets;  // positions, one per box
  int64_t devices = 0;
  int64_t links = 0;
};
using Domains = absl::flat_hash_map<int64_t, Domain>;

// Domains that hold the same shards: what only they hold, and another domain needs.
struct Senders {
  int64_t leaves = 0;  // elements
  int64_t domains = 0;
  int64_t links = 0;
};

std::vector<Senders> SendersOf(const Holdings& source, const Holdings& target, const Domains& domains,
                               const Meeting& meeting) {
  // The domains of each shard, by its cell, ascending.
  absl::flat_hash_map<int64_t, std::vector<int64_t>> holding, needing;
  absl::flat_hash_map<int64_t, int64_t> leaves;  // of each shard of the source
  for (const auto& [id, domain] : domains) {
    for (const int64_t p : domain.sources) {
      holding[source.Cell(p)].push_back(id);
      leaves[source.Cell(p)] = source.Elements(p);
    }
    for (const int64_t q : domain.targets) needing[target.Cell(q)].push_back(id);
  }
  for (auto* const of_cells : {&holding, &needing}) {
    for (auto& [cell, ids] : *of_cells) std::sort(ids.begin(), ids.end());
  }
  for (const auto& [id, domain] : domains) {
    for (const int64_t q : domain.targets) {
      const std::vector<int64_t>& needed_by = needing.at(target.Cell(q));
      if (needed_by.front() != id) continue;  // each once
      for (const int64_t p : domain.sources) {
        const std::vector<int64_t>& held_by = holding.at(source.Cell(p));
        // Where all that need it have it, it stays.
        if (std::includes(held_by.begin(), held_by.end(), needed_by.begin(), needed_by.end())) {
          leaves.at(source.Cell(p)) -= meeting.Shared(p, q);
        }
      }
    }
  }
  std::map<std::vector<int64_t>, Senders> groups;
  for (const auto& [cell, ids] : holding) {
    Senders& group = groups[ids];
    group.leaves += leaves.at(cell);
    if (group.domains > 0) continue;
    group.domains = static_cast<int64_t>(ids.size());
    for (const int64_t id : ids) group.links += domains.at(id).links;
  }
  std::vector<Senders> out;
  for (const auto& [ids, group] : groups) out.push_back(group);
  return out;
}

}  // namespace

std::optional<CutFacts> Cut(int level, const Holdings& source, const Holdings& target,
                            const std::vector<Contents>& contents, const Devices& devices,
                            const plan_text::Links& links, int64_t element_bytes) {
  Domains domains;
  absl::flat_hash_set<std::pair<int64_t, int64_t>> source_seen, target_seen;
  for (int64_t device = 0; device < devices.size(); ++device) {
    const int64_t id = level == 0 ? device : links.Domain(level - 1, devices.id(device));
    const int64_t p = source.PositionOf(device);
    const int64_t q = target.PositionOf(device);
    Domain& domain = domains[id];
    domain.devices += p >= 0 || q >= 0 ? 1 : 0;
    if (p >= 0 && source.Elements(p) > 0 && source_seen.insert({id, source.Cell(p)}).second) {
      domain.sources.push_back(p);
    }
    if (q >= 0 && target.Elements(q) > 0 && target_seen.insert({id, target.Cell(q)}).second) {
      domain.targets.push_back(q);
    }
  }
  int64_t pairs = 0;
  for (const auto& [id, domain] : domains) {
    pairs += static_cast<int64_t>(domain.sources.size()) * static_cast<int64_t>(domain.targets.size());
  }
  if (pairs > kMaxBoxPairs) return std::nullopt;
  const bool slots = source.layout().slot_dim() || target.layout().slot_dim();
  std::optional<Meeting> meeting;
  if (!slots) meeting.emplace(source, target, contents, source.mesh() == target.mesh());
  const bool sends = level > 0 && !slots && source.mesh() == target.mesh();
  CutFacts out;
  const int64_t nics = level == 0 ? 0 : links.levels[level].nics;
  int64_t most_links = 1;
  for (auto& [id, domain] : domains) {
    int64_t lacks = 0;
    for (const int64_t q : domain.targets) {
      if (slots) break;
      lacks += target.Elements(q);
      for (const int64_t p : domain.sources) lacks -= meeting->Shared(p, q);
    }
    if (slots) {
      const auto all = Lack(source, domain.sources, target, domain.targets, contents);
      if (!all) return std::nullopt;
      lacks = *all;
    }
    lacks *= element_bytes;
    out.total += lacks;
    out.domain_max = std::max(out.domain_max, lacks);
    most_links = std::max(most_links, nics == 0 ? domain.devices : nics);
    domain.links = std::max<int64_t>(1, nics == 0 ? domain.devices : std::min(nics, domain.devices));
    out.link_max.high = std::max(out.link_max.high, CeilDiv(lacks, domain.links));
  }
  out.link_max.low = CeilDiv(out.domain_max, most_links);
  out.busiest_link = out.link_max;
  if (!sends) return out;
  for (const Senders& senders : SendersOf(source, target, domains, *meeting)) {
    const int64_t bytes = senders.leaves * element_bytes;
    out.busiest_link.low = std::max(out.busiest_link.low, CeilDiv(bytes, senders.domains * most_links));
    out.busiest_link.high = std::max(out.busiest_link.high, CeilDiv(bytes, senders.links));
  }
  return out;
}

}  // namespace reshard::check
