#include "check/step.h"

#include <algorithm>
#include <array>

#include "absl/strings/str_cat.h"
#include "reshard/layout/checked.h"
#include "reshard/layout/text.h"

namespace reshard::check {
namespace {

constexpr std::array<const char*, 7> kNames = {"Slice",         "AllGather", "AllToAll", "AllPermute",
                                               "ReduceScatter", "AllReduce", "Exchange"};

bool SameReduction(const Layout& a, const Layout& b) {
  const auto refs = PartialRefs(a);
  return refs == PartialRefs(b) && (refs.empty() || a.partial()->op == b.partial()->op);
}

}  // namespace

std::optional<Op> ParseOp(std::string_view name) {
  for (size_t i = 0; i < kNames.size(); ++i) {
    if (name == kNames[i]) return static_cast<Op>(i);
  }
  return std::nullopt;
}

const char* Name(Op op) { return kNames[static_cast<size_t>(op)]; }

StepJudge::StepJudge(Op op, const Holdings& from, const Holdings& to, const std::optional<std::vector<AxisRef>>& axes,
                     const std::vector<Contents>& contents, const Devices& devices, const plan_text::Links& links)
    : op_(op),
      from_(from),
      to_(to),
      axes_(axes),
      contents_(contents),
      devices_(devices),
      links_(links),
      crosses_(!(from.mesh() == to.mesh())) {
  const bool contributions = !Reduces(op) && !crosses_ && SameReduction(from.layout(), to.layout());
  meeting_.emplace(from, to, contents, contributions);
}

bool StepJudge::CheckPartial(StepFacts& facts) {
  const auto before = PartialRefs(from_.layout());
  const auto after = PartialRefs(to_.layout());
  if (crosses_ && (!before.empty() || !after.empty())) {
    facts.illegal.emplace_back("values that are still partial do not move between meshes");
    return false;
  }
  if (Reduces(op_)) {
    if (!after.empty() && from_.layout().partial()->op != to_.layout().partial()->op) {
      facts.illegal.emplace_back("the partial reduction changes its kind");
      return false;
    }
    return true;
  }
  if (!SameReduction(from_.layout(), to_.layout())) {
    facts.illegal.emplace_back("a step that only moves data changes what is partial");
    return false;
  }
  return true;
}

// Finds the groups that the step names, or, where it names none, those that its op needs.
bool StepJudge::FindGroups(StepFacts& facts) {
  if (crosses_) {
    if (axes_ && !axes_->empty()) facts.illegal.emplace_back("a step between meshes runs over no axes");
    return facts.illegal.empty();
  }
  std::vector<const std::vector<AxisRef>*> lists;
  for (const Holdings* side : {&from_, &to_}) {
    for (int d = 0; d < side->num_dims(); ++d) lists.push_back(&side->dim(d).digits);
  }
  if (axes_) lists.push_back(&*axes_);
  digits_ = Digits::Align(from_.mesh(), lists);
  if (!digits_) {
    facts.unjudged.emplace_back("the parts of an axis in from, to and axes do not nest, so that groups have no digits");
    return false;
  }
  const auto before = digits_->Of(from_.dim(from_.num_dims() - 1).digits);
  const auto after = digits_->Of(to_.dim(to_.num_dims() - 1).digits);
  std::vector<bool> reduced(digits_->digits().size(), false);
  for (size_t e = 0; e < reduced.size(); ++e) {
    reduced[e] = (*before)[e] && !(*after)[e];
    if (Reduces(op_) && (*after)[e] && !(*before)[e]) {
      facts.illegal.emplace_back("the step leaves partial what was not partial before");
      return false;
    }
  }
  std::vector<bool> inside(digits_->digits().size(), true);  // no axes named: anything within the mesh
  if (axes_) {
    const auto named = digits_->Of(*axes_);
    if (!named) {
      facts.illegal.emplace_back("the axes overlap");
      return false;
    }
    inside = *named;
    if (Reduces(op_) && inside != reduced) {
      facts.illegal.emplace_back("the axes are not those that are reduced");
      return false;
    }
  } else if (Reduces(op_)) {
    inside = reduced;
  } else if (op_ == Op::kAllGather || op_ == Op::kAllToAll) {
    // A digit takes part unless both layouts use it in one and the same dimension, or neither does, and the group does
    // without it; leaving digits out one by one finds the fewest.
    for (size_t e = 0; e < inside.size(); ++e) {
      inside[e] = false;
      if (LeavesGroups(Groups(*digits_, inside))) inside[e] = true;
    }
  }
  groups_.emplace(*digits_, inside);
  return true;
}

void StepJudge::CheckAxes(StepFacts& facts) const {
  if (crosses_ || Reduces(op_) || !axes_ || op_ == Op::kSlice) {
    if (op_ == Op::kSlice && axes_ && groups_ && groups_->size() > 1) {
      facts.illegal.emplace_back("nothing travels along the axes of a Slice");
    }
    return;
  }
  if (auto reason = LeavesGroups(*groups_)) {
    facts.illegal.push_back(*reason);
    return;
  }
  // Where every holder is alone in its group, the layouts tell which axes are needed.
  if (op_ != Op::kAllGather && op_ != Op::kAllToAll) return;
  for (size_t a = 0; a < axes_->size(); ++a) {
    std::vector<AxisRef> fewer = *axes_;
    fewer.erase(fewer.begin() + static_cast<std::ptrdiff_t>(a));
    const auto inside = digits_->Of(fewer);
    if (inside && !LeavesGroups(Groups(*digits_, *inside))) {
      facts.illegal.push_back(absl::StrCat("nothing has to travel along ", ToString(from_.mesh(), (*axes_)[a])));
    }
  }
}

StepFacts StepJudge::Run() {
  StepFacts facts;
  facts.loads.resize(devices_.size());
  if (!CheckPartial(facts)) return facts;
  const bool grouped = FindGroups(facts);
  if (!facts.illegal.empty()) return facts;
  const bool needs_groups = op_ == Op::kAllGather || op_ == Op::kAllToAll || Reduces(op_);
  if (crosses_ || grouped || !needs_groups) {
    if (auto reason = Breaks(op_)) facts.illegal.push_back(absl::StrCat("it is no ", Name(op_), ": ", *reason));
  }
  if (!facts.illegal.empty()) return facts;
  if (needs_groups && !grouped) {
    facts.known = false;
    return facts;
  }
  if (grouped && !crosses_) CheckAxes(facts);
  if (!facts.illegal.empty()) return facts;
  CountReceived(facts);
  if (needs_groups) {
    CountShares(SharesOf(op_), facts);
  } else if (meeting_->slots()) {
    CountSlotHolders(facts);
  } else {
    CountHolders(facts);
  }
  return facts;
}

std::optional<Op> StepJudge::OtherName(const StepFacts& facts, int64_t peers_max) const {
  if (op_ != Op::kExchange) return std::nullopt;
  if (facts.recv_total == 0) return crosses_ ? std::nullopt : std::optional<Op>(Op::kSlice);
  if (meeting_->slots()) return std::nullopt;
  for (const Holdings* side : {&from_, &to_}) {
    for (int64_t p = 0; p < side->mesh().size(); ++p) {
      if (side->Elements(p) == 0) return std::nullopt;
    }
  }
  if (!crosses_ && groups_ && axes_) {
    if (!Breaks(Op::kAllGather)) return Op::kAllGather;
    if (!Breaks(Op::kAllToAll)) return Op::kAllToAll;
  }
  if (peers_max == 1 && !Breaks(Op::kAllPermute)) return Op::kAllPermute;
  return std::nullopt;
}

// What every device lacks; the holders do not matter.
void StepJudge::CountReceived(StepFacts& facts) const {
  for (int64_t q = 0; q < to_.mesh().size() && !Reduces(op_); ++q) {
    const int64_t device = to_.DeviceAt(q);
    Load& load = facts.loads[device];
    // An element for several slots arrives once.
    load.recv = meeting_->slots() ? DistinctLack(from_, from_.PositionOf(device), to_, q, contents_)
                                  : to_.Elements(q) - meeting_->Kept(device);
    facts.recv_max = std::max(facts.recv_max, load.recv);
    facts.recv_total += load.recv;
  }
}

// The shares in a group where every element has one holder, or where all members contribute.
StepJudge::Shares StepJudge::SharesOf(Op op) const {
  Shares out;
  const auto n = static_cast<size_t>(from_.mesh().size());
  out.take.assign(n, 0);
  out.give.assign(n, 0);
  for (size_t i = 0; i < n; ++i) {
    const auto p = static_cast<int64_t>(i);
    if (op == Op::kAllGather) out.give[i] = from_.Elements(p);
    if (op == Op::kAllToAll) out.take[i] = from_.Elements(p) / groups_->size();
    if (op == Op::kReduceScatter) out.take[i] = to_.Elements(p);
    if (op == Op::kAllReduce) {
      // Ceil chunks: a member reduces its own and then gets everyone else's.
      const int64_t chunk = CeilDiv(from_.Elements(p), groups_->size());
      const int64_t begin = std::min(from_.Elements(p), groups_->Index(p) * chunk);
      out.take[i] = out.give[i] = std::min(chunk, from_.Elements(p) - begin);
    }
  }
  return out;
}

void StepJudge::CountShares(const Shares& shares, StepFacts& facts) const {
  struct Sum {
    int64_t members = 0;
    int64_t take = 0, give = 0;
    int64_t takers = 0, givers = 0;
  };
  const auto n = static_cast<size_t>(from_.mesh().size());
  std::vector<LevelLoad> all(static_cast<size_t>(devices_.size()));
  std::vector<Sum> inner(n);  // what position i met on the levels so far, itself included
  for (size_t i = 0; i < n; ++i) {
    inner[i] = {1, shares.take[i], shares.give[i], shares.take[i] > 0 ? 1 : 0, shares.give[i] > 0 ? 1 : 0};
  }
  std::vector<int64_t> peers_in(n, 0), peers_out(n, 0);
  for (int level = 0; level < links_.size(); ++level) {
    absl::flat_hash_map<std::pair<int64_t, int64_t>, Sum> sums;  // of a group's part on one domain
    const auto key = [&](size_t i) {
      const auto p = static_cast<int64_t>(i);
      return std::pair(groups_->Of(p), links_.Domain(level, from_.mesh().Device(p)));
    };
    for (size_t i = 0; i < n; ++i) {
      Sum& sum = sums[key(i)];
      ++sum.members;
      sum.take += shares.take[i];
      sum.give += shares.give[i];
      sum.takers += shares.take[i] > 0 ? 1 : 0;
      sum.givers += shares.give[i] > 0 ? 1 : 0;
    }
    auto& loads = facts.levels.emplace_back(static_cast<size_t>(devices_.size()));
    for (size_t i = 0; i < n; ++i) {
      const Sum& sum = sums[key(i)];
      const int64_t others = sum.members - inner[i].members;
      const auto device = static_cast<size_t>(from_.DeviceAt(static_cast<int64_t>(i)));
      LevelLoad& load = loads[device];
      load.recv = others * shares.take[i] + (sum.give - inner[i].give);
      load.send = others * shares.give[i] + (sum.take - inner[i].take);
      const int64_t in = shares.take[i] > 0 ? others : sum.givers - inner[i].givers;
      const int64_t out = shares.give[i] > 0 ? others : sum.takers - inner[i].takers;
      load.peers = std::max(in, out);
      peers_in[i] += in;
      peers_out[i] += out;
      all[device].recv += load.recv;
      all[device].send += load.send;
      inner[i] = sum;
    }
  }
  if (Reduces(op_)) facts.recv_max = facts.recv_total = 0;
  int64_t send_max = 0;
  int64_t peers_max = 0;
  for (size_t i = 0; i < n; ++i) {
    const auto device = static_cast<size_t>(from_.DeviceAt(static_cast<int64_t>(i)));
    Load& load = facts.loads[device];
    load.send = {all[device].send, all[device].send};
    if (Reduces(op_)) {
      load.recv = all[device].recv;
      facts.recv_max = std::max(facts.recv_max, load.recv);
      facts.recv_total += load.recv;
    }
    // An AllReduce works on stretches of the fragment; all else may have to be packed on both sides.
    load.staging = {0, op_ == Op::kAllReduce ? 0 : load.recv + load.send.high};
    send_max = std::max(send_max, load.send.high);
    peers_max = std::max({peers_max, peers_in[i], peers_out[i]});
  }
  facts.send_max = {send_max, send_max};
  facts.peers_max = {peers_max, peers_max};
  facts.group_size = {groups_->size(), groups_->size()};
}

// With a slot table any holder of an index may send it: only the sums are known.
void StepJudge::CountSlotHolders(StepFacts& facts) const {
  const int64_t senders = from_.mesh().size();
  int64_t most = 0;
  for (Load& load : facts.loads) {
    load.send = {0, facts.recv_total};
    load.staging = {0, load.recv + facts.recv_total};
    most = std::max(most, load.recv);
  }
  facts.send_max = {CeilDiv(facts.recv_total, senders), facts.recv_total};
  facts.peers_max = {most > 0 ? 1 : 0, most > 0 ? devices_.size() : 0};
  facts.group_size = crosses_           ? Derived{most > 0 ? 2 : 0, devices_.size()}
                     : groups_ && axes_ ? Derived{groups_->size(), groups_->size()}
                                        : Derived{1, senders};
  if (facts.recv_total == 0) {
    facts.levels.assign(static_cast<size_t>(links_.size()),
                        std::vector<LevelLoad>(static_cast<size_t>(devices_.size())));
  }
}

// Who sends is open where a box has several holders: ranges, from an even spread to one holder for all.
void StepJudge::CountHolders(StepFacts& facts) const {
  const int64_t copies = from_.copies();
  const auto cells = static_cast<size_t>(from_.num_cells());
  std::vector<int64_t> kept(cells, 0), keepers(cells, 0), box(cells, 0), receivers(cells, 0);
  std::vector<bool> holder_receives(cells, false);
  for (int64_t p = 0; p < from_.mesh().size(); ++p) {
    const auto cell = static_cast<size_t>(from_.Cell(p));
    box[cell] = from_.Elements(p);
    const int64_t q = to_.PositionOf(from_.DeviceAt(p));
    const int64_t own = q < 0 ? 0 : meeting_->Shared(p, q);
    kept[cell] += own;
    keepers[cell] += own > 0 ? 1 : 0;
    receivers[cell] = from_.Elements(p) == 0 ? 0 : meeting_->ToCellsOf(p) * to_.copies();
    if (facts.loads[from_.DeviceAt(p)].recv > 0) holder_receives[cell] = true;
  }
  int64_t peers = 0;
  int64_t peers_high = 0;
  int64_t receiving = 0;
  for (int64_t q = 0; q < to_.mesh().size(); ++q) {
    const int64_t device = to_.DeviceAt(q);
    if (facts.loads[device].recv == 0) continue;
    ++receiving;
    const int64_t boxes = meeting_->FromCellsOf(q) - (meeting_->Kept(device) > 0 ? 1 : 0);
    peers = std::max(peers, boxes);
    peers_high = std::max(peers_high, boxes * copies);
  }
  Derived send;
  int64_t senders = 0;  // boxes that someone outside of the receivers has to send
  int64_t may_send = 0;
  std::vector<int64_t> demand(cells, 0);
  for (size_t c = 0; c < cells; ++c) {
    demand[c] = to_.copies() * box[c] - kept[c];
    if (demand[c] == 0) continue;
    const int64_t askers = receivers[c] - keepers[c];
    peers = std::max(peers, CeilDiv(askers, copies));
    peers_high = std::max(peers_high, askers);
    send.low = std::max(send.low, CeilDiv(demand[c], copies));
    send.high = std::max(send.high, demand[c]);
    if (op_ == Op::kAllPermute) send.low = std::max(send.low, box[c]);
    if (!holder_receives[c]) ++senders;
  }
  for (int64_t p = 0; p < from_.mesh().size(); ++p) {
    Load& load = facts.loads[from_.DeviceAt(p)];
    const auto cell = static_cast<size_t>(from_.Cell(p));
    load.send = {copies == 1 ? demand[cell] : 0, demand[cell]};
    if (op_ == Op::kAllPermute) load.send.high = std::min(load.send.high, from_.Elements(p));
    if (load.send.high > 0 && load.recv == 0) ++may_send;
  }
  for (Load& load : facts.loads) load.staging = {0, load.recv + load.send.high};
  if (op_ == Op::kAllPermute) {
    send.high = send.low;
    peers = peers_high = facts.recv_total > 0 ? 1 : 0;
  }
  facts.send_max = send;
  facts.peers_max = {peers, peers_high};
  if (crosses_) {
    facts.group_size = {receiving + senders, receiving + may_send};
  } else if (groups_ && axes_) {
    facts.group_size = {groups_->size(), groups_->size()};
  } else {
    facts.group_size = {1, from_.mesh().size()};
  }
  if (facts.recv_total == 0) {
    facts.levels.assign(static_cast<size_t>(links_.size()),
                        std::vector<LevelLoad>(static_cast<size_t>(devices_.size())));
  }
}

}  // namespace reshard::check
