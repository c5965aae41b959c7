// SequenceSearch: the steps that lead on from a state.
#include <algorithm>
#include <numeric>

#include "planner/search/sequence_search.h"

namespace reshard::search {

void SequenceSearch::Expand(int64_t index) {
  const Node& node = nodes_[static_cast<size_t>(index)];
  at_ = index;
  from_ = node.state;
  phase_ = node.phase;
  g_ = node.g;
  const Move before = node.move;
  local_ = model_.LocalElements(from_);
  std::fill(place_digit_.begin(), place_digit_.end(), -1);
  taken_.assign(place_digit_.size(), false);
  bool any_replicated = false, any_pending = false, any_placed = false;
  for (int e = 0; e < k_; ++e) {
    const int8_t place = from_.at[static_cast<size_t>(e)];
    any_replicated |= place == kReplicated;
    any_pending |= place == kPendingDigit && model_.target().at[static_cast<size_t>(e)] != kPendingDigit;
    if (place < 0) continue;
    any_placed = true;
    place_digit_[static_cast<size_t>(place)] = e;
    taken_[static_cast<size_t>(place)] = true;
  }
  FindOff();
  FindTwins();
  next_ = from_;
  group_ = Group();
  next_local_ = local_;
  const OpSet& ops = options_.ops;
  // Two slices in a row are one.
  if (ops.contains(Op::kSlice) && any_replicated && before != Move::kSlice) Choose(Move::kSlice, 0);
  if (ops.contains(Op::kAllGather) && any_placed) Choose(Move::kAllGather, 0);
  if (ops.contains(Op::kAllToAll) && any_placed) Choose(Move::kAllToAll, 0);
  if (phase_ != kNamed && any_placed && before != Move::kAllPermute) ChoosePermutes();
  if (any_pending) {
    if (ops.contains(Op::kReduceScatter)) Choose(Move::kReduceScatter, 0);
    if (ops.contains(Op::kAllReduce)) Choose(Move::kAllReduce, 0);
  } else if (phase_ == kNamed && reduces_ && ops.contains(Op::kExchange) && !options_.boxes_only) {
    EmitExchange();
  }
}

void SequenceSearch::FindOff() {
  off_.fill(-1);
  for (int e = 0; free_ && e < k_; ++e) {
    for (size_t p = 0; p < taken_.size() && off_[static_cast<size_t>(e)] < 0; ++p) {
      if (digit_of_place_[p] < 0 && !taken_[p] && model_.Fits(e, static_cast<int>(p))) {
        off_[static_cast<size_t>(e)] = static_cast<int>(p);
      }
    }
  }
}

// Digits are interchangeable when swapping them, and the places where they are going, changes nothing.
void SequenceSearch::FindTwins() {
  twin_.fill(-1);
  std::array<std::array<int, 4>, kMaxSearchDigits> kinds;
  for (int e = 0; e < k_; ++e) {
    const auto i = static_cast<size_t>(e);
    const int8_t place = from_.at[i];
    const bool anonymous = Anonymous(e, phase_, place);
    const int8_t target = model_.target().at[i];
    const bool at_a_target = place >= 0 && (!free_ || digit_of_place_[static_cast<size_t>(place)] >= 0);
    // Who is at the digit's own place matters for one that has a name.
    const bool own_is_empty = target < 0 || (free_ && place_digit_[static_cast<size_t>(target)] < 0);
    const int own = anonymous || own_is_empty ? -1 : e;
    kinds[i] = {anonymous, anonymous ? kin_[i] : class_[i], at_a_target ? e + 1 : std::min<int>(place, 0), own};
    for (int f = 0; f < e; ++f) {
      if (kinds[static_cast<size_t>(f)] == kinds[i]) twin_[i] = f;
    }
  }
}

void SequenceSearch::Choose(Move move, int e) {
  if (OverBudget()) return;
  if (e == k_) {
    if (next_ == from_) return;
    Emit(next_, phase_, move, cost_.Collective(move, local_, next_local_, group_));
    return;
  }
  const auto i = static_cast<size_t>(e);
  // Of interchangeable digits the later one never has the smaller choice.
  const int least = twin_[i] < 0 ? 0 : code_[static_cast<size_t>(twin_[i])];
  if (least == 0) {
    code_[i] = 0;
    Choose(move, e + 1);
  }
  const int8_t place = from_.at[i];
  const int8_t own = model_.target().at[i];
  const bool named = cost_.rank_of_digit(e) > phase_;  // once it is no longer pending
  const bool reduction = move == Move::kReduceScatter || move == Move::kAllReduce;
  if (reduction              ? place != kPendingDigit || own == kPendingDigit
      : move == Move::kSlice ? place != kReplicated
                             : place < 0) {
    return;
  }
  const bool at_home = free_ && named && place >= 0 && place == own;
  if (at_home) return;
  constexpr int kOffCode = 1000;
  if (move == Move::kAllGather || move == Move::kAllReduce) {
    if (least <= 1) ChooseMoved(move, e, kReplicated, 1);
    return;
  }
  if (!free_) {
    for (size_t p = 0; p < taken_.size(); ++p) {
      const int code = static_cast<int>(p) + 1;
      if (code >= least && !taken_[p] && model_.Fits(e, static_cast<int>(p)))
        ChooseMoved(move, e, static_cast<int>(p), code);
    }
    return;
  }
  const bool is_off = place >= 0 && digit_of_place_[static_cast<size_t>(place)] < 0;
  if (named) {
    if (own >= 0 && !taken_[static_cast<size_t>(own)] && least <= 1) ChooseMoved(move, e, own, 1);
  } else {
    for (int f = 0; f < k_; ++f) {
      const int8_t p = model_.target().at[static_cast<size_t>(f)];
      if (p < 0 || f + 1 < least || taken_[static_cast<size_t>(p)] || !model_.Fits(e, p)) continue;
      ChooseMoved(move, e, p, f + 1);
    }
  }
  if (is_off) return;
  // Several may go off in one step, each to a place of its own.
  for (size_t p = off_[i] < 0 ? taken_.size() : static_cast<size_t>(off_[i]); p < taken_.size(); ++p) {
    if (digit_of_place_[p] >= 0 || taken_[p] || !model_.Fits(e, static_cast<int>(p))) continue;
    ChooseMoved(move, e, static_cast<int>(p), kOffCode);
    break;
  }
}

void SequenceSearch::ChooseMoved(Move move, int e, int place, int code) {
  const auto i = static_cast<size_t>(e);
  const int64_t size = model_.digit_size(e);
  const int64_t local = next_local_;
  const int8_t before = next_.at[i];
  const auto rank = static_cast<size_t>(cost_.rank_of_digit(e));
  if (before >= 0) next_local_ *= size;
  if (place >= 0) next_local_ /= size;
  if (next_local_ <= cap_) {
    code_[i] = code;
    next_.at[i] = static_cast<int8_t>(place);
    if (place >= 0) taken_[static_cast<size_t>(place)] = true;
    if (move != Move::kSlice) {
      group_.size *= size;
      group_.size_of_rank[rank] *= size;
    }
    Choose(move, e + 1);
    if (move != Move::kSlice) {
      group_.size /= size;
      group_.size_of_rank[rank] /= size;
    }
    if (place >= 0) taken_[static_cast<size_t>(place)] = false;
    next_.at[i] = before;
    code_[i] = 0;
  }
  next_local_ = local;
}

void SequenceSearch::ChoosePermutes() {
  occupied_.clear();
  next_ = from_;
  for (const bool of_target : {true, false}) {
    for (size_t p = 0; p < place_digit_.size(); ++p) {
      const int e = place_digit_[p];
      if (e < 0 || (digit_of_place_[p] >= 0) != of_target || !Anonymous(e, phase_, static_cast<int8_t>(p))) continue;
      occupied_.push_back(static_cast<int>(p));
      next_.at[static_cast<size_t>(e)] = kReplicated;
    }
  }
  ChoosePermute(0, kNamed);
  // Several ranks: a permute across the farthest may be followed by others.
  for (int to = 0; cost_.num_ranks() > 1 && to <= phase_; ++to) {
    if (reduces_ || (to == phase_ && phase_ > 0)) ChoosePermute(0, to);
  }
  next_ = from_;
}

// The places occupied_[index...] are still to be given to digits. next_ has kReplicated for those not given one.
void SequenceSearch::ChoosePermute(size_t index, int to_phase) {
  if (OverBudget()) return;
  if (index == occupied_.size()) {
    if (!(next_ == from_)) EmitPermute(to_phase);
    return;
  }
  const int place = occupied_[index];
  const int owner = digit_of_place_[static_cast<size_t>(place)];
  const auto is_candidate = [&](int e) {
    return next_.at[static_cast<size_t>(e)] == kReplicated && Anonymous(e, phase_, from_.at[static_cast<size_t>(e)]) &&
           model_.Fits(e, place);
  };
  const bool owner_first = free_ && owner >= 0 && is_candidate(owner) && cost_.rank_of_digit(owner) > to_phase;
  std::array<std::array<int, 2>, kMaxSearchDigits> tried;
  size_t num_tried = 0;
  for (int e = 0; e < k_; ++e) {
    const auto i = static_cast<size_t>(e);
    if (!is_candidate(e)) continue;
    if (owner_first && e != owner && kin_[i] == kin_[static_cast<size_t>(owner)]) continue;
    // One of those that are interchangeable from now on.
    std::array<int, 2> kind = {kin_[i], -1};
    if (cost_.rank_of_digit(e) > to_phase) {
      const int8_t own = model_.target().at[i];
      const bool own_occupied = own >= 0 && (!free_ || place_digit_[static_cast<size_t>(own)] >= 0);
      kind = {100 + class_[i], own_occupied ? e : -1};
    }
    if (std::find(tried.begin(), tried.begin() + static_cast<std::ptrdiff_t>(num_tried), kind) !=
        tried.begin() + static_cast<std::ptrdiff_t>(num_tried)) {
      continue;
    }
    tried[num_tried++] = kind;
    PutPermuted(index, to_phase, e);
  }
}

void SequenceSearch::PutPermuted(size_t index, int to_phase, int e) {
  next_.at[static_cast<size_t>(e)] = static_cast<int8_t>(occupied_[index]);
  ChoosePermute(index + 1, to_phase);
  next_.at[static_cast<size_t>(e)] = kReplicated;
}

// Devices keep their shard when their old and new digit agree at every place.
void SequenceSearch::EmitPermute(int to_phase) {
  std::array<int, kMaxSearchDigits> parent;
  std::iota(parent.begin(), parent.end(), 0);
  const auto find = [&](int e) {
    while (parent[static_cast<size_t>(e)] != e) e = parent[static_cast<size_t>(e)];
    return e;
  };
  int64_t agree = 1;
  int rank = 0;
  for (int f = 0; f < k_; ++f) {
    const int8_t place = next_.at[static_cast<size_t>(f)];
    const int e = place < 0 ? -1 : place_digit_[static_cast<size_t>(place)];
    if (e < 0 || e == f) continue;
    rank = std::max({rank, cost_.rank_of_digit(e), cost_.rank_of_digit(f)});
    const int x = find(e), y = find(f);
    if (x == y) continue;
    parent[static_cast<size_t>(x)] = y;
    agree *= model_.digit_size(e);
  }
  const int64_t moved = model_.devices() - model_.devices() / agree;
  Emit(next_, to_phase, Move::kAllPermute, cost_.Permute(local_, moved, rank));
}

void SequenceSearch::EmitExchange() {
  // After the reduction an Exchange may be the cheapest way home.
  int64_t shards = 1;
  for (int e = 0; e < k_; ++e) {
    const int8_t place = from_.at[static_cast<size_t>(e)];
    if (place >= 0 && digit_of_place_[static_cast<size_t>(place)] < 0) shards *= model_.digit_size(e);
  }
  int64_t max = 0, total = 0;
  LackedElements(from_, 0, &max, &total);
  Emit(model_.target(), kNamed, Move::kExchange, cost_.Exchange(max, total, std::max<int64_t>(2, shards) - 1));
}

}  // namespace reshard::search
