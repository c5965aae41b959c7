#include "planner/transfers/list_transfers.h"

#include <algorithm>
#include <array>
#include <numeric>
#include <unordered_map>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "reshard/layout/checked.h"

namespace reshard::transfers {
namespace {

constexpr int64_t kMaxPieces = int64_t{1} << 24;

}  // namespace

// State: what each holder of one shard has sent so far, and whose turn it is.
class ListTransfers::Turn {
 public:
  Turn(std::vector<int64_t> holders, int64_t demand, const Topology& topology, int64_t first)
      : holders_(std::move(holders)),
        sent_(holders_.size(), 0),
        even_share_(CeilDiv(demand, static_cast<int64_t>(holders_.size()))),
        topology_(topology),
        at_(static_cast<size_t>(first) % holders_.size()) {}

  // The index of the holder that sends `elements` to `receiver`.
  size_t Next(int64_t receiver, int64_t elements) {
    const size_t h = holders_.size();
    size_t best = at_;
    const bool levels = topology_.num_levels() > 1;
    // Without levels nothing beats a holder that has not sent anything yet, so that the usual case looks at one holder.
    std::array<int64_t, 3> least = Cost(best, receiver);
    for (size_t step = 1; step < h && (levels || sent_[best] > 0); ++step) {
      const size_t other = (at_ + step) % h;
      const auto cost = Cost(other, receiver);
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
  // The level first; then whether the holder is on the receiver's rail, as long as it has not sent its even share; then
  // the load.
  std::array<int64_t, 3> Cost(size_t holder, int64_t receiver) const {
    if (topology_.num_levels() == 1) return {0, 0, sent_[holder]};
    const int64_t id = holders_[holder];
    const int64_t domain = topology_.levels[0].devices;
    const bool aligned = id % domain == receiver % domain && sent_[holder] < even_share_;
    return {topology_.LevelOf(id, receiver), aligned ? 0 : 1, sent_[holder]};
  }

  std::vector<int64_t> holders_;
  std::vector<int64_t> sent_;
  int64_t even_share_;
  const Topology& topology_;
  size_t at_;
};

absl::StatusOr<std::unique_ptr<ListTransfers>> ListTransfers::Create(const Side& from, const Side& to, int rank,
                                                                     const digits::Refinement* refinement,
                                                                     const Topology& topology, int64_t first_holder) {
  auto out = std::unique_ptr<ListTransfers>(new ListTransfers());
  out->rank_ = rank;
  out->same_mesh_ = *from.mesh == *to.mesh;
  const size_t n = from.dims.size();
  for (size_t d = 0; d < n; ++d) out->overlaps_.push_back(Overlap(*from.dims[d], *to.dims[d]));

  // Devices: those of the source mesh in order, then those only in the target mesh.
  std::unordered_map<int64_t, int32_t> index;
  for (int64_t p = 0; p < from.mesh->size(); ++p) {
    index.emplace(from.mesh->Device(p), static_cast<int32_t>(p));
    out->devices_.push_back(from.mesh->Device(p));
  }
  std::vector<int32_t> to_index(static_cast<size_t>(to.mesh->size()));
  for (int64_t p = 0; p < to.mesh->size(); ++p) {
    const auto [it, added] = index.emplace(to.mesh->Device(p), static_cast<int32_t>(out->devices_.size()));
    if (added) out->devices_.push_back(it->first);
    to_index[p] = it->second;
  }

  std::vector<std::vector<int32_t>> from_rows(n), to_rows(n);
  for (size_t d = 0; d < n; ++d) {
    from_rows[d] = RowsOf(*from.mesh, *from.dims[d]);
    to_rows[d] = RowsOf(*to.mesh, *to.dims[d]);
  }
  std::vector<std::vector<int32_t>> holders;
  std::unordered_map<int64_t, size_t> cell_index;
  std::vector<int64_t> cell_of(static_cast<size_t>(from.mesh->size()));
  for (size_t p = 0; p < cell_of.size(); ++p) {
    int64_t cell = 0;  // below the number of devices: the dimensions' digits are disjoint
    for (size_t d = 0; d < n; ++d) cell = cell * out->overlaps_[d].from_rows + from_rows[d][p];
    cell_of[p] = cell;
    const auto [it, added] = cell_index.emplace(cell, holders.size());
    if (added) holders.emplace_back();
    holders[it->second].push_back(static_cast<int32_t>(p));
  }

  // Every piece, by receiver. If the receiver holds it itself, the sender is known. The others wait in the queue of
  // their shard, since an even share is only known when all of them are.
  std::vector<std::vector<int64_t>> waiting(holders.size());
  std::vector<int64_t> begin(n), end(n), at(n);
  for (size_t p = 0; p < to_index.size(); ++p) {
    const int32_t receiver = to_index[p];
    bool nothing = false;
    for (size_t d = 0; d < n; ++d) {
      const auto t = static_cast<size_t>(to_rows[d][p]);
      begin[d] = at[d] = out->overlaps_[d].first_of_to[t];
      end[d] = out->overlaps_[d].first_of_to[t + 1];
      nothing |= begin[d] == end[d];
    }
    const int64_t own = receiver < from.mesh->size() ? cell_of[receiver] : -1;
    while (!nothing) {
      int64_t cell = 0, elements = 1;
      const int64_t first_pair = static_cast<int64_t>(out->pair_refs_.size());
      for (size_t d = 0; d < n; ++d) {
        const Pair& pair = out->overlaps_[d].pairs[at[d]];
        cell = cell * out->overlaps_[d].from_rows + pair.from_row;
        elements *= pair.elements;
        out->pair_refs_.push_back(static_cast<int32_t>(at[d]));
      }
      if (static_cast<int64_t>(out->pieces_.size()) >= kMaxPieces) {
        return absl::ResourceExhaustedError(absl::StrCat("the exchange has more than ", kMaxPieces, " pieces"));
      }
      if (cell != own) waiting[cell_index.at(cell)].push_back(static_cast<int64_t>(out->pieces_.size()));
      out->pieces_.push_back({cell == own ? receiver : -1, receiver, first_pair, elements});
      size_t d = n;
      while (d > 0 && ++at[d - 1] == end[d - 1]) {
        at[d - 1] = begin[d - 1];
        --d;
      }
      if (d == 0) break;
    }
  }

  out->loads_.assign(out->devices_.size(), {});
  for (size_t p = 0; p < cell_of.size(); ++p) {
    int64_t& before = out->loads_[p].before = 1;
    for (size_t d = 0; d < n; ++d) before *= from.dims[d]->length[from_rows[d][p]];
  }
  for (size_t p = 0; p < to_index.size(); ++p) {
    int64_t& after = out->loads_[to_index[p]].after = 1;
    for (size_t d = 0; d < n; ++d) after *= to.dims[d]->length[to_rows[d][p]];
  }

  for (size_t c = 0; c < holders.size(); ++c) {
    int64_t demand = 0;
    for (int64_t piece : waiting[c]) demand += out->pieces_[piece].elements;
    std::vector<int64_t> ids;
    for (int32_t holder : holders[c]) ids.push_back(out->devices_[holder]);
    Turn turn(std::move(ids), demand, topology, first_holder);
    for (int64_t waits : waiting[c]) {
      BoxTransfer& piece = out->pieces_[waits];
      piece.sender = holders[c][turn.Next(out->devices_[piece.receiver], piece.elements)];
    }
  }

  std::stable_sort(out->pieces_.begin(), out->pieces_.end(), [](const BoxTransfer& a, const BoxTransfer& b) {
    return a.receiver != b.receiver ? a.receiver < b.receiver : a.sender < b.sender;
  });
  const size_t devices = out->devices_.size();
  out->first_of_receiver_.assign(devices + 1, 0);
  out->first_of_sender_.assign(devices + 1, 0);
  for (const BoxTransfer& piece : out->pieces_) {
    ++out->first_of_receiver_[static_cast<size_t>(piece.receiver) + 1];
    ++out->first_of_sender_[static_cast<size_t>(piece.sender) + 1];
  }
  std::partial_sum(out->first_of_receiver_.begin(), out->first_of_receiver_.end(), out->first_of_receiver_.begin());
  std::partial_sum(out->first_of_sender_.begin(), out->first_of_sender_.end(), out->first_of_sender_.begin());
  out->by_sender_.resize(out->pieces_.size());
  auto next = out->first_of_sender_;
  for (size_t i = 0; i < out->pieces_.size(); ++i) {
    out->by_sender_[next[out->pieces_[i].sender]++] = static_cast<int32_t>(i);
  }

  out->Count(topology);
  out->Classify(from, to);
  if (out->same_mesh_) {
    // The digits (or whole axes) in which some sender and receiver differ.
    std::vector<digits::Digit> digits;
    if (refinement != nullptr) {
      digits = refinement->digits;
    } else {
      for (int a = 0; a < from.mesh->num_axes(); ++a) {
        digits.push_back({AxisRef{a, 1, from.mesh->axis(a).size}, from.mesh->axis(a).size, from.mesh->stride(a), 0});
      }
    }
    std::vector<bool> varies(digits.size(), false);
    for (const BoxTransfer& piece : out->pieces_) {
      for (size_t e = 0; e < digits.size(); ++e) {
        if (digits[e].Coordinate(piece.sender) != digits[e].Coordinate(piece.receiver)) varies[e] = true;
      }
    }
    out->axes_ = digits::MergeDigits(digits, varies);
    for (const AxisRef& ref : out->axes_) out->group_size_ *= ref.size;
  } else {
    out->group_size_ = 0;
    std::vector<bool> takes_part(devices, false);
    for (const BoxTransfer& piece : out->pieces_) {
      if (piece.sender == piece.receiver) continue;
      takes_part[piece.sender] = takes_part[piece.receiver] = true;
    }
    for (bool part : takes_part) out->group_size_ += part ? 1 : 0;
  }
  return out;
}

void ListTransfers::Count(const Topology& topology) {
  std::vector<int64_t> received(devices_.size(), 0), sent(devices_.size(), 0);
  const auto levels = static_cast<size_t>(topology.num_levels());
  std::vector<int64_t> senders(levels > 1 ? devices_.size() * levels : 0, 0), receivers = senders;
  for (DeviceLoad& load : loads_) load.levels.resize(levels > 1 ? levels : 0);
  for (const BoxTransfer& piece : pieces_) {
    if (piece.sender == piece.receiver) continue;
    DeviceLoad& receiver = loads_[piece.receiver];
    DeviceLoad& sender = loads_[piece.sender];
    receiver.recv += piece.elements;
    sender.send += piece.elements;
    ++received[piece.receiver];
    ++sent[piece.sender];
    Contiguity in_from, in_to;
    for (size_t d = overlaps_.size(); d-- > 0;) {
      const Pair& pair = overlaps_[d].pairs[pair_refs_[static_cast<size_t>(piece.first_pair) + d]];
      SpreadSums a, b;
      a.Add(pair.in_from, pair.elements);
      b.Add(pair.in_to, pair.elements);
      in_from.AddDim(a);
      in_to.AddDim(b);
    }
    sender.staging += in_from.scattered().elements;
    sender.staging_messages += in_from.scattered().count;
    receiver.staging += in_to.scattered().elements;
    receiver.staging_messages += in_to.scattered().count;
    if (levels == 1) continue;
    const auto level = static_cast<size_t>(topology.LevelOf(devices_[piece.sender], devices_[piece.receiver]));
    receiver.levels[level].recv += piece.elements;
    sender.levels[level].send += piece.elements;
    ++senders[static_cast<size_t>(piece.receiver) * levels + level];
    ++receivers[static_cast<size_t>(piece.sender) * levels + level];
  }
  for (size_t i = 0; levels > 1 && i < senders.size(); ++i) {
    loads_[i / levels].levels[i % levels].peers = std::max(senders[i], receivers[i]);
  }
  for (size_t i = 0; i < loads_.size(); ++i) {
    figures_.recv_max = std::max(figures_.recv_max, loads_[i].recv);
    figures_.recv_total += loads_[i].recv;
    figures_.messages_total += received[i];
    figures_.send_max = std::max(figures_.send_max, loads_[i].send);
    figures_.peers_max = std::max({figures_.peers_max, received[i], sent[i]});
  }
}

// Slice and AllPermute can be recognized piece by piece. The other ops are defined by groups, and stay Exchange here.
void ListTransfers::Classify(const Side& from, const Side& to) {
  if (figures_.recv_total == 0 && same_mesh_) {
    op_ = Op::kSlice;
    return;
  }
  op_ = Op::kExchange;
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

Message ListTransfers::MakeMessage(const BoxTransfer& piece) const {
  Message message{devices_[piece.sender], devices_[piece.receiver], {}};
  message.runs.resize(rank_);
  for (size_t d = 0; d < static_cast<size_t>(rank_); ++d) {
    const DimOverlap& overlap = overlaps_[d];
    const Pair& pair = overlap.pairs[pair_refs_[static_cast<size_t>(piece.first_pair) + d]];
    const auto begin = overlap.runs.begin() + pair.first_run;
    message.runs[d].assign(begin, begin + pair.num_runs);
  }
  return message;
}

std::vector<Message> ListTransfers::Receives(int64_t device) const {
  std::vector<Message> out;
  const auto it = std::find(devices_.begin(), devices_.end(), device);
  if (it == devices_.end()) return out;
  const auto i = static_cast<size_t>(it - devices_.begin());
  for (int64_t p = first_of_receiver_[i]; p < first_of_receiver_[i + 1]; ++p) {
    out.push_back(MakeMessage(pieces_[p]));
  }
  std::sort(out.begin(), out.end(), [](const Message& a, const Message& b) { return a.sender < b.sender; });
  return out;
}

std::vector<Message> ListTransfers::Sends(int64_t device) const {
  std::vector<Message> out;
  const auto it = std::find(devices_.begin(), devices_.end(), device);
  if (it == devices_.end()) return out;
  const auto i = static_cast<size_t>(it - devices_.begin());
  for (int64_t k = first_of_sender_[i]; k < first_of_sender_[i + 1]; ++k) {
    out.push_back(MakeMessage(pieces_[by_sender_[k]]));
  }
  std::sort(out.begin(), out.end(), [](const Message& a, const Message& b) { return a.receiver < b.receiver; });
  return out;
}

}  // namespace reshard::transfers
