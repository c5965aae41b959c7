#include "check/pieces.h"

#include <algorithm>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "reshard/layout/checked.h"
#include "reshard/layout/text.h"

namespace reshard::check {
namespace {

// More findings about pieces than this are not listed.
constexpr size_t kMostFindings = 10;
// Pieces in the same corner of a shard are compared with each other, with at most this many comparisons.
constexpr int64_t kMostComparisons = int64_t{1} << 22;

// Elements of the pieces of one sender and one receiver, and the stretch of both fragments that they lie in.
struct Message {
  int64_t elements = 0;
  int64_t from_first = 0, from_last = 0;
  int64_t to_first = 0, to_last = 0;
  // With a slot table, where each piece begins in the receiver's fragment and in the sender's.
  std::vector<std::pair<int64_t, int64_t>> begins;
};

// The part of one fragment that a piece covers: the first and the last element, in local order.
struct Stretch {
  int64_t first = 0;
  int64_t last = 0;
};

class Judge {
 public:
  Judge(const PieceStep& step, const std::vector<plan_text::PieceText>& pieces, StepFacts& facts,
        std::vector<Finding>& findings)
      : step_(step),
        from_(step.judge.meeting().from()),
        to_(step.judge.meeting().to()),
        pieces_(pieces),
        facts_(facts),
        findings_(findings) {}

  void Run(const std::vector<int64_t>& of_step) {
    for (const int64_t i : of_step) {
      Place(i);
      if (found_ >= kMostFindings) return;
    }
    if (found_ == 0) CompareNeighbours();
    if (found_ == 0) CheckComplete();
    if (found_ == 0) CheckAxes();
    if (found_ == 0 && step_.op != Op::kAllReduce) Count();
  }

 private:
  void Find(const std::string& where, const std::string& why) {
    ++found_;
    findings_.push_back({where, "", "", why});
  }

  // Where the piece lies on one side; false when it is not within that side's box.
  bool Within(const Holdings& side, int64_t position, const plan_text::PieceText& piece, Stretch& stretch,
              std::vector<int64_t>& key) const {
    const int rank = side.layout().rank();
    int64_t first = 0;
    int64_t last = 0;
    for (int d = 0; d < rank; ++d) {
      const auto at = static_cast<size_t>(d);
      const int64_t size = piece.sizes[at + static_cast<size_t>(rank)];
      const Contents& contents = step_.contents[at];
      const int32_t content = side.Content(position, d);
      const auto place = size < 1 ? std::nullopt : contents.Find(content, piece.sizes[at], size);
      if (!place) return false;
      first = first * contents.length(content) + place->local;
      last = last * contents.length(content) + place->local + size - 1;
      key.push_back(place->interval);
    }
    stretch = {first, last};
    return true;
  }

  // Whether the box of a position of the source holds some of the piece.
  bool Meets(int64_t position, const plan_text::PieceText& piece) const {
    const int rank = from_.layout().rank();
    for (int d = 0; d < rank; ++d) {
      const auto at = static_cast<size_t>(d);
      const Interval along{piece.sizes[at], piece.sizes[at] + piece.sizes[at + static_cast<size_t>(rank)]};
      if (Covered(along, Distinct(step_.contents[at].intervals(from_.Content(position, d)))) == 0) return false;
    }
    return true;
  }

