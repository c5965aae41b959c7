#include "planner/candidates/uneven_phases.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "planner/candidates/domain_cuts.h"
#include "planner/cost/price.h"
#include "planner/digits/domains.h"
#include "planner/transfers/sampled_loads.h"
#include "planner/transfers/shard_maps.h"

namespace reshard::candidates {
namespace {

// Ways of sharing that are looked at, and chains that are kept.
constexpr size_t kMaxShares = 8;
constexpr size_t kKeptChains = 4;
// Most devices to look at over all moves, or rows and intervals of their maps where only some devices are looked at.
constexpr int64_t kMostLookedAt = int64_t{1} << 21;

// Along which dimension each part of an axis inside the domains cuts.
using Share = std::vector<std::pair<int, AxisRef>>;

std::vector<Share> Shares(const Mesh& mesh, const std::vector<int64_t>& outer, int rank) {
  const std::vector<AxisRef> inside = InsideDomains(mesh, outer);
  std::vector<Share> out;
  if (inside.empty() || rank == 0) return out;
  // Each axis along each dimension.
  std::vector<int> at(inside.size(), 0);
  while (out.size() < kMaxShares) {
    Share& share = out.emplace_back();
    for (size_t i = 0; i < at.size(); ++i) share.emplace_back(at[i], inside[i]);
    size_t i = at.size();
    while (i > 0 && ++at[i - 1] == rank) at[--i] = 0;
    if (i == 0) break;
  }
  // One axis along two of them.
  const AxisRef& one = inside[0];
  int64_t factor = 2;
  while (factor * factor <= one.size && one.size % factor != 0) ++factor;
  if (inside.size() > 1 || one.size % factor != 0 || factor == one.size) return out;
  for (int d = 0; d < rank; ++d) {
    for (int e = 0; e < rank && out.size() < 2 * kMaxShares; ++e) {
      if (d == e) continue;
      out.push_back({{d, {one.axis, one.pre, factor}}, {e, {one.axis, one.pre * factor, one.size / factor}}});
    }
  }
  return out;
}

// Where the share of a device is cut, beside an end's cuts between domains.
enum class ShareCut {
  // Behind these and, repeated as blocks, the other end's: the device gets an equal part of what its domain exchanges
  // with each other domain.
  kBehindBoth,
  kBehind,   // behind these: the domain's fragment is cut into contiguous parts
  kInFront,  // in front of these: the whole dimension is cut first
};

// Layouts with an end's cuts between domains and the share cut in each of these places. `other`: the other end's cuts.
std::vector<Layout> Middles(const Layout& end, const Cuts& cuts, const Cuts& other, const Share& share,
                            int64_t most_elements) {
  const std::vector<DimLayout>& dims = end.dims();
  std::vector<Layout> out;
  for (const ShareCut place : {ShareCut::kBehindBoth, ShareCut::kBehind, ShareCut::kInFront}) {
    std::vector<DimLayout> middle;
    for (size_t d = 0; d < dims.size(); ++d) middle.push_back({dims[d].size, cuts[d]});
    std::vector<bool> cut(dims.size(), false);
    for (const auto& [dim, ref] : share) {
      const auto d = static_cast<size_t>(dim);
      std::vector<Factor>& factors = middle[d].factors;
      if (place == ShareCut::kBehindBoth && !cut[d] && cuts[d].empty()) {
        for (const Factor& factor : other[d]) {
          const bool blocks = factor.kind == Factor::Kind::kAxis || factor.kind == Factor::Kind::kBlocks;
          if (blocks) factors.push_back(Factor::Blocks(factor.parts()));
        }
      }
      cut[d] = true;
      factors.insert(place == ShareCut::kInFront ? factors.begin() : factors.end(), Factor::Along(ref));
    }
    auto layout = Layout::Create(end.mesh(), std::move(middle));
    if (!layout.ok() || layout->MaxLocalElements() > most_elements) continue;
    if (std::find(out.begin(), out.end(), *layout) == out.end()) out.push_back(*std::move(layout));
  }
  return out;
}

class Search {
 public:
  Search(const Layout& source, const Layout& target, DType dtype, const Topology& topology, transfers::ShardMaps& maps)
      : source_(source),
        target_(target),
        dtype_(dtype),
        most_(std::max(source.MaxLocalElements(), target.MaxLocalElements())),
        maps_(maps),
        sampled_(dtype, topology, maps, kMostLookedAt) {
    options_.topology = topology;
  }

  std::vector<Chain> Chains(int64_t enough);

 private:
  struct End {
    const Layout& layout;
    Cuts cuts;  // between domains
    std::vector<Share> shares;
  };
  struct Middle {
    Layout layout;
    int64_t across = 0;  // from its end, or to it
  };

