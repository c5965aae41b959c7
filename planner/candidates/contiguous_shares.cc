#include "planner/candidates/contiguous_shares.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "planner/candidates/domain_cuts.h"
#include "planner/candidates/staged.h"
#include "planner/digits/digits.h"
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
              const digits::MeshLevels& levels, transfers::ShardMaps& maps)
      : source_(source),
        target_(target),
        topology_(topology),
        levels_(levels),
        outer_(digits::OuterSizes(levels, topology.num_levels() - 2)),
        sampled_(dtype, topology, maps, kMostSharesLookedAt) {}

  std::vector<ShareChain> Chains();

 private:
  // A layout from which, or to which, the exchange between domains goes.
  struct Middle {
    Layout layout;
    std::optional<Layout> gathered;  // on the way to the target: what each domain holds once replicas have gathered
    int64_t time_ns = 0;             // from the source, or to the target
  };
  // `end` with each part of `shares` cutting dimension `d`: behind the cuts between domains where there are some, so
  // that nothing leaves a domain; where there are none, in front of everything. nullopt where it would be too large.
  std::optional<Layout> Sharing(const Layout& end, const Cuts& cuts, size_t d,
                                const std::vector<AxisRef>& shares) const;
  // The source itself, and for each dimension the layout in which the devices of a domain share what it holds along it.
  std::vector<Middle> FromSource();
  // The same for the target, and those in which domains that are to hold the same share it, too.
  std::vector<Middle> ToTarget();
  // The parts of axes between domains along which the layout is replicated.
  std::vector<AxisRef> ReplicatedBetween(const Layout& layout) const;
  // nullopt where a sample of devices cannot tell.
  std::optional<int64_t> Time(const Layout& from, const Layout& to);

  const Layout& source_;
  const Layout& target_;
  const Topology& topology_;
  const digits::MeshLevels& levels_;
  const std::vector<int64_t> outer_;  // per axis, the domains that it leads through
  transfers::SampledLoads sampled_;
};

std::optional<Layout> ShareSearch::Sharing(const Layout& end, const Cuts& cuts, size_t d,
                                           const std::vector<AxisRef>& shares) const {
  std::vector<DimLayout> dims;
  for (size_t i = 0; i < cuts.size(); ++i) dims.push_back({end.dims()[i].size, cuts[i]});
  for (const AxisRef& ref : shares) dims[d].factors.push_back(Factor::Along(ref));
  auto out = Layout::Create(end.mesh(), std::move(dims));
  const int64_t most = std::max(source_.MaxLocalElements(), target_.MaxLocalElements());
  if (!out.ok() || out->MaxLocalElements() > most || *out == end) return std::nullopt;
  return *std::move(out);
}

std::vector<AxisRef> ShareSearch::ReplicatedBetween(const Layout& layout) const {
  const auto refined = digits::Refine(layout, layout, &levels_);
  if (!refined) return {};
  std::vector<bool> chosen;
  for (const digits::Digit& digit : refined->digits) chosen.push_back(digit.level == topology_.num_levels() - 1);
  for (const digits::DimCut& cut : refined->from) {
    if (cut.digit >= 0) chosen[static_cast<size_t>(cut.digit)] = false;
  }
  return digits::MergeDigits(refined->digits, chosen);
}

std::vector<ShareSearch::Middle> ShareSearch::FromSource() {
  std::vector<Middle> out{{source_, std::nullopt, 0}};
  const auto cuts = BetweenDomains(source_, outer_);
  const std::vector<AxisRef> inside = InsideDomains(source_.mesh(), outer_);
  for (size_t d = 0; cuts && d < cuts->size(); ++d) {
    auto layout = Sharing(source_, *cuts, d, inside);
    const auto time = layout ? Time(source_, *layout) : std::nullopt;
    if (time) out.push_back({*std::move(layout), std::nullopt, *time});
  }
  return out;
}