  void Place(int64_t number) {
    const plan_text::PieceText& piece = pieces_[number];
    const std::string where = absl::StrCat("pieces[", number, "]");
    const auto rank = static_cast<size_t>(from_.layout().rank());
    if (piece.sizes.size() != 2 * rank) {
      return Find(where, absl::StrCat("it has ", piece.sizes.size() / 2, " dimensions, the layouts have ", rank));
    }
    const int64_t sender = step_.devices.Find(piece.sender);
    const int64_t receiver = step_.devices.Find(piece.receiver);
    const int64_t p = sender < 0 ? -1 : from_.PositionOf(sender);
    const int64_t q = receiver < 0 ? -1 : to_.PositionOf(receiver);
    if (p < 0) return Find(where, absl::StrCat("device ", piece.sender, " is not in the mesh that sends"));
    if (q < 0) return Find(where, absl::StrCat("device ", piece.receiver, " is not in the mesh that receives"));
    if (sender == receiver) return Find(where, "a device's copy to itself is not a piece");
    const bool reduces = Reduces(step_.op);
    // Boxes of a layout with a slot table overlap, so the sender does not tell a piece from others.
    const bool slots = step_.judge.meeting().slots();
    Entry entry{number, sender, receiver, {receiver, reduces ? sender : -1, slots ? 0 : from_.Cell(p)}};
    Stretch from, to;
    std::vector<int64_t> in_from;
    if (!Within(from_, p, piece, from, slots ? in_from : entry.key)) {
      return Find(where, absl::StrCat("device ", piece.sender, " does not hold all of it"));
    }
    if (!Within(to_, q, piece, to, entry.key)) {
      return Find(where, absl::StrCat("device ", piece.receiver, " does not need all of it"));
    }
    if (!reduces) {
      const int contributions = from_.num_dims() - 1;
      if (!step_.judge.crosses() && from_.Row(p, contributions) != to_.Row(q, contributions)) {
        return Find(where, "the sender holds another contribution than the receiver needs");
      }
      const int64_t own = from_.PositionOf(receiver);
      if (own >= 0 && (slots ? Meets(own, piece) : from_.Cell(own) == from_.Cell(p))) {
        return Find(where, absl::StrCat("device ", piece.receiver, " holds it already"));
      }
    }
    if (step_.judge.groups() && step_.judge.groups()->Of(p) != step_.judge.groups()->Of(q)) {
      return Find(where, "sender and receiver differ in more than the step's axes");
    }
    int64_t elements = 1;
    for (size_t d = 0; d < rank; ++d) elements *= piece.sizes[d + rank];
    const auto [it, added] =
        messages_.try_emplace({sender, receiver}, Message{0, from.first, from.last, to.first, to.last, {}});
    Message& message = it->second;
    if (slots) message.begins.emplace_back(to.first, from.first);
    // Only pieces that overlap can add up to too much, and they are found before this counts.
    message.elements = CheckedAdd(message.elements, elements).value_or(INT64_MAX);
    message.from_first = std::min(message.from_first, from.first);
    message.from_last = std::max(message.from_last, from.last);
    message.to_first = std::min(message.to_first, to.first);
    message.to_last = std::max(message.to_last, to.last);
    entries_.push_back(std::move(entry));
  }

  bool Overlap(const plan_text::PieceText& a, const plan_text::PieceText& b) const {
    const auto rank = static_cast<size_t>(from_.layout().rank());
    for (size_t d = 0; d < rank; ++d) {
      const int64_t begin = std::max(a.sizes[d], b.sizes[d]);
      const int64_t end = std::min(a.sizes[d] + a.sizes[rank + d], b.sizes[d] + b.sizes[rank + d]);
      if (begin >= end) return false;
    }
    return true;
  }

  // Boxes of one layout are the same or disjoint, and so are their intervals: only pieces for one receiver out of the
  // same corner of the same box can overlap. With a slot table: only those into the same corner of the receiver's box.
  void CompareNeighbours() {
    std::sort(entries_.begin(), entries_.end(),
              [](const Entry& a, const Entry& b) { return a.key != b.key ? a.key < b.key : a.number < b.number; });
    int64_t comparisons = 0;
    for (size_t begin = 0, end = 0; begin < entries_.size(); begin = end) {
      for (end = begin + 1; end < entries_.size() && entries_[end].key == entries_[begin].key; ++end) {
        for (size_t i = begin; i < end; ++i) {
          if (++comparisons > kMostComparisons) {
            facts_.unjudged.emplace_back("whether pieces overlap: too many lie in one corner of a shard");
            return;
          }
          if (!Overlap(pieces_[entries_[i].number], pieces_[entries_[end].number])) {
            continue;
          }
          Find(absl::StrCat("pieces[", entries_[end].number, "]"),
               absl::StrCat("device ", step_.devices.id(entries_[end].receiver), " gets a part of it from pieces[",
                            entries_[i].number, "] too"));
          if (found_ >= kMostFindings) return;
        }
      }
    }
  }

  // Nothing arrives twice, so what is missing shows in the sums.
  void CheckComplete() {
    std::vector<int64_t> arrived(static_cast<size_t>(step_.devices.size()), 0), senders = arrived;
    for (const auto& [ends, message] : messages_) {
      const auto receiver = static_cast<size_t>(ends.second);
      arrived[receiver] = CheckedAdd(arrived[receiver], message.elements).value_or(INT64_MAX);
      ++senders[receiver];
    }
    for (int64_t q = 0; q < to_.mesh().size() && found_ < kMostFindings; ++q) {
      const auto device = static_cast<size_t>(to_.DeviceAt(q));
      const int64_t others = step_.judge.groups() ? step_.judge.groups()->size() - 1 : 0;
      const int64_t needed = Reduces(step_.op) ? others * to_.Elements(q) : facts_.loads[device].recv;
      if (arrived[device] == needed) continue;
      findings_.push_back({"pieces", absl::StrCat(arrived[device]), absl::StrCat(needed),
                           absl::StrCat("elements that reach device ", to_.mesh().Device(q))});
      ++found_;
    }
    if (step_.op != Op::kAllPermute) return;
    absl::flat_hash_set<int64_t> sent;
    for (const auto& [ends, message] : messages_) {
      if (!sent.insert(ends.first).second || senders[ends.second] > 1) {
        return Find("pieces", "it is no AllPermute: a device sends to several or gets from several");
      }
    }
  }

