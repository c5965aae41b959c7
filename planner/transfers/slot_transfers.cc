#include "planner/transfers/slot_transfers.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "layout/axes.h"
#include "planner/transfers/assign_senders.h"
#include "planner/transfers/slot_atoms.h"
#include "reshard/layout/text.h"
#include "status/macros.h"

namespace reshard::transfers {
namespace {

constexpr int64_t kMostCandidates = int64_t{1} << 24;

}  // namespace

absl::StatusOr<std::optional<int>> SlotDim(const Layout& from, const Layout& to) {
  const std::optional<int> a = from.slot_dim(), b = to.slot_dim();
  if (!a && !b) return std::nullopt;
  if (a && b && *a != *b) {
    return absl::UnimplementedError(absl::StrCat(
        "slot tables cut dimension ", *a, " of the source and dimension ", *b,
        " of the target; move to a layout without a slot table first: ", ToString(from), " -> ", ToString(to)));
  }
  if (!layout::PartialAxes(from).empty() || !layout::PartialAxes(to).empty()) {
    return absl::UnimplementedError(
        absl::StrCat("partial values do not go together with a slot table; reduce them first: ", ToString(from), " -> ",
                     ToString(to)));
  }
  return a ? a : b;
}

// Builds the pieces: what each device needs, who can send it, who does, and the runs of each pair of devices.
class SlotTransfers::Builder {
 public:
  Builder(const Side& from, const Side& to, SlotAtoms atoms, const Topology& topology, int64_t first_holder,
          SlotTransfers& out)
      : from_(from), to_(to), atoms_(std::move(atoms)), topology_(topology), first_holder_(first_holder), out_(out) {}

  absl::Status Run() {
    const size_t n = from_.dims.size();
    for (size_t d = 0; d < n; ++d) {
      const bool slots = d == out_.slot_dim_;
      out_.overlaps_.push_back(slots ? DimOverlap() : Overlap(*from_.dims[d], *to_.dims[d], Detail::kRuns));
      from_rows_.push_back(RowsOf(*from_.mesh, *from_.dims[d]));
      to_rows_.push_back(RowsOf(*to_.mesh, *to_.dims[d]));
    }
    FindGroups();
    for (size_t q = 0; q < out_.ends_.to_index.size(); ++q) RETURN_IF_ERROR(AddReceiver(q));
    Assign();
    MakePieces();
    out_.SetSizes(from_, to_, from_rows_, to_rows_);
    return absl::OkStatus();
  }

 private:
  // Positions of the source mesh that hold the same rows of all other dimensions, by their row of the table's.
  using Group = absl::flat_hash_map<int32_t, SomeDevices>;
  // One receiver's part of a group: a pair of rows of each other dimension.
  struct Box {
    int32_t receiver = 0;
    size_t group = 0;
    int64_t first_pair = 0;
    int64_t elements = 1;  // per index
  };
  // An atom for a slot.
  struct Need {
    size_t box = 0;
    AtomSlot slot;
    int32_t sender = -1;
  };

  int64_t CellOf(size_t position) const {
    int64_t cell = 0;
    for (size_t d = 0; d < from_rows_.size(); ++d) {
      if (d != out_.slot_dim_) cell = cell * from_.dims[d]->num_rows() + from_rows_[d][position];
    }
    return cell;
  }

  void FindGroups() {
    for (size_t p = 0; p < static_cast<size_t>(from_.mesh->size()); ++p) {
      const auto [it, added] = group_of_cell_.emplace(CellOf(p), groups_.size());
      if (added) groups_.emplace_back();
      groups_[it->second][from_rows_[out_.slot_dim_][p]].push_back(static_cast<int32_t>(p));
    }
  }

  absl::Status AddReceiver(size_t q) {
    const int32_t receiver = out_.ends_.to_index[q];
    const absl::Span<const AtomSlot> needs = atoms_.Needs(to_rows_[out_.slot_dim_][q]);
    const bool is_source = receiver < out_.ends_.num_from;
    const size_t n = to_rows_.size();
    std::vector<int64_t> begin(n, 0), end(n, 1);
    for (size_t d = 0; d < n; ++d) {
      if (d == out_.slot_dim_) continue;
      const auto row = static_cast<size_t>(to_rows_[d][q]);
      begin[d] = out_.overlaps_[d].first_of_to[row];
      end[d] = out_.overlaps_[d].first_of_to[row + 1];
      if (begin[d] == end[d]) return absl::OkStatus();
    }
    std::vector<int64_t> at = begin;
    while (true) {
      Box box{receiver, 0, static_cast<int64_t>(out_.pair_refs_.size()), 1};
      int64_t cell = 0;
      for (size_t d = 0; d < n; ++d) {
        out_.pair_refs_.push_back(static_cast<int32_t>(at[d]));
        if (d == out_.slot_dim_) continue;
        const Pair& pair = out_.overlaps_[d].pairs[at[d]];
        cell = cell * from_.dims[d]->num_rows() + pair.from_row;
        box.elements *= pair.elements;
      }
      box.group = group_of_cell_.at(cell);
      const bool own = is_source && CellOf(static_cast<size_t>(receiver)) == cell;
      RETURN_IF_ERROR(AddNeeds(box, needs, own ? from_rows_[out_.slot_dim_][receiver] : -1));
      size_t d = n;
      while (d > 0 && ++at[d - 1] == end[d - 1]) {
        at[d - 1] = begin[d - 1];
        --d;
      }
      if (d == 0) return absl::OkStatus();
    }
  }

