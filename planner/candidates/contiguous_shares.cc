#include "planner/candidates/contiguous_shares.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "planner/candidates/domain_cuts.h"
#include "planner/candidates/staged.h"
#include "planner/digits/domains.h"
#include "planner/transfers/sampled_loads.h"

namespace reshard::candidates {
namespace {

constexpr size_t kKeptShares = 4;
// Most rows and intervals of maps to look at.
constexpr int64_t kMostSharesLookedAt = int64_t{1} << 22;

class ShareSearch {
 public:
  ShareSearch(const Layout& source, const Layout& target, DType dtype, const Topology& topology,
              transfers::ShardMaps& maps)
      : source_(source), target_(target), topology_(topology), sampled_(dtype, topology, maps, kMostSharesLookedAt) {}

  std::vector<ShareChain> Chains();

 private:
  // A layout in which the devices of a domain share what it holds, and the time from its end to it, or back.
  struct Shared {
    Layout layout;
    int64_t time_ns = 0;
  };
  // The end itself, and for each dimension the layout that shares what a domain holds along it: behind the cuts between
  // domains where there are some, so that nothing leaves a domain; where there are none, in front of everything.
  std::vector<Layout> LayoutsOf(const Layout& end, const std::vector<int64_t>& outer) const;
  // nullopt where a sample of devices cannot tell.
  std::optional<int64_t> Time(const Layout& from, const Layout& to);

  const Layout& source_;
  const Layout& target_;
  const Topology& topology_;
  transfers::SampledLoads sampled_;
};

std::vector<Layout> ShareSearch::LayoutsOf(const Layout& end, const std::vector<int64_t>& outer) const {
  std::vector<Layout> out{end};
  const auto cuts = BetweenDomains(end, outer);
  if (!cuts) return out;
  const int64_t most = std::max(source_.MaxLocalElements(), target_.MaxLocalElements());
  for (size_t shared = 0; shared < cuts->size(); ++shared) {
    std::vector<DimLayout> dims;
    for (size_t d = 0; d < cuts->size(); ++d) dims.push_back({end.dims()[d].size, (*cuts)[d]});
    for (const AxisRef& ref : InsideDomains(end.mesh(), outer)) dims[shared].factors.push_back(Factor::Along(ref));
    auto layout = Layout::Create(end.mesh(), std::move(dims));
    if (layout.ok() && layout->MaxLocalElements() <= most && !(*layout == end)) out.push_back(*std::move(layout));
  }
  return out;
}

std::optional<int64_t> ShareSearch::Time(const Layout& from, const Layout& to) {
  if (from == to) return 0;
  const auto loads = sampled_.Of(from, to);
  if (!loads) return std::nullopt;
  int64_t time = 0;
  for (int level = 0; level < topology_.num_levels(); ++level) {
    const int64_t bytes = sampled_.LinkBytes(*loads, level);
    if (bytes > 0) time = std::max(time, topology_.StepTime(level, (*loads)[static_cast<size_t>(level)].peers, bytes));
  }
  return time;
}

std::vector<ShareChain> ShareSearch::Chains() {
  const auto levels = digits::LevelsOf(source_.mesh(), topology_);
  if (!levels) return {};
  const std::vector<int64_t> outer = digits::OuterSizes(*levels, topology_.num_levels() - 2);
  // From the source to each of its middles, and from each of the target's to it.
  const auto reached = [&](const Layout& end, bool leaving) {
    std::vector<Shared> out;
    for (const Layout& layout : LayoutsOf(end, outer)) {
      const auto time = leaving ? Time(end, layout) : Time(layout, end);
      if (time) out.push_back({layout, *time});
    }
    return out;
  };
  const std::vector<Shared> first = reached(source_, true), last = reached(target_, false);
  std::vector<ShareChain> out;
  for (const Shared& m1 : first) {
    for (const Shared& m2 : last) {
      const auto between = Time(m1.layout, m2.layout);
      if (!between) continue;
      ShareChain found{Through(source_, {&m1.layout, &m2.layout, &target_}), m1.time_ns + *between + m2.time_ns};
      if (found.chain.size() > 1) out.push_back(std::move(found));
    }
  }
  std::stable_sort(out.begin(), out.end(), [](const auto& a, const auto& b) {
    return a.time_ns != b.time_ns ? a.time_ns < b.time_ns : a.chain.size() < b.chain.size();
  });
  if (out.size() > kKeptShares) out.resize(kKeptShares);
  return out;
}

}  // namespace

std::vector<ShareChain> ContiguousShareChains(const Layout& source, const Layout& target, DType dtype,
                                              const Topology& topology, transfers::ShardMaps& maps) {
  if (topology.num_levels() == 1 || source.partial() || target.partial()) return {};
  if (!(source.mesh() == target.mesh()) || !source.only_factors() || !target.only_factors()) return {};
  return ShareSearch(source, target, dtype, topology, maps).Chains();
}

Proposal ContiguousShares(const Task& task, const SoFar& so_far) {
  const auto many = FindManyPeers(task, so_far);
  if (!many || !task.options.ops.contains(Op::kExchange)) return {};
  const std::vector<ShareChain> shares =
      ContiguousShareChains(task.source, task.target, task.dtype, task.options.topology, task.maps);
  std::vector<Chain> bases;
  for (const ShareChain& one : shares) bases.push_back(one.chain);
  const AxisCuts cuts = task.model == nullptr ? AxisCuts::kNested : AxisCuts::kAtOnce;
  Proposal out{.chains = InStages(task, *many, bases, 1, cuts)};
  if (!shares.empty() && shares[0].time_ns < many->time_ns) out.chains.push_back(shares[0].chain);
  // Saving a few latencies, which are uncertain, is not worth more bytes.
  out.faster_than_ns = many->time_ns - many->time_ns / 8;
  return out;
}

}  // namespace reshard::candidates