  void CheckAxes() {
    if (step_.judge.crosses() || !step_.axes || Reduces(step_.op)) return;
    for (const AxisRef& ref : *step_.axes) {
      const bool used = std::any_of(messages_.begin(), messages_.end(), [&](const auto& entry) {
        return from_.layout().Coordinate(from_.PositionOf(entry.first.first), ref) !=
               from_.layout().Coordinate(to_.PositionOf(entry.first.second), ref);
      });
      if (!used) Find("pieces", absl::StrCat("nothing travels along ", ToString(from_.mesh(), ref)));
    }
  }

  void Count() {
    const auto devices = static_cast<size_t>(step_.devices.size());
    std::vector<int64_t> send(devices, 0), in(devices, 0), out(devices, 0), rounded = send, packed = send, parts = send;
    facts_.levels.assign(static_cast<size_t>(step_.links.size()), std::vector<LevelLoad>(devices));
    std::vector<std::vector<int64_t>> level_in(facts_.levels.size(), std::vector<int64_t>(devices, 0));
    auto level_out = level_in;
    const int64_t rounds = step_.rounds;
    for (const auto& entry : messages_) {
      const auto& ends = entry.first;
      const Message& message = entry.second;
      const auto sender = static_cast<size_t>(ends.first);
      const auto receiver = static_cast<size_t>(ends.second);
      send[sender] += message.elements;
      ++out[sender];
      ++in[receiver];
      const auto pack = [&](size_t device, int64_t first, int64_t last, bool in_order) {
        if (last - first + 1 == message.elements && in_order) return;
        packed[device] += message.elements;
        rounded[device] += CeilDiv(message.elements, rounds);
        ++parts[device];
      };
      // The pieces of a message come in the receiver's order.
      std::vector<std::pair<int64_t, int64_t>> begins = message.begins;
      std::sort(begins.begin(), begins.end());
      const bool in_order = std::is_sorted(begins.begin(), begins.end(),
                                           [](const auto& a, const auto& b) { return a.second < b.second; });
      pack(sender, message.from_first, message.from_last, in_order);
      pack(receiver, message.to_first, message.to_last, true);
      const auto level =
          static_cast<size_t>(step_.links.Of(step_.devices.id(ends.first), step_.devices.id(ends.second)));
      facts_.levels[level][sender].send += message.elements;
      facts_.levels[level][receiver].recv += message.elements;
      ++level_out[level][sender];
      ++level_in[level][receiver];
    }
    facts_.send_max = facts_.peers_max = {};
    int64_t taking_part = 0;
    for (size_t i = 0; i < devices; ++i) {
      Load& load = facts_.loads[i];
      load.send = {send[i], send[i]};
      // In rounds a message is packed in parts; the plan may count the rest of every division as one part more.
      const __int128 most = (packed[i] + static_cast<__int128>(rounds - 1) * parts[i]) / rounds;
      load.staging = {rounded[i], static_cast<int64_t>(most)};
      facts_.send_max.high = std::max(facts_.send_max.high, send[i]);
      facts_.peers_max.high = std::max({facts_.peers_max.high, in[i], out[i]});
      taking_part += in[i] > 0 || out[i] > 0 ? 1 : 0;
      for (size_t level = 0; level < facts_.levels.size(); ++level) {
        facts_.levels[level][i].peers = std::max(level_in[level][i], level_out[level][i]);
      }
    }
    facts_.send_max.low = facts_.send_max.high;
    facts_.peers_max.low = facts_.peers_max.high;
    if (step_.judge.crosses()) facts_.group_size = {taking_part, taking_part};
  }

  struct Entry {
    int64_t number = 0;
    int64_t sender = 0, receiver = 0;  // devices of the plan
    std::vector<int64_t> key;          // equal: the pieces may overlap
  };

  const PieceStep& step_;
  const Holdings& from_;
  const Holdings& to_;
  const std::vector<plan_text::PieceText>& pieces_;
  StepFacts& facts_;
  std::vector<Finding>& findings_;
  std::vector<Entry> entries_;
  absl::flat_hash_map<std::pair<int64_t, int64_t>, Message> messages_;
  size_t found_ = 0;
};

}  // namespace

void JudgePieces(const PieceStep& step, const std::vector<plan_text::PieceText>& pieces,
                 const std::vector<int64_t>& of_step, StepFacts& facts, std::vector<Finding>& findings) {
  Judge(step, pieces, facts, findings).Run(of_step);
}

}  // namespace reshard::check
