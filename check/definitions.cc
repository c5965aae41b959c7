// The operations as conditions on boxes.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "check/step.h"

namespace reshard::check {
namespace {

using Key = std::pair<int64_t, int64_t>;

// For members of a group and one target row: what the rows of the group share with it.
struct Sum {
  int64_t elements = 0;
  int64_t rows = 0;
  int64_t least = 0;
  int64_t most = 0;
};

// Keys are those of `from` rows when `by_from`, of `to` rows otherwise; the second half of the key is the other side's
// row.
absl::flat_hash_map<Key, Sum> SumPairs(const Meet& meet, const KeyedDim& keyed, bool by_from) {
  absl::flat_hash_map<Key, Sum> out;
  for (const Meet::Pair& pair : meet.pairs()) {
    const int64_t key = keyed.key_of_row[by_from ? pair.from_row : pair.to_row];
    Sum& sum = out[{key, by_from ? pair.to_row : pair.from_row}];
    sum.least = sum.rows == 0 ? pair.elements : std::min(sum.least, pair.elements);
    sum.most = std::max(sum.most, pair.elements);
    sum.elements += pair.elements;
    ++sum.rows;
  }
  return out;
}

Sum Find(const absl::flat_hash_map<Key, Sum>& sums, int64_t key, int64_t row) {
  const auto it = sums.find({key, row});
  return it == sums.end() ? Sum{} : it->second;
}

}  // namespace

std::string StepJudge::At(int64_t position) const { return absl::StrCat("device ", to_.mesh().Device(position)); }

std::optional<std::string> StepJudge::Breaks(Op op) const {
  if (meeting_->slots() && op != Op::kSlice && op != Op::kExchange) return "a slot table cuts a dimension";
  if (crosses_ && op != Op::kExchange && op != Op::kAllPermute) return "it crosses meshes";
  switch (op) {
    case Op::kSlice:
      return BreaksSlice();
    case Op::kAllGather:
      return BreaksAllGather();
    case Op::kAllToAll:
      return BreaksAllToAll();
    case Op::kAllPermute:
      return BreaksAllPermute();
    case Op::kReduceScatter:
      return BreaksReduceScatter();
    case Op::kAllReduce:
      return BreaksAllReduce();
    case Op::kExchange:
      break;
  }
  return std::nullopt;
}

std::optional<std::string> StepJudge::BreaksSlice() const {
  for (int64_t p = 0; p < to_.mesh().size(); ++p) {
    if (meeting_->Shared(p, p) != to_.Elements(p)) return absl::StrCat(At(p), " does not hold all that it needs");
  }
  return std::nullopt;
}

// In a dimension whose rows may overlap.
std::optional<std::string> StepJudge::LeavesGroups(const KeyedDim& keyed, int d) const {
  absl::flat_hash_map<int64_t, std::vector<Interval>> held;  // by key
  for (int64_t row = 0; row < from_.dim(d).num_rows(); ++row) {
    const auto& intervals = contents_[d].intervals(from_.dim(d).content_of_row[row]);
    std::vector<Interval>& all = held[keyed.key_of_row[row]];
    all.insert(all.end(), intervals.begin(), intervals.end());
  }
  for (auto& [key, intervals] : held) intervals = Distinct(std::move(intervals));
  absl::flat_hash_map<Key, bool> known;
  for (int64_t p = 0; p < to_.mesh().size(); ++p) {
    if (to_.Elements(p) == 0) continue;
    const int64_t key = keyed.key_of_row[from_.Row(p, d)];
    const auto [it, added] = known.try_emplace({key, to_.Row(p, d)}, true);
    if (added) {
      for (const Interval& needed : contents_[d].intervals(to_.Content(p, d))) {
        it->second = it->second && Covered(needed, held[key]) == needed.length();
      }
    }
    if (!it->second) return absl::StrCat(At(p), " needs what no device of its group holds");
  }
  return std::nullopt;
}

std::optional<std::string> StepJudge::LeavesGroups(const Groups& groups) const {
  for (int d = 0; d < meeting_->num_dims(); ++d) {
    const KeyedDim keyed = KeyRows(*digits_, groups, from_, d);
    if (meeting_->dim(d).slots()) {
      if (auto reason = LeavesGroups(keyed, d)) return reason;
      continue;
    }
    const auto sums = SumPairs(meeting_->dim(d), keyed, true);
    for (int64_t p = 0; p < to_.mesh().size(); ++p) {
      if (to_.Elements(p) == 0) continue;
      const int64_t key = keyed.key_of_row[from_.Row(p, d)];
      if (Find(sums, key, to_.Row(p, d)).elements != to_.Length(to_.Row(p, d), d)) {
        return absl::StrCat(At(p), " needs what no device of its group holds");
      }
    }
  }
  return std::nullopt;
}

// Shards of a group do not overlap, and every member ends with all of them.
std::optional<std::string> StepJudge::BreaksAllGather() const {
  if (auto reason = LeavesGroups(*groups_)) return reason;
  std::vector<KeyedDim> keyed;
  std::vector<bool> used(digits_->digits().size(), false);
  for (int d = 0; d < meeting_->num_dims(); ++d) {
    keyed.push_back(KeyRows(*digits_, *groups_, from_, d));
    for (const AxisRef& ref : from_.dim(d).digits) {
      for (const int e : digits_->Of(ref)) used[e] = true;
    }
  }
  bool replicas = false;
  for (size_t e = 0; e < used.size(); ++e) replicas |= groups_->inside(static_cast<int>(e)) && !used[e];
  for (int64_t p = 0; p < to_.mesh().size(); ++p) {
    bool empty = false;
    bool equal = true;
    for (int d = 0; d < meeting_->num_dims(); ++d) {
      const KeyedDim& of = keyed[d];
      const int64_t pooled = of.length.at(of.key_of_row[from_.Row(p, d)]);
      empty |= pooled == 0;
      equal &= pooled == to_.Length(to_.Row(p, d), d);
    }
    if (empty && to_.Elements(p) == 0) continue;
    if (replicas) return absl::StrCat("shards of the group of ", At(p), " overlap");
    if (!equal) return absl::StrCat(At(p), " does not end with what its group holds together");
  }
  return std::nullopt;
}

// Every member of a group gets an n-th of what it holds from every member.
std::optional<std::string> StepJudge::BreaksAllToAll() const {
  std::vector<KeyedDim> keyed;
  std::vector<absl::flat_hash_map<Key, Sum>> sums;
  for (int d = 0; d < meeting_->num_dims(); ++d) {
    keyed.push_back(KeyRows(*digits_, *groups_, from_, d));
    sums.push_back(SumPairs(meeting_->dim(d), keyed.back(), true));
  }
  for (int64_t p = 0; p < to_.mesh().size(); ++p) {
    if (from_.Elements(p) != to_.Elements(p)) return absl::StrCat("the local size changes at ", At(p));
    if (from_.Elements(p) != from_.Elements(groups_->Of(p))) {
      return absl::StrCat(At(p), " holds another number of elements than others of its group");
    }
    if (from_.Elements(p) == 0) continue;
    int64_t senders = 1;
    bool even = true;
    for (int d = 0; d < meeting_->num_dims(); ++d) {
      const KeyedDim& of = keyed[d];
      const Sum sum = Find(sums[d], of.key_of_row[from_.Row(p, d)], to_.Row(p, d));
      even &= sum.least == sum.most && sum.elements == to_.Length(to_.Row(p, d), d);
      senders *= sum.rows;
    }
    if (!even || senders != groups_->size()) return absl::StrCat(At(p), " does not get equal parts from all members");
  }
  return std::nullopt;
}

// Whole shards change hands, one at most to and from every device; local shapes stay.
std::optional<std::string> StepJudge::BreaksAllPermute() const {
  absl::flat_hash_map<Key, int64_t> spare;  // (group, box): holders less receivers
  const auto group_of = [&](int64_t position) { return crosses_ || !groups_ ? 0 : groups_->Of(position); };
  for (int64_t p = 0; p < from_.mesh().size(); ++p) {
    if (from_.Elements(p) > 0) ++spare[{group_of(p), from_.Cell(p)}];
  }
  for (int64_t q = 0; q < to_.mesh().size(); ++q) {
    const int64_t p = from_.PositionOf(to_.DeviceAt(q));
    if (p >= 0 && (from_.Elements(p) > 0 || to_.Elements(q) > 0)) {
      for (int d = 0; d < meeting_->num_dims(); ++d) {
        if (from_.Length(from_.Row(p, d), d) != to_.Length(to_.Row(q, d), d)) {
          return absl::StrCat("the local shape changes at ", At(q));
        }
      }
    }
    if (to_.Elements(q) == 0) continue;
    const int64_t cell = meeting_->SameCell(q);
    if (cell < 0) return absl::StrCat(At(q), " needs no whole shard of another device");
    if (p >= 0 && from_.Elements(p) > 0 && from_.Cell(p) == cell) continue;
    if (--spare[{group_of(q), cell}] < 0) {
      return absl::StrCat("the shard that ", At(q), " needs would have to be sent twice by one device");
    }
  }
  return std::nullopt;
}

// Members of a group hold contributions to one box; the parts they end with make it up and do not overlap.
std::optional<std::string> StepJudge::BreaksReduceScatter() const {
  std::vector<bool> used(digits_->digits().size(), false);
  for (int d = 0; d < meeting_->num_dims(); ++d) {
    const KeyedDim keyed = KeyRows(*digits_, *groups_, to_, d);
    const auto sums = SumPairs(meeting_->dim(d), keyed, false);
    for (const AxisRef& ref : to_.dim(d).digits) {
      for (const int e : digits_->Of(ref)) used[e] = true;
    }
    for (int64_t p = 0; p < to_.mesh().size(); ++p) {
      if (from_.Elements(p) == 0) {
        if (to_.Elements(p) > 0) return absl::StrCat(At(p), " ends with what its group does not hold");
        continue;
      }
      const int64_t key = keyed.key_of_row[to_.Row(p, d)];
      const int64_t whole = from_.Length(from_.Row(p, d), d);
      if (Find(sums, key, from_.Row(p, d)).elements != whole || keyed.length.at(key) != whole) {
        return absl::StrCat("the parts of the group of ", At(p), " are not the box that its members hold");
      }
    }
  }
  for (size_t e = 0; e < used.size(); ++e) {
    if (groups_->inside(static_cast<int>(e)) && !used[e] && from_.MaxElements() > 0) {
      return "parts of a group overlap";
    }
  }
  return std::nullopt;
}

std::optional<std::string> StepJudge::BreaksAllReduce() const {
  for (int64_t p = 0; p < to_.mesh().size(); ++p) {
    const bool same = from_.Elements(p) == to_.Elements(p) && meeting_->Shared(p, p) == to_.Elements(p);
    if (!same) return absl::StrCat(At(p), " does not keep the box that it holds");
  }
  return std::nullopt;
}

}  // namespace reshard::check