std::vector<ShareSearch::Middle> ShareSearch::ToTarget() {
  std::vector<Middle> out{{target_, std::nullopt, 0}};
  const auto cuts = BetweenDomains(target_, outer_);
  const std::vector<AxisRef> inside = InsideDomains(target_.mesh(), outer_), replicated = ReplicatedBetween(target_);
  std::vector<AxisRef> both = inside;
  both.insert(both.end(), replicated.begin(), replicated.end());
  for (size_t d = 0; cuts && d < cuts->size(); ++d) {
    const auto layout = Sharing(target_, *cuts, d, inside);
    const auto time = layout ? Time(*layout, target_) : std::nullopt;
    if (!time) continue;
    out.push_back({*layout, std::nullopt, *time});
    auto shared = replicated.empty() ? std::nullopt : Sharing(target_, *cuts, d, both);
    const auto gather = shared ? Time(*shared, *layout) : std::nullopt;
    if (gather) out.push_back({*std::move(shared), *layout, *gather + *time});
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
  const std::vector<Middle> first = FromSource(), last = ToTarget();
  std::vector<std::pair<const Middle*, const Middle*>> pairs;
  for (const Middle& m1 : first) {
    for (const Middle& m2 : last) pairs.emplace_back(&m1, &m2);
  }
  const auto at_least = [](const auto& pair) { return pair.first->time_ns + pair.second->time_ns; };
  std::stable_sort(pairs.begin(), pairs.end(), [&](const auto& a, const auto& b) { return at_least(a) < at_least(b); });
  std::vector<ShareChain> kept[2];  // without and with replicas that gather
  for (const auto& pair : pairs) {
    const auto& [m1, m2] = pair;
    std::vector<ShareChain>& of_kind = kept[m2->gathered ? 1 : 0];
    const auto too_slow = [&](int64_t time) { return of_kind.size() == kKeptShares && time >= of_kind.back().time_ns; };
    if (too_slow(at_least(pair))) continue;  // without the exchange between them
    const auto between = Time(m1->layout, m2->layout);
    if (!between) continue;
    const Layout& gathered = m2->gathered ? *m2->gathered : m2->layout;
    ShareChain found{Through(source_, {&m1->layout, &m2->layout, &gathered, &target_}), at_least(pair) + *between,
                     m2->gathered.has_value()};
    if (found.chain.size() == 1 || too_slow(found.time_ns)) continue;
    const auto slower = [&](const ShareChain& one) {
      return one.time_ns != found.time_ns ? one.time_ns > found.time_ns : one.chain.size() > found.chain.size();
    };
    of_kind.insert(std::find_if(of_kind.begin(), of_kind.end(), slower), std::move(found));
    if (of_kind.size() > kKeptShares) of_kind.pop_back();
  }
  std::vector<ShareChain> out = std::move(kept[0]);
  out.insert(out.end(), kept[1].begin(), kept[1].end());
  std::stable_sort(out.begin(), out.end(), [](const auto& a, const auto& b) { return a.time_ns < b.time_ns; });
  return out;
}

}  // namespace

std::vector<ShareChain> ContiguousShareChains(const Layout& source, const Layout& target, DType dtype,
                                              const Topology& topology, transfers::ShardMaps& maps) {
  if (topology.num_levels() == 1 || source.partial() || target.partial()) return {};
  if (!(source.mesh() == target.mesh()) || !source.only_factors() || !target.only_factors()) return {};
  const auto levels = digits::LevelsOf(source.mesh(), topology);
  if (!levels) return {};
  return ShareSearch(source, target, dtype, topology, *levels, maps).Chains();
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
  for (const bool replicas_gather : {false, true}) {
    const auto fastest = std::find_if(shares.begin(), shares.end(),
                                      [&](const ShareChain& one) { return one.replicas_gather == replicas_gather; });
    if (fastest != shares.end() && fastest->time_ns < many->time_ns) out.chains.push_back(fastest->chain);
  }
  // Saving a few latencies, which are uncertain, is not worth more bytes.
  out.faster_than_ns = many->time_ns - many->time_ns / 8;
  return out;
}

}  // namespace reshard::candidates