  // `own_row`: the table's row that the receiver itself holds of this box; -1 if none.
  absl::Status AddNeeds(const Box& box, absl::Span<const AtomSlot> needs, int64_t own_row) {
    std::vector<int64_t> moved;
    for (const AtomSlot& slot : needs) {
      const bool held = own_row >= 0 && atoms_.Find(slot.atom, own_row) != nullptr;
      needs_.push_back({boxes_.size(), slot, held ? box.receiver : -1});
      if (!held) moved.push_back(slot.atom);
    }
    boxes_.push_back(box);
    std::sort(moved.begin(), moved.end());
    const auto twice = std::adjacent_find(moved.begin(), moved.end());
    if (twice == moved.end()) return absl::OkStatus();
    return absl::InvalidArgumentError(absl::StrCat("device ", out_.ends_.devices[box.receiver], " needs index ",
                                                   atoms_.atom(*twice).begin, " of dimension ", out_.slot_dim_,
                                                   " in several slots and does not hold it"));
  }

  // Level by level, since links of different levels do not share a load.
  void Assign() {
    std::vector<std::vector<size_t>> of_level(static_cast<size_t>(topology_.num_levels()));
    std::vector<Request> requests(needs_.size());
    for (size_t i = 0; i < needs_.size(); ++i) {
      if (needs_[i].sender >= 0) continue;
      const int level = FindCandidates(needs_[i], requests[i]);
      of_level[level].push_back(i);
    }
    for (const std::vector<size_t>& at_level : of_level) {
      std::vector<int64_t> loads(static_cast<size_t>(out_.ends_.num_from), 0);
      std::vector<Request> now;
      for (const size_t i : at_level) now.push_back(std::move(requests[i]));
      const std::vector<int32_t> senders = AssignSenders(now, loads);
      for (size_t k = 0; k < at_level.size(); ++k) needs_[at_level[k]].sender = senders[k];
    }
  }

  // The nearest holders, those in the receiver's place of their domain first. Returns their level.
  int FindCandidates(const Need& need, Request& request) {
    const Box& box = boxes_[need.box];
    request.elements = box.elements * atoms_.atom(need.slot.atom).length();
    const int64_t receiver = out_.ends_.devices[box.receiver];
    int nearest = topology_.num_levels();
    SomeDevices& out = request.candidates;
    for (const AtomHolder& holder : atoms_.Holders(need.slot.atom)) {
      const auto members = groups_[box.group].find(holder.row);
      if (members == groups_[box.group].end()) continue;
      for (const int32_t p : members->second) {
        const int level = topology_.LevelOf(out_.ends_.devices[p], receiver);
        if (level > nearest) continue;
        if (level < nearest) out.clear();
        nearest = level;
        out.push_back(p);
      }
    }
    // Equals take turns, so that ties do not all fall on the first.
    const auto turn = static_cast<size_t>(first_holder_ + turn_++) % out.size();
    if (out.size() == 1) return nearest;  // most have one, and partitions take memory
    std::rotate(out.begin(), out.begin() + static_cast<ptrdiff_t>(turn), out.end());
    if (topology_.num_levels() > 1) {
      const int64_t domain = topology_.levels[0].devices;
      std::stable_partition(out.begin(), out.end(),
                            [&](int32_t p) { return out_.ends_.devices[p] % domain == receiver % domain; });
    }
    return nearest;
  }

  void MakePieces() {
    std::stable_sort(needs_.begin(), needs_.end(), [](const Need& a, const Need& b) {
      return std::tie(a.box, a.sender, a.slot.local) < std::tie(b.box, b.sender, b.slot.local);
    });
    for (size_t begin = 0, end = 0; begin < needs_.size(); begin = end) {
      const Need& first = needs_[begin];
      SlotRuns slots{static_cast<int64_t>(out_.runs_.size()), 0, {}, {}, 0};
      for (end = begin; end < needs_.size() && needs_[end].box == first.box && needs_[end].sender == first.sender;
           ++end) {
        Add(needs_[end], first.sender, slots);
      }
      const Box& box = boxes_[first.box];
      slots.count = static_cast<int64_t>(out_.runs_.size()) - slots.first;
      SetSpread(first.sender, box.receiver, slots);
      // The pairs of the other dimensions are the box's, whoever sends.
      const auto first_pair = static_cast<int64_t>(out_.pair_refs_.size());
      for (size_t d = 0; d < to_rows_.size(); ++d) {
        const bool table = d == out_.slot_dim_;
        out_.pair_refs_.push_back(table ? static_cast<int32_t>(out_.slot_runs_.size())
                                        : out_.pair_refs_[static_cast<size_t>(box.first_pair) + d]);
      }
      out_.slot_runs_.push_back(slots);
      out_.pieces_.push_back({first.sender, box.receiver, first_pair, slots.indices * box.elements});
    }
  }

