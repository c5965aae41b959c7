// MeshTransfers: which op its pattern is, along which axes data moves, and its single messages.
#include <algorithm>

#include "planner/transfers/mesh_transfers.h"

namespace reshard::transfers {

void MeshTransfers::FindAxes() {
  axes_.assign(digits_.size(), false);
  if (figures_.recv_total == 0) return;
  // The weight of the digit in the rows of one side of the dimension that it shards there.
  const auto weight = [](const digits::RowDigits& side, int digit) {
    return side.weights[std::find(side.digits.begin(), side.digits.end(), digit) - side.digits.begin()];
  };
  for (size_t e = 0; e < digits_.size(); ++e) {
    const int digit = static_cast<int>(e);
    const int64_t size = digits_[e].size;
    if (from_dim_[e] < 0) {
      // The senders of a receiver have its coordinate on sigma(e) as theirs on e. So data moves along e only if these
      // two coordinates of some receiver differ.
      for (const Sigma& sigma : sigma_) {
        for (size_t i = 0; sigma[e] != digit && i < num_classes_; ++i) {
          if (load(i).recv > 0 && coordinate(i, digit) != coordinate(i, sigma[e])) axes_[e] = true;
        }
      }
      continue;
    }
    if (to_dim_[e] < 0) {
      axes_[e] = true;  // the receiver may have any coordinate, the sender has that of the shard
      continue;
    }
    const Dim& from = dims_[from_dim_[e]];
    const Dim& to = dims_[to_dim_[e]];
    const int64_t sent = weight(from.from, digit), received = weight(to.to, digit);
    const auto sender = [&](const Pair& pair) { return pair.from_row / sent % size; };
    const auto receiver = [&](const Pair& pair) { return pair.to_row / received % size; };
    if (to_dim_[e] == from_dim_[e]) {
      // In the same dimension the pairs say, for each message, whether the two coordinates differ.
      axes_[e] = std::any_of(from.overlap->pairs.begin(), from.overlap->pairs.end(),
                             [&](const Pair& pair) { return sender(pair) != receiver(pair); });
    } else {
      // In different dimensions any of these coordinates of a sender meets any of those of a receiver. There are pairs:
      // something is received.
      const int64_t one = sender(from.overlap->pairs[0]);
      axes_[e] = std::any_of(from.overlap->pairs.begin(), from.overlap->pairs.end(),
                             [&](const Pair& pair) { return sender(pair) != one; }) ||
                 std::any_of(to.overlap->pairs.begin(), to.overlap->pairs.end(),
                             [&](const Pair& pair) { return receiver(pair) != one; });
    }
  }
  for (size_t e = 0; e < digits_.size(); ++e) {
    if (axes_[e]) group_size_ *= digits_[e].size;
  }
}

std::vector<AxisRef> MeshTransfers::Axes() const { return digits::MergeDigits(digits_, axes_); }

// Whether every shard of a group goes completely into every member's fragment, which contains nothing else.
bool MeshTransfers::IsAllGather() const {
  for (size_t e = 0; e < digits_.size(); ++e) {
    if (axes_[e] && from_dim_[e] < 0) return false;
  }
  for (const Dim& dim : dims_) {
    for (const Pair& pair : dim.overlap->pairs) {
      if (pair.elements != dim.from_length[pair.from_row]) return false;
    }
    // Rows of the source that a member of the group of a device in target row t can hold: all that agree with t on the
    // digits outside the axes. They must add up to row t.
    std::vector<int64_t> fixed_from(static_cast<size_t>(dim.overlap->from_rows), 0);
    std::vector<int64_t> fixed_to(static_cast<size_t>(dim.overlap->to_rows), 0);
    int64_t keys = 1;
    for (size_t j = 0; j < dim.from.digits.size(); ++j) {
      const int digit = dim.from.digits[j];
      const int64_t size = digits_[digit].size;
      if (axes_[digit]) continue;
      const auto at = std::find(dim.to.digits.begin(), dim.to.digits.end(), digit);
      if (at == dim.to.digits.end()) return false;
      const int64_t to_weight = dim.to.weights[at - dim.to.digits.begin()];
      for (size_t s = 0; s < fixed_from.size(); ++s) {
        fixed_from[s] = fixed_from[s] * size + static_cast<int64_t>(s) / dim.from.weights[j] % size;
      }
      for (size_t t = 0; t < fixed_to.size(); ++t) {
        fixed_to[t] = fixed_to[t] * size + static_cast<int64_t>(t) / to_weight % size;
      }
      keys *= size;
    }
    std::vector<int64_t> pooled(static_cast<size_t>(keys), 0);
    for (size_t s = 0; s < fixed_from.size(); ++s) pooled[fixed_from[s]] += dim.from_length[s];
    for (size_t t = 0; t < fixed_to.size(); ++t) {
      if (pooled[fixed_to[t]] != dim.to_length[t]) return false;
    }
  }
  return true;
}

// Whether every member of a group gets pieces of one size from every member. Since a device holds as much as it gets,
// that size is then the same for all members. Groups that hold nothing exchange nothing.
bool MeshTransfers::IsAllToAll() const {
  for (const Dim& dim : dims_) {
    for (const Pair& pair : dim.overlap->pairs) {
      const auto first = static_cast<size_t>(dim.overlap->first_of_to[pair.to_row]);
      if (pair.elements != dim.overlap->pairs[first].elements) return false;
    }
  }
  for (size_t i = 0; i < num_classes_; ++i) {
    const DeviceLoad& one = load(i);
    if (one.before != one.after) return false;
    if (one.before == 0) continue;
    int64_t count = 1;
    for (const Dim& dim : dims_) {
      count *= dim.received.back().At(dim.to_row[i], coordinates(i)).total_count();
      if (dim.overlap->Find(dim.from_row[i], dim.to_row[i]) == nullptr) return false;
    }
    if (count != group_size_) return false;
  }
  return true;
}

void MeshTransfers::ClassifyPattern() {
  op_ = Op::kExchange;
  if (figures_.recv_total == 0) {
    op_ = Op::kSlice;
    return;
  }
  if (IsAllGather()) {
    op_ = Op::kAllGather;
    return;
  }
  if (IsAllToAll()) {
    op_ = Op::kAllToAll;
    return;
  }
  // In a permute no device has more than one peer, shapes stay, and shards stay whole.
  op_ = Op::kExchange;
  if (figures_.peers_max > 1) return;
  for (size_t i = 0; i < num_classes_; ++i) {
    for (const Dim& dim : dims_) {
      if (dim.from_length[dim.from_row[i]] != dim.to_length[dim.to_row[i]]) return;
    }
  }
  for (const Dim& dim : dims_) {
    for (const Pair& pair : dim.overlap->pairs) {
      if (pair.elements != dim.from_length[pair.from_row] || pair.elements != dim.to_length[pair.to_row]) {
        return;
      }
    }
  }
  op_ = Op::kAllPermute;
}

Message MeshTransfers::MakeMessage(int64_t sender, int64_t receiver, const std::vector<const Pair*>& pairs) const {
  Message message{mesh_.Device(sender), mesh_.Device(receiver), {}};
  message.runs.resize(rank_);
  for (size_t d = 0; d < static_cast<size_t>(rank_); ++d) {
    const auto begin = dims_[d].runs->runs.begin() + pairs[d]->first_run;
    message.runs[d].assign(begin, begin + pairs[d]->num_runs);
  }
  return message;
}

int MeshTransfers::LevelOf(int64_t holder, int64_t receiver) const {
  int level = -1;
  for (size_t d = 0; d < digits_.size(); ++d) {
    if (from_dim_[d] < 0 || digits_[d].Coordinate(holder) == digits_[d].Coordinate(receiver)) continue;
    level = std::max(level, digits_[d].level);
  }
  return level;
}

void MeshTransfers::EachReceived(int64_t position, PieceVisitor visit) const {
  const size_t n = dims_.size();
  std::vector<const Pair*> begin(n), end(n), at(n);
  std::vector<int64_t> own(n);
  for (size_t d = 0; d < n; ++d) {
    const Dim& dim = dims_[d];
    own[d] = dim.from.RowAt(position, digits_);
    const auto t = static_cast<size_t>(dim.to.RowAt(position, digits_));
    begin[d] = dim.runs->pairs.data() + dim.runs->first_of_to[t];
    end[d] = dim.runs->pairs.data() + dim.runs->first_of_to[t + 1];
    if (begin[d] == end[d]) return;
    at[d] = begin[d];
  }
  while (true) {
    // What the device holds itself it keeps, whatever sigma says. Otherwise the holder has the shard's coordinates on
    // the source's digits, and the receiver's (by sigma) on the others.
    int64_t sender = position;
    bool kept = true;
    for (size_t d = 0; d < n; ++d) kept &= at[d]->from_row == own[d];
    if (!kept) {
      sender = 0;
      for (size_t d = 0; d < n; ++d) {
        const Dim& dim = dims_[d];
        for (size_t j = 0; j < dim.from.digits.size(); ++j) {
          const digits::Digit& digit = digits_[dim.from.digits[j]];
          sender += at[d]->from_row / dim.from.weights[j] % digit.size * digit.stride;
        }
      }
      const int level = std::max(0, LevelOf(sender, position));
      for (size_t e = 0; e < digits_.size(); ++e) {
        if (from_dim_[e] >= 0) continue;
        const int as = digits_[e].level > level ? static_cast<int>(e) : sigma_[level][e];
        sender += digits_[as].Coordinate(position) * digits_[e].stride;
      }
    }
    visit(sender, at);
    size_t d = n;
    while (d > 0 && ++at[d - 1] == end[d - 1]) {
      at[d - 1] = begin[d - 1];
      --d;
    }
    if (d == 0) break;
  }
}

// The receivers have the shard's pairs in every dimension, the device's coordinates where they are pinned to it, and
// any on the other digits that no dimension says anything about.
void MeshTransfers::EachSent(int64_t position, PieceVisitor visit) const {
  const size_t n = dims_.size();
  std::vector<std::vector<const Pair*>> of_shard(n);
  std::vector<const Pair*> pairs(n);
  std::vector<int64_t> own(n);
  for (size_t d = 0; d < n; ++d) {
    const Dim& dim = dims_[d];
    own[d] = dim.from.RowAt(position, digits_);
    const DimOverlap& overlap = *dim.runs;
    for (int64_t i = overlap.first_of_from[own[d]]; i < overlap.first_of_from[static_cast<size_t>(own[d]) + 1]; ++i) {
      of_shard[d].push_back(&overlap.pairs[overlap.by_from[i]]);
    }
    if (of_shard[d].empty()) return;
    pairs[d] = dim.runs->Find(own[d], dim.to.RowAt(position, digits_));
  }
  const auto keeps = [](const Pair* pair) { return pair != nullptr; };
  if (std::all_of(pairs.begin(), pairs.end(), keeps)) visit(position, pairs);
  for (int level = 0; level < num_levels_; ++level) {
    const Receivers& receivers = within_[level];
    const auto agree = [&](const std::pair<int, int>& digits) {
      return digits_[digits.first].Coordinate(position) == digits_[digits.second].Coordinate(position);
    };
    if (!std::all_of(receivers.equal.begin(), receivers.equal.end(), agree)) continue;
    std::vector<int> free_digits;
    int64_t first = 0;  // the coordinates on digits that no dimension decides
    for (size_t f = 0; f < digits_.size(); ++f) {
      if (receivers.pinned_by[f] >= 0) {
        if (to_dim_[f] < 0) first += digits_[receivers.pinned_by[f]].Coordinate(position) * digits_[f].stride;
      } else if (to_dim_[f] < 0) {
        free_digits.push_back(static_cast<int>(f));
      }
    }
    // Per dimension, the pairs that agree with the pins, each with what it says about the receiver's position.
    std::vector<std::vector<std::pair<int64_t, const Pair*>>> choices(n);
    bool nobody = false;
    for (size_t d = 0; d < n; ++d) {
      const Dim& dim = dims_[d];
      for (const Pair* pair : of_shard[d]) {
        int64_t part = 0;
        bool agrees = true;
        for (size_t j = 0; j < dim.to.digits.size(); ++j) {
          const digits::Digit& digit = digits_[dim.to.digits[j]];
          const int64_t coordinate = pair->to_row / dim.to.weights[j] % digit.size;
          const int by = receivers.pinned_by[dim.to.digits[j]];
          agrees &= by < 0 || digits_[by].Coordinate(position) == coordinate;
          part += coordinate * digit.stride;
        }
        if (agrees) choices[d].emplace_back(part, pair);
      }
      nobody |= choices[d].empty();
    }
    if (nobody) continue;
    std::vector<size_t> chosen(n, 0);
    std::vector<int64_t> at(free_digits.size(), 0);
    while (true) {
      int64_t r = first;
      for (size_t d = 0; d < n; ++d) {
        r += choices[d][chosen[d]].first;
        pairs[d] = choices[d][chosen[d]].second;
      }
      for (size_t i = 0; i < at.size(); ++i) r += at[i] * digits_[free_digits[i]].stride;
      if (LevelOf(position, r) == level) visit(r, pairs);
      size_t i = at.size();
      while (i > 0 && ++at[i - 1] == digits_[free_digits[i - 1]].size) at[--i] = 0;
      if (i > 0) continue;
      size_t d = n;
      while (d > 0 && ++chosen[d - 1] == choices[d - 1].size()) chosen[--d] = 0;
      if (d == 0) break;
    }
  }
}

void MeshTransfers::TakeRuns(const MeshTransfers& prepared) {
  for (size_t d = 0; d < dims_.size(); ++d) dims_[d].runs = prepared.dims_[d].overlap;
}

std::vector<Message> MeshTransfers::Receives(int64_t device) const {
  std::vector<Message> out;
  const auto position = mesh_.Position(device);
  if (!position) return out;
  EachReceived(*position, [&](int64_t sender, const std::vector<const Pair*>& pairs) {
    out.push_back(MakeMessage(sender, *position, pairs));
  });
  std::sort(out.begin(), out.end(), [](const Message& a, const Message& b) { return a.sender < b.sender; });
  return out;
}

std::vector<Message> MeshTransfers::Sends(int64_t device) const {
  std::vector<Message> out;
  const auto position = mesh_.Position(device);
  if (!position) return out;
  EachSent(*position, [&](int64_t receiver, const std::vector<const Pair*>& pairs) {
    out.push_back(MakeMessage(*position, receiver, pairs));
  });
  std::sort(out.begin(), out.end(), [](const Message& a, const Message& b) { return a.receiver < b.receiver; });
  return out;
}

}  // namespace reshard::transfers
