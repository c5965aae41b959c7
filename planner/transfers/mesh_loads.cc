// MeshTransfers: what a device receives and sends, and how much of it crosses which level.
#include <algorithm>

#include "planner/transfers/mesh_transfers.h"
#include "reshard/layout/checked.h"

namespace reshard::transfers {

PinnedSums::PinnedSums(const DimOverlap& overlap, const std::vector<digits::Digit>& digits,
                       const digits::RowDigits& own, const digits::RowDigits& other, const std::vector<int>& fixed_by,
                       bool of_receivers) {
  // A digit that the row itself fixes selects pairs; any other one becomes part of the key, so that one table serves
  // all devices.
  struct Condition {
    int64_t weight, size;    // of the digit in the other row
    int64_t own_weight = 0;  // of the digit that fixes it in the own row; 0: it is in the key
    int64_t Of(int64_t row) const { return row / weight % size; }
  };
  std::vector<Condition> conditions, keys;
  for (size_t j = 0; j < other.digits.size(); ++j) {
    if (fixed_by[j] < 0) continue;
    Condition one{other.weights[j], digits[other.digits[j]].size};
    const auto at = std::find(own.digits.begin(), own.digits.end(), fixed_by[j]);
    if (at != own.digits.end()) {
      one.own_weight = own.weights[at - own.digits.begin()];
      conditions.push_back(one);
    } else {
      keys.push_back(one);
      keys_.emplace_back(fixed_by[j], one.size);
      num_keys_ *= one.size;
    }
  }
  const int64_t rows = of_receivers ? overlap.to_rows : overlap.from_rows;
  sums_.resize(rows * num_keys_);
  for (const Pair& pair : overlap.pairs) {
    const int64_t mine = of_receivers ? pair.to_row : pair.from_row;
    const int64_t theirs = of_receivers ? pair.from_row : pair.to_row;
    bool counts = true;
    for (const Condition& c : conditions) counts &= c.Of(theirs) == mine / c.own_weight % c.size;
    if (!counts) continue;
    int64_t key = 0;
    for (const Condition& c : keys) key = key * c.size + c.Of(theirs);
    Sum& sum = sums_[mine * num_keys_ + key];
    sum.elements += pair.elements;
    sum.count += 1;
  }
}

PinnedSums::Sum PinnedSums::At(int64_t row, const int64_t* coordinates) const {
  int64_t key = 0;
  for (const auto& [digit, size] : keys_) key = key * size + coordinates[digit];
  return sums_[row * num_keys_ + key];
}

void MeshTransfers::SumNear() {
  for (Dim& dim : dims_) {
    for (int level = 0; level + 1 < num_levels_; ++level) {
      auto outside = [&](int digit) { return digits_[digit].level > level; };
      // A sender of the same domain has the receiver's coordinates on the digits outside it.
      std::vector<int> sender(dim.from.digits.size(), -1);
      for (size_t j = 0; j < sender.size(); ++j) {
        if (outside(dim.from.digits[j])) sender[j] = dim.from.digits[j];
      }
      dim.received_near.emplace_back(dim.overlap, digits_, dim.to, dim.from, sender, true);
      std::vector<int> receiver(dim.to.digits.size(), -1);
      for (size_t j = 0; j < receiver.size(); ++j) {
        const int f = dim.to.digits[j];
        receiver[j] = sigma_inverse_[f];
        if (receiver[j] < 0 && outside(f)) receiver[j] = f;
      }
      dim.sent_near.emplace_back(dim.overlap, digits_, dim.from, dim.to, receiver, false);
    }
  }
}

// The transfers that crosses a level is what stays within its domains minus what stays within the domains of the next
// level in. Both are products over dimensions, which the crossing transfers itself is not.
void MeshTransfers::AddLevels(const int64_t* coordinates, const Peers& peers, int64_t own, int64_t kept,
                              int64_t kept_messages, DeviceLoad& load) const {
  load.levels.resize(num_levels_);
  PinnedSums::Sum received_inside, sent_inside;  // of the domains inside, the device itself left out
  for (int level = 0; level < num_levels_; ++level) {
    PinnedSums::Sum received{1, 1}, sent{1, 1};
    if (level + 1 == num_levels_) {
      received = {load.recv, peers.senders};
      sent = {load.send, peers.receivers};
    } else {
      for (const Dim& dim : dims_) {
        const auto r = dim.received_near[level].At(dim.to.Row(coordinates), coordinates);
        const auto s = dim.sent_near[level].At(dim.from.Row(coordinates), coordinates);
        received = {received.elements * r.elements, received.count * r.count};
        sent = {sent.elements * s.elements, sent.count * s.count};
      }
      int64_t receivers = 1;
      for (size_t f = 0; f < digits_.size(); ++f) {
        if (!active_digit_[f]) continue;
        const bool outside = digits_[f].level > level;
        if (to_dim_[f] < 0 && sigma_inverse_[f] < 0 && !outside) receivers *= digits_[f].size;
        // A receiver in the same domain has this device's coordinate on f; by sigma it also has that on the inverse of
        // f. If the two differ there is no such receiver.
        if (outside && sigma_inverse_[f] >= 0 && coordinates[sigma_inverse_[f]] != coordinates[f]) receivers = 0;
      }
      received = {received.elements - own, received.count - (own > 0 ? 1 : 0)};
      sent = {receivers * sent.elements - kept, receivers * sent.count - kept_messages};
    }
    LevelLoad& out = load.levels[level];
    out.recv = received.elements - received_inside.elements;
    out.send = sent.elements - sent_inside.elements;
    out.peers = std::max(received.count - received_inside.count, sent.count - sent_inside.count);
    received_inside = received;
    sent_inside = sent;
  }
}

void MeshTransfers::CountLevels(const Topology& topology) {
  uniform_ = false;
  const auto levels = static_cast<size_t>(topology.num_levels());
  counted_levels_.assign(static_cast<size_t>(mesh_.size()), std::vector<LevelLoad>(levels));
  std::vector<int64_t> peers(levels);
  for (int64_t p = 0; p < mesh_.size(); ++p) {
    std::vector<LevelLoad>& of_device = counted_levels_[p];
    for (const bool receiving : {true, false}) {
      std::fill(peers.begin(), peers.end(), 0);
      for (const Message& message : receiving ? Receives(mesh_.Device(p)) : Sends(mesh_.Device(p))) {
        if (message.sender == message.receiver) continue;
        const auto level = static_cast<size_t>(topology.LevelOf(message.sender, message.receiver));
        (receiving ? of_device[level].recv : of_device[level].send) += message.elements();
        of_device[level].peers = std::max(of_device[level].peers, ++peers[level]);
      }
    }
  }
}

DeviceLoad MeshTransfers::LoadOf(const int64_t* coordinates, Peers& peers) const {
  // Digits of receivers that neither a dimension of the target nor the sender's coordinates fix: every value of these
  // is one more receiver.
  int64_t receivers = 1, kept_receivers = 1;
  // Receivers that hold this device's shard themselves are paired with it by sigma only if its swapped digits agree.
  bool keeps = true;
  for (size_t f = 0; f < digits_.size(); ++f) {
    if (active_digit_[f] && to_dim_[f] < 0 && sigma_inverse_[f] < 0) receivers *= digits_[f].size;
    if (!swapped(f)) continue;
    if (to_dim_[f] < 0) kept_receivers *= digits_[f].size;
    keeps = keeps && coordinates[f] == coordinates[sigma_[f]];
  }
  Contiguity received, sent, kept, own_in_to;
  bool own = true;
  DeviceLoad load;
  load.before = load.after = 1;
  // From the fastest dimension to the slowest, as Contiguity needs it.
  for (size_t d = dims_.size(); d-- > 0;) {
    const Dim& dim = dims_[d];
    const int64_t s = dim.from.Row(coordinates), t = dim.to.Row(coordinates);
    load.before *= dim.from_length[s];
    load.after *= dim.to_length[t];
    received.AddDim(dim.received[t]);
    auto key = [&](const std::vector<int>& pins) {
      int64_t out = 0;
      for (size_t j = 0; j < pins.size(); ++j) {
        if (pins[j] >= 0) out = out * digits_[dim.to.digits[j]].size + coordinates[pins[j]];
      }
      return out;
    };
    sent.AddDim(dim.sent[s * dim.sent_pinned + key(dim.sent_pins)]);
    if (has_swaps_) kept.AddDim(dim.kept[s * dim.kept_pinned + key(dim.kept_pins)]);
    const Pair* pair = dim.overlap.Find(s, t);
    own = own && pair != nullptr;
    if (!own) continue;
    SpreadSums in_to;
    in_to.Add(pair->in_to, pair->elements);
    own_in_to.AddDim(in_to);
    if (has_swaps_) continue;
    SpreadSums in_from;
    in_from.Add(pair->in_from, pair->elements);
    kept.AddDim(in_from);
  }
  const int64_t kept_times = has_swaps_ ? (keeps ? kept_receivers : 0) : own ? 1 : 0;
  const auto own_sum = own ? own_in_to.all() : Contiguity::Sum{0, 0};
  const auto own_scattered = own ? own_in_to.scattered() : Contiguity::Sum{0, 0};
  load.recv = received.all().elements - own_sum.elements;
  load.send = receivers * sent.all().elements - kept_times * kept.all().elements;
  peers.senders = received.all().count - own_sum.count;
  peers.receivers = receivers * sent.all().count - kept_times * kept.all().count;
  load.staging = received.scattered().elements - own_scattered.elements + receivers * sent.scattered().elements -
                 kept_times * kept.scattered().elements;
  load.staging_messages = received.scattered().count - own_scattered.count + receivers * sent.scattered().count -
                          kept_times * kept.scattered().count;
  if (num_levels_ > 1) {
    AddLevels(coordinates, peers, own_sum.elements, kept_times * kept.all().elements, kept_times * kept.all().count,
              load);
  }
  return load;
}

bool MeshTransfers::ComputeLoads() {
  std::vector<int64_t> sends(classes_.size(), 0);  // messages
  loads_.reserve(classes_.size());
  for (size_t i = 0; i < classes_.size(); ++i) {
    Peers peers;
    loads_.push_back(LoadOf(coordinates(i), peers));
    const DeviceLoad& load = loads_.back();
    sends[i] = peers.receivers;
    figures_.recv_max = std::max(figures_.recv_max, load.recv);
    figures_.recv_total += load.recv * classes_[i].devices;
    figures_.messages_total += peers.senders * classes_[i].devices;
    figures_.send_max = std::max(figures_.send_max, load.send);
    figures_.peers_max = std::max({figures_.peers_max, peers.senders, peers.receivers});
  }
  return Balanced(sends);
}

// Whether no device sends more than its share of its shard's pieces, rounded up, or, if pieces differ in size, more
// than its share of the elements plus the largest piece. A sender's mean piece, rounded up, is used for the largest,
// since it is never above it: the check can only be too strict, and ListTransfers then balances.
bool MeshTransfers::Balanced(const std::vector<int64_t>& sends) const {
  int64_t cells = 1, active = 1;
  for (const Dim& dim : dims_) cells *= dim.overlap.from_rows;
  for (size_t e = 0; e < digits_.size(); ++e) active *= active_digit_[e] ? digits_[e].size : 1;
  const int64_t holders = active / cells;
  if (holders <= 1) return true;
  if (uniform_) {
    // All pieces are of one size. A shard's receivers are the devices whose digits agree with it wherever the target
    // puts one at the shard's place; the holders among them keep what they have.
    for (size_t i = 0; i < classes_.size(); ++i) {
      if (sends[i] == 0) continue;
      int64_t receivers = active, keepers = holders;
      for (const auto& [e, f] : met_) {
        receivers /= digits_[f].size;
        if (e == f) continue;
        if (from_dim_[f] < 0) {
          keepers /= digits_[f].size;
        } else if (coordinate(i, e) != coordinate(i, f)) {
          keepers = 0;
        }
      }
      const int64_t pieces = receivers - keepers;
      if (sends[i] > CeilDiv(pieces, holders)) return false;
    }
    return true;
  }
  std::vector<int64_t> demand(static_cast<size_t>(cells), 0), pieces = demand;
  auto cell_of = [&](size_t i) {
    int64_t cell = 0;
    for (const Dim& dim : dims_) cell = cell * dim.overlap.from_rows + dim.from_row[i];
    return static_cast<size_t>(cell);
  };
  for (size_t i = 0; i < classes_.size(); ++i) {
    demand[cell_of(i)] += loads_[i].send;
    pieces[cell_of(i)] += sends[i];
  }
  for (size_t i = 0; i < classes_.size(); ++i) {
    if (sends[i] == 0) continue;
    const size_t cell = cell_of(i);
    const int64_t piece = CeilDiv(loads_[i].send, sends[i]);
    const bool equal = demand[cell] == pieces[cell] * piece;
    const int64_t share = equal ? CeilDiv(pieces[cell], holders) * piece : CeilDiv(demand[cell], holders) + piece;
    if (loads_[i].send > share) return false;
  }
  return true;
}

std::vector<int64_t> MeshTransfers::Devices() const {
  std::vector<int64_t> out(static_cast<size_t>(mesh_.size()));
  for (size_t p = 0; p < out.size(); ++p) out[p] = mesh_.Device(static_cast<int64_t>(p));
  return out;
}

DeviceLoad MeshTransfers::Load(int64_t index) const {
  if (uniform_ || !counted_levels_.empty()) {
    std::vector<int64_t> of_device;
    for (const digits::Digit& digit : digits_) of_device.push_back(digit.Coordinate(index));
    Peers peers;
    DeviceLoad load = LoadOf(of_device.data(), peers);
    if (!counted_levels_.empty()) load.levels = counted_levels_[index];
    return load;
  }
  int64_t active = 0;
  for (size_t e = 0; e < digits_.size(); ++e) {
    if (active_digit_[e]) active = active * digits_[e].size + digits_[e].Coordinate(index);
  }
  return loads_[active];
}

}  // namespace reshard::transfers
