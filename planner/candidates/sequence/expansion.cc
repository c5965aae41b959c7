#include "planner/candidates/sequence/expansion.h"

#include <algorithm>
#include <numeric>

namespace reshard::sequence {

void Expansion::Run(const digits::State& from, int phase, Move before, Sink sink) {
  from_ = from;
  phase_ = phase;
  sink_ = &sink;
  stopped_ = false;
  local_ = space_.model.LocalElements(from_);
  std::fill(place_digit_.begin(), place_digit_.end(), -1);
  taken_.assign(place_digit_.size(), false);
  bool any_replicated = false, any_partial = false, any_placed = false;
  for (int e = 0; e < space_.k; ++e) {
    const int8_t place = from_.at[e];
    any_replicated |= place == digits::kReplicated;
    any_partial |= place == digits::kPartialDigit && space_.model.target().at[e] != digits::kPartialDigit;
    if (place < 0) continue;
    any_placed = true;
    place_digit_[place] = e;
    taken_[place] = true;
  }
  FindScratchSlots();
  FindInterchangeable();
  boxed_ = space_.options.boxes_only && space_.model.IsBox(from_) && space_.model.IsBox(space_.model.target());
  next_ = from_;
  group_ = Group();
  next_local_ = local_;
  const OpSet& ops = space_.options.ops;
  // Two slices in a row would be one slice; likewise two permutes below.
  if (ops.contains(Op::kSlice) && any_replicated && before != Move::kSlice) ChooseAll(Move::kSlice);
  if (ops.contains(Op::kAllGather) && any_placed) ChooseAll(Move::kAllGather);
  if (ops.contains(Op::kAllToAll) && any_placed) ChooseAll(Move::kAllToAll);
  if (phase_ != kLabeled && any_placed && before != Move::kAllPermute) {
    ChoosePermutes();
  }
  if (any_partial) {
    if (ops.contains(Op::kReduceScatter)) ChooseAll(Move::kReduceScatter);
    // An AllReduce frees no place and takes none, so boxes stay boxes.
    if (ops.contains(Op::kAllReduce)) Choose(Move::kAllReduce, 0);
    // Without a reduction, the caller has already priced the direct Exchange as a candidate.
  } else if (phase_ == kLabeled && space_.reduces && ops.contains(Op::kExchange) && !space_.options.boxes_only) {
    EmitExchange();
  }
}

void Expansion::Emit(const digits::State& next, int phase, Move move, const cost::Cost& step) {
  const digits::DigitModel& model = space_.model;
  const bool allowed =
      boxed_ || !space_.options.boxes_only || next == model.target() || next == model.source() || model.IsBox(next);
  stopped_ = !(*sink_)({next, phase, move, step, allowed});
}

void Expansion::ChooseAll(Move move) {
  if (!boxed_) {
    Choose(move, 0);
    return;
  }
  leaving_.clear();
  left_of_dim_.assign(space_.places_of_dim.size(), 0);
  for (size_t d = 0; d < space_.places_of_dim.size(); ++d) {
    for (int p : space_.places_of_dim[d]) left_of_dim_[d] += taken_[p] ? 1 : 0;
  }
  for (int e = 0; move != Move::kAllGather && move != Move::kAllToAll && e < space_.k; ++e) {
    if (CanMove(move, e)) leaving_.push_back(e);
  }
  ChooseBoxes(move, 0);
}

void Expansion::FindScratchSlots() {
  scratch_.fill(-1);
  for (int e = 0; space_.scratch_for_all && e < space_.k; ++e) {
    for (size_t p = 0; p < taken_.size() && scratch_[e] < 0; ++p) {
      if (space_.digit_of_place[p] < 0 && !taken_[p] && space_.model.Fits(e, static_cast<int>(p))) {
        scratch_[e] = static_cast<int>(p);
      }
    }
  }
}

// Two digits are interchangeable if swapping them, and the places where they are going, changes nothing.
void Expansion::FindInterchangeable() {
  interchangeable_.fill(-1);
  std::array<std::array<int, 4>, digits::kMaxSearchDigits> kinds;
  for (int e = 0; e < space_.k; ++e) {
    const auto i = static_cast<size_t>(e);
    const int8_t place = from_.at[i];
    const bool unlabeled = space_.Unlabeled(e, phase_, place);
    const int8_t target = space_.model.target().at[i];
    const bool at_a_target = place >= 0 && (!space_.scratch_for_all || space_.digit_of_place[place] >= 0);
    // For a labeled digit it matters which digit occupies its target.
    const bool own_is_empty = target < 0 || (space_.scratch_for_all && place_digit_[target] < 0);
    const int own = unlabeled || own_is_empty ? -1 : e;
    kinds[i] = {unlabeled, unlabeled ? space_.swap_class[i] : space_.class_of[i],
                at_a_target ? e + 1 : std::min<int>(place, 0), own};
    for (int f = 0; f < e; ++f) {
      if (kinds[f] == kinds[i]) interchangeable_[i] = f;
    }
  }
}

bool Expansion::CanMove(Move move, int e) const {
  const int8_t place = from_.at[e];
  switch (move) {
    case Move::kSlice:
      return place == digits::kReplicated;
    case Move::kReduceScatter:
    case Move::kAllReduce:
      return place == digits::kPartialDigit && space_.model.target().at[e] != digits::kPartialDigit;
    case Move::kAllToAll:
      return place >= 0 || (space_.joint && place == digits::kReplicated);
    default:
      return place >= 0;
  }
}

void Expansion::Choose(Move move, int e) {
  if (stopped_) return;
  if (e == space_.k) {
    EmitMoved(move);
    return;
  }
  const auto i = static_cast<size_t>(e);
  // Of interchangeable digits, a later one never gets a smaller code than an earlier one.
  const int least = interchangeable_[i] < 0 ? 0 : code_[interchangeable_[i]];
  if (least == 0) {
    code_[i] = 0;
    Choose(move, e + 1);
  }
  const int8_t place = from_.at[i];
  const int8_t own = space_.model.target().at[i];
  const bool labeled = space_.cost.tier_of_digit(e) > phase_;  // once it is no longer partial
  if (!CanMove(move, e)) return;
  const bool at_target = space_.scratch_for_all && labeled && place >= 0 && place == own;
  if (at_target) return;
  // Codes only order the choices of interchangeable digits; any order will do.
  constexpr int kScratchCode = 1000, kReplicatedCode = 2000;
  if (space_.joint && move == Move::kAllToAll && place >= 0) ChooseMoved(move, e, digits::kReplicated, kReplicatedCode);
  if (move == Move::kAllGather || move == Move::kAllReduce) {
    if (least <= 1) ChooseMoved(move, e, digits::kReplicated, 1);
    return;
  }
  if (!space_.scratch_for_all) {
    for (size_t p = 0; p < taken_.size(); ++p) {
      const int code = static_cast<int>(p) + 1;
      if (code >= least && !taken_[p] && space_.model.Fits(e, static_cast<int>(p)))
        ChooseMoved(move, e, static_cast<int>(p), code);
    }
    return;
  }
  const bool in_scratch = place >= 0 && space_.digit_of_place[place] < 0;
  if (labeled) {
    if (own >= 0 && !taken_[own] && least <= 1) ChooseMoved(move, e, own, 1);
  } else {
    for (int f = 0; f < space_.k; ++f) {
      const int8_t p = space_.model.target().at[f];
      if (p < 0 || f + 1 < least || taken_[p] || !space_.model.Fits(e, p)) continue;
      ChooseMoved(move, e, p, f + 1);
    }
  }
  if (in_scratch) return;
  // Several digits may go to scratch in one step, each to a slot of its own.
  for (size_t p = scratch_[i] < 0 ? taken_.size() : static_cast<size_t>(scratch_[i]); p < taken_.size(); ++p) {
    if (space_.digit_of_place[p] >= 0 || taken_[p] || !space_.model.Fits(e, static_cast<int>(p))) continue;
    ChooseMoved(move, e, static_cast<int>(p), kScratchCode);
    break;
  }
}

void Expansion::ChooseMoved(Move move, int e, int place, int code) {
  const auto i = static_cast<size_t>(e);
  const int64_t size = space_.model.digit_size(e);
  const int64_t local = next_local_;
  const int8_t before = next_.at[i];
  const auto tier = static_cast<size_t>(space_.cost.tier_of_digit(e));
  if (before >= 0) next_local_ *= size;
  if (place >= 0) next_local_ /= size;
  // Along a digit that was replicated, a device only keeps a part of what it has, and no data moves.
  const bool in_group = move != Move::kSlice && before != digits::kReplicated;
  // The digits of an AllToAll leave one by one here, but the step moves them at once: only the final size counts, which
  // EmitMoved checks.
  if (next_local_ <= space_.cap || move == Move::kAllToAll) {
    code_[i] = code;
    next_.at[i] = static_cast<int8_t>(place);
    if (place >= 0) taken_[place] = true;
    if (in_group) {
      group_.size *= size;
      group_.size_of_tier[tier] *= size;
    }
    Choose(move, e + 1);
    if (in_group) {
      group_.size /= size;
      group_.size_of_tier[tier] /= size;
    }
    if (place >= 0) taken_[place] = false;
    next_.at[i] = before;
    code_[i] = 0;
  }
  next_local_ = local;
}

void Expansion::EmitMoved(Move move) {
  // A slice moves no data and has no group; any other step without one would be a slice by another name.
  if (next_ == from_ || (group_.size == 1) != (move == Move::kSlice)) return;
  if (move == Move::kAllToAll && next_local_ != local_) return;
  Emit(next_, phase_, move, space_.cost.Collective(move, local_, next_local_, group_));
}

void Expansion::ChoosePermutes() {
  // The target's places come first, before the digits that belong there are put elsewhere.
  occupied_.clear();
  next_ = from_;
  for (const bool of_target : {true, false}) {
    for (size_t p = 0; p < place_digit_.size(); ++p) {
      const int e = place_digit_[p];
      if (e < 0 || (space_.digit_of_place[p] >= 0) != of_target || !space_.Unlabeled(e, phase_, static_cast<int8_t>(p)))
        continue;
      occupied_.push_back(static_cast<int>(p));
      next_.at[e] = digits::kReplicated;
    }
  }
  ChoosePermute(0, kLabeled);
  // With several tiers, other permutes may follow one across the farthest tier.
  for (int to = 0; space_.cost.num_tiers() > 1 && to <= phase_; ++to) {
    if (space_.reduces || (to == phase_ && phase_ > 0)) ChoosePermute(0, to);
  }
  next_ = from_;
}

// Assigns digits to the places occupied_[index], occupied_[index + 1], .... Digits without a place so far are
// kReplicated in next_.
void Expansion::ChoosePermute(size_t index, int to_phase) {
  if (stopped_) return;
  if (index == occupied_.size()) {
    if (!(next_ == from_)) EmitPermute(to_phase);
    return;
  }
  const int place = occupied_[index];
  const int owner = space_.digit_of_place[place];
  const auto is_candidate = [&](int e) {
    return next_.at[e] == digits::kReplicated && space_.Unlabeled(e, phase_, from_.at[e]) &&
           space_.model.Fits(e, place);
  };
  const bool owner_first =
      space_.scratch_for_all && owner >= 0 && is_candidate(owner) && space_.cost.tier_of_digit(owner) > to_phase;
  std::array<std::array<int, 2>, digits::kMaxSearchDigits> tried;
  size_t num_tried = 0;
  for (int e = 0; e < space_.k; ++e) {
    const auto i = static_cast<size_t>(e);
    if (!is_candidate(e)) continue;
    if (owner_first && e != owner && space_.swap_class[i] == space_.swap_class[owner]) continue;
    // Tries only one of several digits that are interchangeable from here on.
    std::array<int, 2> kind = {space_.swap_class[i], -1};
    if (space_.cost.tier_of_digit(e) > to_phase) {
      const int8_t own = space_.model.target().at[i];
      const bool own_occupied = own >= 0 && (!space_.scratch_for_all || place_digit_[own] >= 0);
      kind = {100 + space_.class_of[i], own_occupied ? e : -1};
    }
    if (std::find(tried.begin(), tried.begin() + static_cast<std::ptrdiff_t>(num_tried), kind) !=
        tried.begin() + static_cast<std::ptrdiff_t>(num_tried)) {
      continue;
    }
    tried[num_tried++] = kind;
    PutPermuted(index, to_phase, e);
  }
}

void Expansion::PutPermuted(size_t index, int to_phase, int e) {
  next_.at[e] = static_cast<int8_t>(occupied_[index]);
  ChoosePermute(index + 1, to_phase);
  next_.at[e] = digits::kReplicated;
}

// A device keeps its shard if its coordinates along the old and the new digit are equal at every place. As in
// MissingElements, equations that close a cycle follow from the others.
void Expansion::EmitPermute(int to_phase) {
  std::array<int, digits::kMaxSearchDigits> parent;
  std::iota(parent.begin(), parent.end(), 0);
  const auto find = [&](int e) {
    while (parent[e] != e) e = parent[e];
    return e;
  };
  int64_t agree = 1;
  int tier = 0;
  for (int f = 0; f < space_.k; ++f) {
    const int8_t place = next_.at[f];
    const int e = place < 0 ? -1 : place_digit_[place];
    if (e < 0 || e == f) continue;
    tier = std::max({tier, space_.cost.tier_of_digit(e), space_.cost.tier_of_digit(f)});
    const int x = find(e), y = find(f);
    if (x == y) continue;
    parent[x] = y;
    agree *= space_.model.digit_size(e);
  }
  const int64_t moved = space_.model.devices() - space_.model.devices() / agree;
  Emit(next_, to_phase, Move::kAllPermute, space_.cost.Permute(local_, moved, tier));
}

void Expansion::EmitExchange() {
  // After the reduction an Exchange may be the cheapest way to finish.
  int64_t shards = 1;
  for (int e = 0; e < space_.k; ++e) {
    const int8_t place = from_.at[e];
    if (place >= 0 && space_.digit_of_place[place] < 0) shards *= space_.model.digit_size(e);
  }
  int64_t max = 0, total = 0;
  space_.MissingElements(from_, 0, &max, &total);
  Emit(space_.model.target(), kLabeled, Move::kExchange,
       space_.cost.Exchange(max, total, std::max<int64_t>(2, shards) - 1));
}

}  // namespace reshard::sequence