  std::optional<End> EndOf(const Layout& layout) const {
    const auto levels = digits::LevelsOf(layout.mesh(), options_.topology);
    if (!levels) return std::nullopt;
    const std::vector<int64_t> outer = digits::OuterSizes(*levels, options_.topology.num_levels() - 2);
    auto cuts = BetweenDomains(layout, outer);
    if (!cuts) return std::nullopt;
    return End{layout, *std::move(cuts), Shares(layout.mesh(), outer, layout.rank())};
  }
  // Bytes through the busiest link between domains; nullopt where there is no such move, or too much was looked at.
  std::optional<int64_t> Across(const Layout& from, const Layout& to) const {
    if (from == to) return 0;
    if (sampled_.exhausted()) return std::nullopt;
    // The chains that are kept are priced exactly. To find them on a large mesh, some of its devices are enough.
    if (from.mesh().size() > transfers::kAllLookedAt && from.mesh() == to.mesh()) {
      const auto loads = sampled_.Of(from, to);
      if (loads) return sampled_.LinkBytes(*loads, options_.topology.num_levels() - 1);
    }
    sampled_.LookedAt(std::max(from.mesh().size(), to.mesh().size()));
    const auto priced = cost::Price(from, {{cost::ChainStep::Kind::kMove, to}}, dtype_, options_, maps_);
    if (!priced.ok()) return std::nullopt;
    return priced->totals.levels.back().nic_bytes_max;
  }
  std::vector<Middle> MiddlesOf(const End& end, const End& other, const Share& share, bool leaving,
                                int64_t less_than) const;

  const Layout& source_;
  const Layout& target_;
  const DType dtype_;
  const int64_t most_;  // elements of a fragment
  PlanOptions options_;
  transfers::ShardMaps& maps_;
  mutable transfers::SampledLoads sampled_;
};

std::vector<Search::Middle> Search::MiddlesOf(const End& end, const End& other, const Share& share, bool leaving,
                                              int64_t less_than) const {
  std::vector<Middle> out{{end.layout, 0}};  // it may do without one
  for (const Layout& layout : Middles(end.layout, end.cuts, other.cuts, share, most_)) {
    const auto across = leaving ? Across(end.layout, layout) : Across(layout, end.layout);
    if (across && *across < less_than) out.push_back({layout, *across});
  }
  return out;
}

std::vector<Chain> Search::Chains(int64_t enough) {
  const auto source = EndOf(source_);
  const auto target = EndOf(target_);
  const std::optional<int64_t> direct = Across(source_, target_);
  if (!source || !target || !direct || *direct == 0) return {};

  struct Found {
    int64_t across = 0;
    Chain chain;
  };
  std::vector<Found> found;
  const auto is_enough = [&] { return !found.empty() && found.back().across <= enough; };
  const auto add = [&](const Middle& m1, const Middle& m2) {
    const auto across = Across(m1.layout, m2.layout);
    if (!across || m1.across + *across + m2.across >= *direct) return;
    found.push_back({m1.across + *across + m2.across, Through(source_, {&m1.layout, &m2.layout, &target_})});
  };
  const bool same_mesh = source_.mesh() == target_.mesh();
  std::vector<std::vector<Middle>> arriving(target->shares.size());  // of each share; found when first needed
  for (size_t i = 0; i < source->shares.size() && !is_enough(); ++i) {
    const std::vector<Middle> first = MiddlesOf(*source, *target, source->shares[i], true, *direct);
    for (size_t j = 0; j < target->shares.size(); ++j) {
      // Over one mesh the same share on both sides crosses between the devices at the same places.
      if (same_mesh && i != j) continue;
      if (arriving[j].empty()) arriving[j] = MiddlesOf(*target, *source, target->shares[j], false, *direct);
      for (const Middle& m1 : first) {
        for (const Middle& m2 : arriving[j]) {
          if (!is_enough()) add(m1, m2);
        }
      }
    }
  }
  std::stable_sort(found.begin(), found.end(), [](const Found& a, const Found& b) {
    return a.across != b.across ? a.across < b.across : a.chain.size() < b.chain.size();
  });
  const size_t kept = source_.mesh().size() > transfers::kAllLookedAt ? kKeptChains / 2 : kKeptChains;
  if (found.size() > kept) found.resize(kept);
  std::vector<Chain> chains;
  for (Found& one : found) chains.push_back(std::move(one.chain));
  return chains;
}

}  // namespace

std::vector<Chain> UnevenPhaseChains(const Layout& source, const Layout& target, DType dtype, const Topology& topology,
                                     int64_t enough, transfers::ShardMaps& maps) {
  if (topology.num_levels() == 1 || source.partial() || target.partial()) return {};
  return Search(source, target, dtype, topology, maps).Chains(enough);
}

Proposal UnevenPhases(const Task& task, const SoFar& so_far) {
  if (!task.source.only_factors() || !task.target.only_factors()) return {};
  if (task.options.boxes_only || !so_far.least_across || *so_far.least_across == 0) return {};
  const absl::StatusOr<Bounds> bounds = task.bounds();
  if (!bounds.ok()) return {};
  // Shares are rounded to whole rows, so a result this near is near enough. What a domain has to send does not
  // count here: chains that meet it differ in what devices receive.
  constexpr int64_t kRounding = 64;
  int64_t enough = bounds->levels.empty() ? 0 : bounds->levels.back().nic_recv_bytes_max;
  enough += enough / kRounding;
  if (*so_far.least_across <= enough) return {};
  return {.chains = UnevenPhaseChains(task.source, task.target, task.dtype, task.options.topology, enough, task.maps)};
}

}  // namespace reshard::candidates
