#include "planner/transfers/piece_list.h"

#include <algorithm>
#include <numeric>
#include <unordered_map>

namespace reshard::transfers {

Ends::Ends(const Mesh& from, const Mesh& to) : num_from(from.size()), same_mesh(from == to) {
  if (same_mesh) {
    for (int64_t p = 0; p < from.size(); ++p) {
      devices.push_back(from.Device(p));
      to_index.push_back(static_cast<int32_t>(p));
    }
    return;
  }
  std::unordered_map<int64_t, int32_t> index;
  for (int64_t p = 0; p < from.size(); ++p) {
    index.emplace(from.Device(p), static_cast<int32_t>(p));
    devices.push_back(from.Device(p));
  }
  for (int64_t p = 0; p < to.size(); ++p) {
    const auto [it, added] = index.emplace(to.Device(p), static_cast<int32_t>(devices.size()));
    if (added) devices.push_back(it->first);
    to_index.push_back(it->second);
  }
}

std::vector<digits::Digit> WholeAxes(const Mesh& mesh) {
  std::vector<digits::Digit> out;
  for (int a = 0; a < mesh.num_axes(); ++a) {
    out.push_back({AxisRef{a, 1, mesh.axis(a).size}, mesh.axis(a).size, mesh.stride(a), 0});
  }
  return out;
}

void PieceList::SetSizes(const Side& from, const Side& to, const std::vector<std::vector<int32_t>>& from_rows,
                         const std::vector<std::vector<int32_t>>& to_rows) {
  loads_.assign(ends_.devices.size(), {});
  for (int64_t p = 0; p < ends_.num_from; ++p) {
    int64_t& before = loads_[p].before = 1;
    for (size_t d = 0; d < from_rows.size(); ++d) before *= from.dims[d]->length[from_rows[d][p]];
  }
  for (size_t p = 0; p < ends_.to_index.size(); ++p) {
    int64_t& after = loads_[ends_.to_index[p]].after = 1;
    for (size_t d = 0; d < to_rows.size(); ++d) after *= to.dims[d]->length[to_rows[d][p]];
  }
}

void PieceList::Sort() {
  std::stable_sort(pieces_.begin(), pieces_.end(), [](const BoxTransfer& a, const BoxTransfer& b) {
    return a.receiver != b.receiver ? a.receiver < b.receiver : a.sender < b.sender;
  });
  const size_t devices = ends_.devices.size();
  first_of_receiver_.assign(devices + 1, 0);
  first_of_sender_.assign(devices + 1, 0);
  for (const BoxTransfer& piece : pieces_) {
    ++first_of_receiver_[static_cast<size_t>(piece.receiver) + 1];
    ++first_of_sender_[static_cast<size_t>(piece.sender) + 1];
  }
  std::partial_sum(first_of_receiver_.begin(), first_of_receiver_.end(), first_of_receiver_.begin());
  std::partial_sum(first_of_sender_.begin(), first_of_sender_.end(), first_of_sender_.begin());
  by_sender_.resize(pieces_.size());
  auto next = first_of_sender_;
  for (size_t i = 0; i < pieces_.size(); ++i) {
    by_sender_[next[pieces_[i].sender]++] = static_cast<int32_t>(i);
  }
}

void PieceList::Count(const Topology& topology) {
  std::vector<int64_t> received(ends_.devices.size(), 0), sent(ends_.devices.size(), 0);
  const auto levels = static_cast<size_t>(topology.num_levels());
  std::vector<int64_t> senders(levels > 1 ? ends_.devices.size() * levels : 0, 0), receivers = senders;
  for (DeviceLoad& load : loads_) load.levels.resize(levels > 1 ? levels : 0);
  for (const BoxTransfer& piece : pieces_) {
    if (piece.sender == piece.receiver) continue;
    DeviceLoad& receiver = loads_[piece.receiver];
    DeviceLoad& sender = loads_[piece.sender];
    receiver.recv += piece.elements;
    sender.send += piece.elements;
    ++received[piece.receiver];
    ++sent[piece.sender];
    const InOnePart in_one = Contiguous(piece);
    if (!in_one.from) {
      sender.staging += piece.elements;
      ++sender.staging_messages;
    }
    if (!in_one.to) {
      receiver.staging += piece.elements;
      ++receiver.staging_messages;
    }
    if (levels == 1) continue;
    const auto level =
        static_cast<size_t>(topology.LevelOf(ends_.devices[piece.sender], ends_.devices[piece.receiver]));
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

// The digits in which some sender and receiver differ.
void PieceList::FindAxes(const std::vector<digits::Digit>& digits) {
  if (ends_.same_mesh) {
    std::vector<bool> varies(digits.size(), false);
    for (const BoxTransfer& piece : pieces_) {
      for (size_t e = 0; e < digits.size(); ++e) {
        if (digits[e].Coordinate(piece.sender) != digits[e].Coordinate(piece.receiver)) varies[e] = true;
      }
    }
    axes_ = digits::MergeDigits(digits, varies);
    for (const AxisRef& ref : axes_) group_size_ *= ref.size;
    return;
  }
  std::vector<bool> takes_part(ends_.devices.size(), false);
  for (const BoxTransfer& piece : pieces_) {
    if (piece.sender == piece.receiver) continue;
    takes_part[piece.sender] = takes_part[piece.receiver] = true;
  }
  group_size_ = std::count(takes_part.begin(), takes_part.end(), true);
}

std::vector<Message> PieceList::MessagesOf(int64_t device, bool sent) const {
  std::vector<Message> out;
  const auto it = std::find(ends_.devices.begin(), ends_.devices.end(), device);
  if (it == ends_.devices.end()) return out;
  const auto i = static_cast<size_t>(it - ends_.devices.begin());
  const std::vector<int64_t>& first = sent ? first_of_sender_ : first_of_receiver_;
  for (int64_t k = first[i]; k < first[i + 1]; ++k) out.push_back(MakeMessage(pieces_[sent ? by_sender_[k] : k]));
  const auto peer = [sent](const Message& message) { return sent ? message.receiver : message.sender; };
  std::sort(out.begin(), out.end(), [&](const Message& a, const Message& b) { return peer(a) < peer(b); });
  return out;
}

std::vector<Message> PieceList::Receives(int64_t device) const { return MessagesOf(device, false); }

std::vector<Message> PieceList::Sends(int64_t device) const { return MessagesOf(device, true); }

}  // namespace reshard::transfers
