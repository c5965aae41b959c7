#include "planner/transfers/reduce_transfers.h"

#include <algorithm>
#include <map>

#include "absl/status/status.h"

namespace reshard::transfers {
bool ReduceTransfers::AllAlike(const std::vector<const DimShards*>& from, const std::vector<const DimShards*>& to,
                               const std::vector<int>& reduced) const {
  size_t scattered = 0;
  int64_t source = 1, target = 1;
  for (size_t d = 0; d < from.size(); ++d) {
    for (const auto* side : {from[d], to[d]}) {
      for (int64_t length : side->length) {
        if (length == 0 || length != side->length[0]) return false;
      }
    }
    source *= from[d]->length[0];
    target *= to[d]->length[0];
    auto is_reduced = [&](int digit) { return std::find(reduced.begin(), reduced.end(), digit) != reduced.end(); };
    // Weight in the source's row of each of the target's digits; 0 for those that are scattered.
    std::vector<int64_t> weights;
    size_t kept = 0;
    for (int digit : to_[d].digits) {
      const auto at = std::find(from_[d].digits.begin(), from_[d].digits.end(), digit);
      const bool found = at != from_[d].digits.end();
      if (found == is_reduced(digit)) return false;
      weights.push_back(found ? from_[d].weights[at - from_[d].digits.begin()] : 0);
      ++(found ? kept : scattered);
    }
    if (kept != from_[d].digits.size()) return false;
    for (int64_t t = 0; t < overlaps_[d].to_rows; ++t) {
      int64_t s = 0;
      for (size_t j = 0; j < weights.size(); ++j) {
        s += t / to_[d].weights[j] % digits_[to_[d].digits[j]].size * weights[j];
      }
      const Pair* pair = overlaps_[d].Find(s, t);
      if (pair == nullptr || pair->elements != to[d]->length[0]) return false;
    }
  }
  const auto n = static_cast<int64_t>(members_.size());
  if (op_ == Op::kAllReduce) return scattered == 0 && source % n == 0;
  return scattered == reduced.size() && source == target * n;
}

// Adds how much of the members' parts, which arrive one by one, crosses which level.
void ReduceTransfers::AddLevels(int64_t position, const Topology& topology, DeviceLoad& load) const {
  if (topology.num_levels() == 1) return;
  load.levels.resize(topology.num_levels());
  const int64_t base = Base(position);
  const auto n = static_cast<int64_t>(members_.size());
  const auto own =
      static_cast<int64_t>(std::lower_bound(members_.begin(), members_.end(), position - base) - members_.begin());
  for (int64_t i = 0; i < n; ++i) {
    if (i == own) continue;
    const int64_t member = base + members_[i];
    LevelLoad& level = load.levels[topology.LevelOf(mesh_.Device(position), mesh_.Device(member))];
    int64_t received = load.after, sent = 0;
    if (op_ == Op::kAllReduce) {
      // This device's chunk arrives from every member and goes to every member, and theirs the other way round.
      received = sent = AllReduceChunk(load.before, n, own).length() + AllReduceChunk(load.before, n, i).length();
    } else {
      sent = 1;
      for (size_t d = 0; d < overlaps_.size(); ++d) {
        const Pair* pair = overlaps_[d].Find(from_[d].RowAt(position, digits_), to_[d].RowAt(member, digits_));
        sent *= pair == nullptr ? 0 : pair->elements;
      }
    }
    level.recv += received;
    level.send += sent;
    if (received > 0 || sent > 0) ++level.peers;
  }
}

absl::StatusOr<std::unique_ptr<ReduceTransfers>> ReduceTransfers::Create(Op op, const Mesh& mesh,
                                                                         const digits::Refinement& refinement,
                                                                         const std::vector<int>& reduced,
                                                                         const std::vector<const DimShards*>& from,
                                                                         const std::vector<const DimShards*>& to,
                                                                         const Topology& topology, bool aligned) {
  auto out = std::unique_ptr<ReduceTransfers>(new ReduceTransfers());
  out->op_ = op;
  out->mesh_ = mesh;
  out->digits_ = refinement.digits;
  for (int digit : reduced) out->reduced_.push_back(refinement.digits[digit]);
  out->members_ = {0};
  for (const digits::Digit& digit : out->reduced_) {
    std::vector<int64_t> next;
    for (int64_t base : out->members_) {
      for (int64_t c = 0; c < digit.size; ++c) next.push_back(base + c * digit.stride);
    }
    out->members_ = std::move(next);
  }
  std::sort(out->members_.begin(), out->members_.end());
  for (size_t d = 0; d < from.size(); ++d) {
    out->overlaps_.push_back(Overlap(*from[d], *to[d], Detail::kRuns));
    out->from_.push_back(digits::RowDigitsOf(refinement, from[d]->digits));
    out->to_.push_back(digits::RowDigitsOf(refinement, to[d]->digits));
  }
  const auto n = static_cast<int64_t>(out->members_.size());
  const bool alike = aligned && out->AllAlike(from, to, reduced);
  const auto devices = static_cast<size_t>(alike ? 1 : mesh.size());
  out->loads_.assign(devices, {});
  std::vector<int64_t> source(devices, 1), target(devices, 1), share(devices, 0);
  std::vector<std::vector<int32_t>> from_row(from.size()), to_row(from.size());  // per dimension, per position
  for (size_t d = 0; d < from.size(); ++d) {
    for (size_t p = 0; p < devices; ++p) {
      from_row[d].push_back(static_cast<int32_t>(out->from_[d].RowAt(static_cast<int64_t>(p), out->digits_)));
      to_row[d].push_back(static_cast<int32_t>(out->to_[d].RowAt(static_cast<int64_t>(p), out->digits_)));
    }
  }
  auto mismatch = [] {
    return absl::InvalidArgumentError(
        "a reduction needs the same source box on every member of a group, and target boxes that partition or equal "
        "it");
  };
  for (size_t p = 0; p < devices; ++p) {
    const auto base = static_cast<size_t>(out->Base(static_cast<int64_t>(p)));
    for (size_t d = 0; d < from.size(); ++d) {
      const auto s = static_cast<size_t>(from_row[d][p]);
      const auto t = static_cast<size_t>(to_row[d][p]);
      if (from_row[d][p] != from_row[d][base]) return mismatch();
      source[p] *= from[d]->length[s];
      target[p] *= to[d]->length[t];
    }
    // A target box that is not empty lies within the source box.
    for (size_t d = 0; d < from.size() && target[p] != 0; ++d) {
      const Pair* pair = out->overlaps_[d].Find(from_row[d][p], to_row[d][p]);
      if (pair == nullptr || pair->elements != to[d]->length[to_row[d][p]]) return mismatch();
    }
    share[base] += alike && op == Op::kReduceScatter ? source[p] : target[p];
  }
  // Per dimension, the boxes of a whole group in a source row: target rows that differ in reduced digits only count as
  // the row of the group's first member.
  std::vector<std::vector<int32_t>> group_row(from.size());
  std::vector<std::map<std::pair<int32_t, int32_t>, SpreadSums>> by_group(from.size());
  for (size_t d = 0; d < from.size() && op == Op::kReduceScatter; ++d) {
    group_row[d].resize(to[d]->num_rows());
    for (size_t p = 0; p < devices && !alike; ++p) {
      const auto base = static_cast<size_t>(out->Base(static_cast<int64_t>(p)));
      group_row[d][to_row[d][p]] = to_row[d][base];
    }
    // Where all are alike, every target row that meets source row 0 is one of the first group's.
    for (const Pair& pair : out->overlaps_[d].pairs) {
      const int32_t row = group_row[d][pair.to_row];
      by_group[d][{static_cast<int32_t>(pair.from_row), row}].Add(pair.in_from, pair.elements);
    }
  }
  for (size_t p = 0; p < devices; ++p) {
    const auto base = static_cast<size_t>(out->Base(static_cast<int64_t>(p)));
    const int64_t copies = alike ? mesh.size() : 1;
    DeviceLoad& load = out->loads_[p];
    load.before = source[p];
    load.after = target[p];
    if (op == Op::kAllReduce) {
      if (target[p] != source[p]) return mismatch();
      const auto at = static_cast<int64_t>(
          std::lower_bound(out->members_.begin(), out->members_.end(), static_cast<int64_t>(p - base)) -
          out->members_.begin());
      const int64_t chunk = AllReduceChunk(source[p], n, at).length();
      load.recv = load.send = source[p] + (n - 2) * chunk;
    } else {
      if (share[base] != source[p]) return mismatch();
      load.recv = (n - 1) * target[p];
      load.send = source[p] - target[p];
      // Every other member's box is packed unless it is one stretch of this fragment.
      Contiguity boxes, own;
      for (size_t d = from.size(); d-- > 0;) {
        const int32_t s = from_row[d][p], t = to_row[d][p];
        const auto it = by_group[d].find({s, group_row[d][t]});
        boxes.AddDim(it == by_group[d].end() ? SpreadSums{} : it->second);
        SpreadSums mine;
        const Pair* pair = out->overlaps_[d].Find(s, t);
        if (pair != nullptr) mine.Add(pair->in_from, pair->elements);
        own.AddDim(mine);
      }
      load.staging = boxes.scattered().elements - own.scattered().elements;
      load.staging_messages = boxes.scattered().count - own.scattered().count;
    }
    out->AddLevels(static_cast<int64_t>(p), topology, load);
    out->figures_.recv_max = std::max(out->figures_.recv_max, load.recv);
    out->figures_.recv_total += load.recv * copies;
    if (target[p] > 0) out->figures_.messages_total += (n - 1) * copies;
    out->figures_.send_max = std::max(out->figures_.send_max, load.send);
  }
  out->figures_.peers_max = out->figures_.recv_total > 0 ? n - 1 : 0;
  return out;
}

std::vector<int64_t> ReduceTransfers::Devices() const {
  std::vector<int64_t> out(static_cast<size_t>(mesh_.size()));
  for (size_t p = 0; p < out.size(); ++p) out[p] = mesh_.Device(static_cast<int64_t>(p));
  return out;
}

int64_t ReduceTransfers::Base(int64_t position) const {
  for (const digits::Digit& digit : reduced_) position -= digit.Coordinate(position) * digit.stride;
  return position;
}

Message ReduceTransfers::MakeMessage(int64_t sender, int64_t receiver) const {
  Message message{mesh_.Device(sender), mesh_.Device(receiver), {}};
  for (size_t d = 0; d < overlaps_.size(); ++d) {
    const Pair* pair = overlaps_[d].Find(from_[d].RowAt(sender, digits_), to_[d].RowAt(receiver, digits_));
    message.runs.emplace_back();
    if (pair == nullptr) continue;
    const auto begin = overlaps_[d].runs.begin() + pair->first_run;
    message.runs.back().assign(begin, begin + pair->num_runs);
  }
  return message;
}

std::vector<Message> ReduceTransfers::Receives(int64_t device) const {
  std::vector<Message> out;
  const auto position = mesh_.Position(device);
  if (!position) return out;
  for (int64_t member : members_) {
    Message message = MakeMessage(Base(*position) + member, *position);
    if (message.elements() > 0) out.push_back(std::move(message));
  }
  return out;
}

std::vector<Message> ReduceTransfers::Sends(int64_t device) const {
  std::vector<Message> out;
  const auto position = mesh_.Position(device);
  if (!position) return out;
  for (int64_t member : members_) {
    Message message = MakeMessage(*position, Base(*position) + member);
    if (message.elements() > 0) out.push_back(std::move(message));
  }
  return out;
}

}  // namespace reshard::transfers
