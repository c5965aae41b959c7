// Expansion: steps between boxes. A box fills the places of every dimension from the first one on, so digits can
// only leave a dimension at its end and only be added there. Enumerating exactly these choices, instead of filtering
// all choices for boxes, keeps the search small.
#include <algorithm>

#include "planner/candidates/sequence/expansion.h"

namespace reshard::sequence {

// Chooses the digits that leave dimension `dim` and those after it.
void Expansion::ChooseBoxes(Move move, size_t dim) {
  if (stopped_) return;
  if (dim == space_.places_of_dim.size() || (move != Move::kAllGather && move != Move::kAllToAll)) {
    if (leaving_.empty()) return;
    if (move == Move::kAllGather) {
      EmitMoved(move);
    } else {
      FillBoxes(move, 0, left_of_dim_.empty() ? 0 : left_of_dim_[0]);
    }
    return;
  }
  ChooseBoxes(move, dim + 1);
  if (left_of_dim_[dim] == 0) return;
  const int place = space_.places_of_dim[dim][left_of_dim_[dim] - 1];
  const int e = place_digit_[place];
  const int64_t size = space_.model.digit_size(e);
  if (move == Move::kAllGather && next_local_ * size > space_.cap) return;
  const auto tier = static_cast<size_t>(space_.cost.tier_of_digit(e));
  leaving_.push_back(e);
  --left_of_dim_[dim];
  next_.at[e] = digits::kReplicated;
  next_local_ *= size;
  group_.size *= size;
  group_.size_of_tier[tier] *= size;
  ChooseBoxes(move, dim);
  group_.size /= size;
  group_.size_of_tier[tier] /= size;
  next_local_ /= size;
  next_.at[e] = static_cast<int8_t>(place);
  ++left_of_dim_[dim];
  leaving_.pop_back();
}

// Chooses which digits of leaving_ go to the places of dimension `dim`, from number `at` on, and of later dimensions.
void Expansion::FillBoxes(Move move, size_t dim, size_t at) {
  if (stopped_) return;
  if (dim == space_.places_of_dim.size()) {
    EmitMoved(move);
    return;
  }
  FillBoxes(move, dim + 1, dim + 1 < space_.places_of_dim.size() ? left_of_dim_[dim + 1] : 0);
  // A place that a digit leaves in this step still counts as taken: nothing is added where something leaves.
  if (at == space_.places_of_dim[dim].size() || taken_[space_.places_of_dim[dim][at]]) return;
  const int place = space_.places_of_dim[dim][at];
  std::array<int, digits::kMaxSearchDigits> tried;
  size_t num_tried = 0;
  for (const int e : leaving_) {
    const auto i = static_cast<size_t>(e);
    if (next_.at[i] >= 0 || !space_.model.Fits(e, place)) continue;
    // Tries only one of several digits that are interchangeable from here on.
    const bool labeled = space_.cost.tier_of_digit(e) > phase_;
    const int kind = !labeled                          ? space_.swap_class[i]
                     : space_.model.target().at[i] < 0 ? 100 + space_.class_of[i]
                                                       : 200 + e;
    if (std::find(tried.begin(), tried.begin() + static_cast<std::ptrdiff_t>(num_tried), kind) !=
        tried.begin() + static_cast<std::ptrdiff_t>(num_tried)) {
      continue;
    }
    tried[num_tried++] = kind;
    const int8_t before = next_.at[i];
    const int64_t size = space_.model.digit_size(e);
    const auto tier = static_cast<size_t>(space_.cost.tier_of_digit(e));
    next_.at[i] = static_cast<int8_t>(place);
    next_local_ /= size;
    if (move == Move::kReduceScatter) {
      group_.size *= size;
      group_.size_of_tier[tier] *= size;
    }
    FillBoxes(move, dim, at + 1);
    if (move == Move::kReduceScatter) {
      group_.size /= size;
      group_.size_of_tier[tier] /= size;
    }
    next_local_ *= size;
    next_.at[i] = before;
  }
}

}  // namespace reshard::sequence
