#include "planner/transfers/list_transfers.h"

#include <algorithm>
#include <array>
#include <numeric>

#include "absl/container/inlined_vector.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "layout/cut.h"
#include "reshard/layout/checked.h"

namespace reshard::transfers {
namespace {

constexpr int64_t kMaxPieces = int64_t{1} << 24;

}  // namespace

// State: what each holder of one shard has sent so far, and whose turn it is.
class ListTransfers::Turn {
 public:
  // `holders`: device ids.
  Turn(const std::vector<int64_t>& holders, int64_t demand, const Topology& topology, int64_t first)
      : topology_(topology),
        sent_(holders.size(), 0),
        even_share_(CeilDiv(demand, static_cast<int64_t>(holders.size()))),
        at_(static_cast<size_t>(first) % holders.size()) {
    if (topology.num_levels() == 1) return;
    for (const int64_t id : holders) holders_.push_back(Where(id));
  }

  // The index of the holder that sends `elements` to `receiver`.
  size_t Next(int64_t receiver, int64_t elements) {
    const size_t h = sent_.size();
    size_t best = at_;
    const bool levels = topology_.num_levels() > 1;
    if (levels) receiver_ = Where(receiver);
    // Without levels nothing beats a holder that has not sent anything yet, so that the usual case looks at one holder.
    std::array<int64_t, 3> least = Cost(best);
    for (size_t step = 1; step < h && (levels || sent_[best] > 0); ++step) {
      const size_t other = at_ + step < h ? at_ + step : at_ + step - h;
      const auto cost = Cost(other);
      if (cost < least) {
        best = other;
        least = cost;
      }
    }
    sent_[best] += elements;
    // The turn moves on whichever holder was chosen, so that ties go round.
    at_ = (at_ + 1) % h;
    return best;
  }

 private:
  // Where a device is in the topology: its domain of each level but the last, and its place in the innermost one.
  struct WhereInDomains {
    absl::InlinedVector<int64_t, 2> domains;
    int64_t rail = 0;
  };
  WhereInDomains Where(int64_t id) const {
    WhereInDomains out;
    for (int level = 0; level + 1 < topology_.num_levels(); ++level) {
      out.domains.push_back(id / topology_.levels[static_cast<size_t>(level)].devices);
    }
    out.rail = id % topology_.levels[0].devices;
    return out;
  }
  // The level first; then whether the holder is on the receiver's rail, as long as it has not sent its even share; then
  // the load.
  std::array<int64_t, 3> Cost(size_t holder) const {
    if (holders_.empty()) return {0, 0, sent_[holder]};
    const WhereInDomains& one = holders_[holder];
    size_t level = 0;
    while (level < one.domains.size() && one.domains[level] != receiver_.domains[level]) ++level;
    const bool aligned = one.rail == receiver_.rail && sent_[holder] < even_share_;
    return {static_cast<int64_t>(level), aligned ? 0 : 1, sent_[holder]};
  }

