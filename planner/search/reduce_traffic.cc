#include "planner/search/reduce_traffic.h"

#include <algorithm>
#include <map>

#include "absl/status/status.h"

namespace reshard::search {
absl::StatusOr<std::unique_ptr<ReduceTraffic>> ReduceTraffic::Create(Op op, const Mesh& mesh,
                                                                     const std::vector<Digit>& reduced,
                                                                     const std::vector<const DimShards*>& from,
                                                                     const std::vector<const DimShards*>& to) {
  auto out = std::unique_ptr<ReduceTraffic>(new ReduceTraffic());
  out->op_ = op;
  out->mesh_ = mesh;
  out->reduced_ = reduced;
  out->members_ = {0};
  for (const Digit& digit : reduced) {
    std::vector<int64_t> next;
    for (int64_t base : out->members_) {
      for (int64_t c = 0; c < digit.size; ++c) next.push_back(base + c * digit.stride);
    }
    out->members_ = std::move(next);
  }
  std::sort(out->members_.begin(), out->members_.end());
  for (size_t d = 0; d < from.size(); ++d) {
    out->overlaps_.push_back(Overlap(*from[d], *to[d]));
    out->from_row_.push_back(RowsOf(mesh, *from[d]));
    out->to_row_.push_back(RowsOf(mesh, *to[d]));
  }
  const auto n = static_cast<int64_t>(out->members_.size());
  const auto devices = static_cast<size_t>(mesh.size());
  out->devices_.resize(devices);
  out->loads_.assign(devices, {});
  std::vector<int64_t> source(devices, 1), target(devices, 1), share(devices, 0);
  auto mismatch = [] {
    return absl::InvalidArgumentError(
        "a reduction needs the same source box on every member of a group, and target boxes that partition or equal "
        "it");
  };
  for (size_t p = 0; p < devices; ++p) {
    out->devices_[p] = mesh.Device(static_cast<int64_t>(p));
    const auto base = static_cast<size_t>(out->Base(static_cast<int64_t>(p)));
    for (size_t d = 0; d < from.size(); ++d) {
      const auto s = static_cast<size_t>(out->from_row_[d][p]);
      const auto t = static_cast<size_t>(out->to_row_[d][p]);
      if (out->from_row_[d][p] != out->from_row_[d][base]) return mismatch();
      source[p] *= from[d]->length[s];
      target[p] *= to[d]->length[t];
    }
    // A target box that is not empty lies within the source box.
    for (size_t d = 0; d < from.size() && target[p] != 0; ++d) {
      const Pair* pair = out->overlaps_[d].Find(out->from_row_[d][p], out->to_row_[d][p]);
      if (pair == nullptr || pair->elements != to[d]->length[static_cast<size_t>(out->to_row_[d][p])])
        return mismatch();
    }
    share[base] += target[p];
  }
  // Per dimension, the boxes of a whole group in a source row: target rows that differ in reduced digits only count as
  // the row of the group's first member.
  std::vector<std::vector<int32_t>> group_row(from.size());
  std::vector<std::map<std::pair<int32_t, int32_t>, SpreadSums>> by_group(from.size());
  for (size_t d = 0; d < from.size() && op == Op::kReduceScatter; ++d) {
    group_row[d].resize(static_cast<size_t>(to[d]->num_rows()));
    for (size_t p = 0; p < devices; ++p) {
      const auto base = static_cast<size_t>(out->Base(static_cast<int64_t>(p)));
      group_row[d][static_cast<size_t>(out->to_row_[d][p])] = out->to_row_[d][base];
    }
    for (const Pair& pair : out->overlaps_[d].pairs) {
      const int32_t row = group_row[d][static_cast<size_t>(pair.to_row)];
      by_group[d][{static_cast<int32_t>(pair.from_row), row}].Add(pair.in_from, pair.elements);
    }
  }
  for (size_t p = 0; p < devices; ++p) {
    const auto base = static_cast<size_t>(out->Base(static_cast<int64_t>(p)));
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
        const int32_t s = out->from_row_[d][p], t = out->to_row_[d][p];
        const auto it = by_group[d].find({s, group_row[d][static_cast<size_t>(t)]});
        boxes.AddDim(it == by_group[d].end() ? SpreadSums{} : it->second);
        SpreadSums mine;
        const Pair* pair = out->overlaps_[d].Find(s, t);
        if (pair != nullptr) mine.Add(pair->in_from, pair->elements);
        own.AddDim(mine);
      }
      load.staging = boxes.scattered().elements - own.scattered().elements;
      load.staging_messages = boxes.scattered().count - own.scattered().count;
    }
    out->figures_.recv_max = std::max(out->figures_.recv_max, load.recv);
    out->figures_.recv_total += load.recv;
    if (target[p] > 0) out->figures_.messages_total += n - 1;
    out->figures_.send_max = std::max(out->figures_.send_max, load.send);
  }
  out->figures_.peers_max = out->figures_.recv_total > 0 ? n - 1 : 0;
  return out;
}

int64_t ReduceTraffic::Base(int64_t position) const {
  for (const Digit& digit : reduced_) position -= digit.Coordinate(position) * digit.stride;
  return position;
}

Message ReduceTraffic::MakeMessage(int64_t sender, int64_t receiver) const {
  Message message{mesh_.Device(sender), mesh_.Device(receiver), {}};
  for (size_t d = 0; d < overlaps_.size(); ++d) {
    const Pair* pair =
        overlaps_[d].Find(from_row_[d][static_cast<size_t>(sender)], to_row_[d][static_cast<size_t>(receiver)]);
    message.runs.emplace_back();
    if (pair == nullptr) continue;
    const auto begin = overlaps_[d].runs.begin() + pair->first_run;
    message.runs.back().assign(begin, begin + pair->num_runs);
  }
  return message;
}

std::vector<Message> ReduceTraffic::Receives(int64_t device) const {
  std::vector<Message> out;
  const auto position = mesh_.Position(device);
  if (!position) return out;
  for (int64_t member : members_) {
    Message message = MakeMessage(Base(*position) + member, *position);
    if (message.elements() > 0) out.push_back(std::move(message));
  }
  return out;
}

std::vector<Message> ReduceTraffic::Sends(int64_t device) const {
  std::vector<Message> out;
  const auto position = mesh_.Position(device);
  if (!position) return out;
  for (int64_t member : members_) {
    Message message = MakeMessage(*position, Base(*position) + member);
    if (message.elements() > 0) out.push_back(std::move(message));
  }
  return out;
}

}  // namespace reshard::search