  void Add(const Need& need, int32_t sender, SlotRuns& slots) {
    const Interval& atom = atoms_.atom(need.slot.atom);
    const int64_t from = atoms_.Find(need.slot.atom, from_rows_[out_.slot_dim_][sender])->local;
    slots.indices += atom.length();
    if (static_cast<int64_t>(out_.runs_.size()) > slots.first) {
      reshard::Run& last = out_.runs_.back();
      const bool continues = last.from + last.length == from && last.to + last.length == need.slot.local &&
                             last.global + last.length == atom.begin;
      if (continues) {
        last.length += atom.length();
        return;
      }
    }
    out_.runs_.push_back({from, need.slot.local, atom.begin, atom.length()});
  }

  void SetSpread(int32_t sender, int32_t receiver, SlotRuns& slots) const {
    bool from_follow = true, to_follow = true;
    for (int64_t i = slots.first + 1; i < slots.first + slots.count; ++i) {
      const reshard::Run& before = out_.runs_[static_cast<size_t>(i) - 1];
      const reshard::Run& run = out_.runs_[i];
      from_follow &= before.from + before.length == run.from;
      to_follow &= before.to + before.length == run.to;
    }
    const auto spread = [&](bool follow, int64_t row_length) {
      // A whole row in another order is not one stretch.
      if (!follow && slots.indices == row_length) return Spread::kScattered;
      return SpreadOf(follow, slots.indices, row_length);
    };
    const DimShards& from = *from_.dims[out_.slot_dim_];
    const DimShards& to = *to_.dims[out_.slot_dim_];
    slots.in_from = spread(from_follow, from.length[from_rows_[out_.slot_dim_][sender]]);
    const auto q = to_.mesh->Position(out_.ends_.devices[receiver]);
    slots.in_to = spread(to_follow, to.length[to_rows_[out_.slot_dim_][*q]]);
  }

  const Side& from_;
  const Side& to_;
  const SlotAtoms atoms_;
  const Topology& topology_;
  const int64_t first_holder_;
  SlotTransfers& out_;
  std::vector<std::vector<int32_t>> from_rows_, to_rows_;  // per dimension, by position
  absl::flat_hash_map<int64_t, size_t> group_of_cell_;
  std::vector<Group> groups_;
  std::vector<Box> boxes_;
  std::vector<Need> needs_;
  int64_t turn_ = 0;
};

absl::StatusOr<std::unique_ptr<SlotTransfers>> SlotTransfers::Create(const Side& from, const Side& to, int slot_dim,
                                                                     const Topology& topology, int64_t first_holder,
                                                                     Asked asked) {
  auto out = std::unique_ptr<SlotTransfers>(new SlotTransfers());
  out->slot_dim_ = static_cast<size_t>(slot_dim);
  out->ends_ = Ends(*from.mesh, *to.mesh);
  ASSIGN_OR_RETURN(SlotAtoms atoms, SlotAtoms::Create(*from.dims[slot_dim], *to.dims[slot_dim]));
  RETURN_IF_ERROR(Builder(from, to, std::move(atoms), topology, first_holder, *out).Run());
  out->Sort();
  if (asked == Asked::kMessages) return out;
  out->Count(topology);
  out->FindAxes(WholeAxes(*from.mesh));
  return out;
}

PieceList::InOnePart SlotTransfers::Contiguous(const BoxTransfer& piece) const {
  Contiguity in_from, in_to;
  for (size_t d = overlaps_.size(); d-- > 0;) {
    const int32_t ref = pair_refs_[static_cast<size_t>(piece.first_pair) + d];
    if (d == slot_dim_) {
      in_from.AddDim(slot_runs_[ref].in_from, slot_runs_[ref].indices);
      in_to.AddDim(slot_runs_[ref].in_to, slot_runs_[ref].indices);
    } else {
      in_from.AddDim(overlaps_[d].pairs[ref].in_from, overlaps_[d].pairs[ref].elements);
      in_to.AddDim(overlaps_[d].pairs[ref].in_to, overlaps_[d].pairs[ref].elements);
    }
  }
  return {in_from.scattered().count == 0, in_to.scattered().count == 0};
}

Message SlotTransfers::MakeMessage(const BoxTransfer& piece) const {
  Message message{ends_.devices[piece.sender], ends_.devices[piece.receiver], {}};
  message.runs.resize(overlaps_.size());
  for (size_t d = 0; d < overlaps_.size(); ++d) {
    const int32_t ref = pair_refs_[static_cast<size_t>(piece.first_pair) + d];
    const std::vector<Run>& all = d == slot_dim_ ? runs_ : overlaps_[d].runs;
    const int64_t first = d == slot_dim_ ? slot_runs_[ref].first : overlaps_[d].pairs[ref].first_run;
    const int64_t count = d == slot_dim_ ? slot_runs_[ref].count : overlaps_[d].pairs[ref].num_runs;
    message.runs[d].assign(all.begin() + first, all.begin() + first + count);
  }
  return message;
}

}  // namespace reshard::transfers