  const Topology& topology_;
  std::vector<WhereInDomains> holders_;  // empty without levels
  WhereInDomains receiver_;
  std::vector<int64_t> sent_;
  int64_t even_share_;
  size_t at_;
};

absl::StatusOr<std::unique_ptr<ListTransfers>> ListTransfers::Create(const Side& from, const Side& to, int rank,
                                                                     const digits::Refinement* refinement,
                                                                     const Topology& topology, int64_t first_holder,
                                                                     Asked asked, std::optional<int64_t> only) {
  auto out = std::unique_ptr<ListTransfers>(new ListTransfers());
  out->rank_ = rank;
  const size_t n = from.dims.size();
  for (size_t d = 0; d < n; ++d) out->overlaps_.push_back(Overlap(*from.dims[d], *to.dims[d], Detail::kRuns));

  out->ends_ = Ends(*from.mesh, *to.mesh);
  const std::vector<int32_t>& to_index = out->ends_.to_index;
  std::vector<std::vector<int32_t>> from_rows(n), to_rows(n);
  for (size_t d = 0; d < n; ++d) {
    from_rows[d] = RowsOf(*from.mesh, *from.dims[d]);
    to_rows[d] = RowsOf(*to.mesh, *to.dims[d]);
  }
  std::vector<int64_t> cell_of(static_cast<size_t>(from.mesh->size()));
  for (size_t p = 0; p < cell_of.size(); ++p) {
    for (size_t d = 0; d < n; ++d) cell_of[p] = cell_of[p] * out->overlaps_[d].from_rows + from_rows[d][p];
  }
  // Calls `visit` with the cell of every piece of the receiver at a position of the target mesh, its elements, and its
  // pairs, one per dimension.
  std::vector<int64_t> begin(n), end(n), at(n);
  const auto each_piece = [&](size_t p, const auto& visit) {
    for (size_t d = 0; d < n; ++d) {
      const auto t = static_cast<size_t>(to_rows[d][p]);
      begin[d] = at[d] = out->overlaps_[d].first_of_to[t];
      end[d] = out->overlaps_[d].first_of_to[t + 1];
      if (begin[d] == end[d]) return;
    }
    while (true) {
      int64_t cell = 0, elements = 1;
      for (size_t d = 0; d < n; ++d) {
        const Pair& pair = out->overlaps_[d].pairs[at[d]];
        cell = cell * out->overlaps_[d].from_rows + pair.from_row;
        elements *= pair.elements;
      }
      visit(cell, elements);
      size_t d = n;
      while (d > 0 && ++at[d - 1] == end[d - 1]) {
        at[d - 1] = begin[d - 1];
        --d;
      }
      if (d == 0) return;
    }
  };
  // Who sends a shard depends only on its holders and its receivers. For one device, only the shards that it has or
  // needs.
  std::vector<bool> wanted(cell_of.size(), !only);
  if (only) {
    if (const auto position = from.mesh->Position(*only)) wanted[cell_of[*position]] = true;
    if (const auto position = to.mesh->Position(*only)) {
      each_piece(*position, [&](int64_t cell, int64_t) { wanted[cell] = true; });
    }
  }
  std::vector<std::vector<int32_t>> holders(cell_of.size());  // of a cell: the dimensions' digits are disjoint
  for (size_t p = 0; p < cell_of.size(); ++p) {
    if (wanted[cell_of[p]]) holders[cell_of[p]].push_back(static_cast<int32_t>(p));
  }

  // Every piece, by receiver. If the receiver holds it itself, the sender is known. The others wait in the queue of
  // their shard, since an even share is only known when all of them are.
  std::vector<std::vector<int64_t>> waiting(holders.size());
  bool too_many = false;
  for (size_t p = 0; p < to_index.size() && !too_many; ++p) {
    const int32_t receiver = to_index[p];
    const int64_t own = receiver < from.mesh->size() ? cell_of[receiver] : -1;
    each_piece(p, [&](int64_t cell, int64_t elements) {
      if (!wanted[cell]) return;
      too_many |= static_cast<int64_t>(out->pieces_.size()) >= kMaxPieces;
      if (too_many) return;
      if (cell != own) waiting[cell].push_back(static_cast<int64_t>(out->pieces_.size()));
      const auto first_pair = static_cast<int64_t>(out->pair_refs_.size());
      for (const int64_t pair : at) out->pair_refs_.push_back(static_cast<int32_t>(pair));
      out->pieces_.push_back({cell == own ? receiver : -1, receiver, first_pair, elements});
    });
  }
  if (too_many) {
    return absl::ResourceExhaustedError(absl::StrCat("the exchange has more than ", kMaxPieces, " pieces"));
  }

  for (size_t c = 0; c < holders.size(); ++c) {
    if (waiting[c].empty()) continue;
    int64_t demand = 0;
    for (int64_t piece : waiting[c]) demand += out->pieces_[piece].elements;
    std::vector<int64_t> ids;
    for (int32_t holder : holders[c]) ids.push_back(out->ends_.devices[holder]);
    Turn turn(ids, demand, topology, first_holder);
    for (int64_t waits : waiting[c]) {
      BoxTransfer& piece = out->pieces_[waits];
      piece.sender = holders[c][turn.Next(out->ends_.devices[piece.receiver], piece.elements)];
    }
  }

  out->Sort();
  if (asked == Asked::kMessages) return out;
  out->SetSizes(from, to, from_rows, to_rows);
  out->Count(topology);
  out->FindAxes(refinement != nullptr ? refinement->digits : WholeAxes(*from.mesh));
  // What digits say is classified by MeshTransfers, unless it would overload a sender.
  out->Classify(from, to, out->ends_.same_mesh && refinement == nullptr);
  return out;
}

// Whether the fragments of each group add up to what every member has afterwards, and all that moves are whole ones.
bool ListTransfers::IsAllGather(const Mesh& mesh) const {
  const std::vector<AxisRef> axes = Axes();
  // The member whose coordinates along the axes are 0.
  const auto group_of = [&](int64_t position) {
    int64_t group = position;
    for (const AxisRef& axis : axes) {
      const int64_t rest = mesh.axis(axis.axis).size / (axis.pre * axis.size);
      group -= layout::CoordinateAlong(mesh, position, axis) * mesh.stride(axis.axis) * rest;
    }
    return group;
  };
  std::vector<int64_t> pooled(loads_.size(), 0);
  for (size_t p = 0; p < loads_.size(); ++p) pooled[group_of(static_cast<int64_t>(p))] += loads_[p].before;
  for (size_t p = 0; p < loads_.size(); ++p) {
    if (loads_[p].after != pooled[group_of(static_cast<int64_t>(p))]) return false;
  }
  return std::all_of(pieces_.begin(), pieces_.end(), [&](const BoxTransfer& piece) {
    return piece.elements == loads_[piece.sender].before && group_of(piece.sender) == group_of(piece.receiver);
  });
}

// Whether every device gets pieces of one size from as many devices as its group has, and has as much as before.
bool ListTransfers::IsAllToAll() const {
  std::vector<int64_t> pieces(loads_.size(), 0);
  for (const BoxTransfer& piece : pieces_) {
    ++pieces[piece.receiver];
    if (piece.elements * GroupSize() != loads_[piece.receiver].after) return false;
  }
  for (size_t p = 0; p < loads_.size(); ++p) {
    const DeviceLoad& load = loads_[p];
    if (load.before != load.after || (load.after > 0 && pieces[p] != GroupSize())) return false;
  }
  return true;
}

// Slice and AllPermute can be recognized piece by piece.
void ListTransfers::Classify(const Side& from, const Side& to, bool by_groups) {
  if (figures_.recv_total == 0 && ends_.same_mesh) {
    op_ = Op::kSlice;
    return;
  }
  op_ = Op::kExchange;
  if (by_groups && IsAllGather(*from.mesh)) op_ = Op::kAllGather;
  if (by_groups && op_ == Op::kExchange && IsAllToAll()) op_ = Op::kAllToAll;
  if (op_ != Op::kExchange) return;
  if (figures_.peers_max > 1 || figures_.recv_total == 0) return;
  const size_t n = overlaps_.size();
  for (size_t d = 0; d < n; ++d) {
    for (const Pair& pair : overlaps_[d].pairs) {
      if (pair.elements != from.dims[d]->length[pair.from_row] || pair.elements != to.dims[d]->length[pair.to_row]) {
        return;
      }
    }
  }
  // In a permute, a device that is in both meshes keeps its local shape.
  for (size_t d = 0; d < n; ++d) {
    const auto from_rows = RowsOf(*from.mesh, *from.dims[d]);
    const auto to_rows = RowsOf(*to.mesh, *to.dims[d]);
    for (size_t p = 0; p < to_rows.size(); ++p) {
      const auto q = from.mesh->Position(to.mesh->Device(static_cast<int64_t>(p)));
      if (!q) continue;
      const int64_t before = from.dims[d]->length[from_rows[*q]];
      if (before != to.dims[d]->length[to_rows[p]]) return;
    }
  }
  op_ = Op::kAllPermute;
}

PieceList::InOnePart ListTransfers::Contiguous(const BoxTransfer& piece) const {
  Contiguity in_from, in_to;
  for (size_t d = overlaps_.size(); d-- > 0;) {
    const Pair& pair = overlaps_[d].pairs[pair_refs_[static_cast<size_t>(piece.first_pair) + d]];
    in_from.AddDim(pair.in_from, pair.elements);
    in_to.AddDim(pair.in_to, pair.elements);
  }
  return {in_from.scattered().count == 0, in_to.scattered().count == 0};
}

Message ListTransfers::MakeMessage(const BoxTransfer& piece) const {
  Message message{ends_.devices[piece.sender], ends_.devices[piece.receiver], {}};
  message.runs.resize(rank_);
  for (size_t d = 0; d < static_cast<size_t>(rank_); ++d) {
    const DimOverlap& overlap = overlaps_[d];
    const Pair& pair = overlap.pairs[pair_refs_[static_cast<size_t>(piece.first_pair) + d]];
    const auto begin = overlap.runs.begin() + pair.first_run;
    message.runs[d].assign(begin, begin + pair.num_runs);
  }
  return message;
}

}  // namespace reshard::transfers
