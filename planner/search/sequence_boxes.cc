// SequenceSearch: steps between boxes. A box fills the places of every dimension from the first one on.
#include <algorithm>

#include "planner/search/sequence_search.h"

namespace reshard::search {

// What leaves dimension `dim` and those behind it is still to choose.
void SequenceSearch::ChooseBoxes(Move move, size_t dim) {
  if (OverBudget()) return;
  if (dim == places_of_dim_.size() || (move != Move::kAllGather && move != Move::kAllToAll)) {
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
  const int place = places_of_dim_[dim][left_of_dim_[dim] - 1];
  const int e = place_digit_[static_cast<size_t>(place)];
  const int64_t size = model_.digit_size(e);
  if (move == Move::kAllGather && next_local_ * size > cap_) return;
  const auto rank = static_cast<size_t>(cost_.rank_of_digit(e));
  leaving_.push_back(e);
  --left_of_dim_[dim];
  next_.at[static_cast<size_t>(e)] = kReplicated;
  next_local_ *= size;
  group_.size *= size;
  group_.size_of_rank[rank] *= size;
  ChooseBoxes(move, dim);
  group_.size /= size;
  group_.size_of_rank[rank] /= size;
  next_local_ /= size;
  next_.at[static_cast<size_t>(e)] = static_cast<int8_t>(place);
  ++left_of_dim_[dim];
  leaving_.pop_back();
}

// The places from number `at` of dimension `dim` on are still to be filled with digits that leave theirs.
void SequenceSearch::FillBoxes(Move move, size_t dim, size_t at) {
  if (OverBudget()) return;
  if (dim == places_of_dim_.size()) {
    EmitMoved(move);
    return;
  }
  FillBoxes(move, dim + 1, dim + 1 < places_of_dim_.size() ? left_of_dim_[dim + 1] : 0);
  // Nobody comes where somebody leaves.
  if (at == places_of_dim_[dim].size() || taken_[static_cast<size_t>(places_of_dim_[dim][at])]) return;
  const int place = places_of_dim_[dim][at];
  std::array<int, kMaxSearchDigits> tried;
  size_t num_tried = 0;
  for (const int e : leaving_) {
    const auto i = static_cast<size_t>(e);
    if (next_.at[i] >= 0 || !model_.Fits(e, place)) continue;
    // One of those that are interchangeable from here on.
    const bool named = cost_.rank_of_digit(e) > phase_;
    const int kind = !named ? kin_[i] : model_.target().at[i] < 0 ? 100 + class_[i] : 200 + e;
    if (std::find(tried.begin(), tried.begin() + static_cast<std::ptrdiff_t>(num_tried), kind) !=
        tried.begin() + static_cast<std::ptrdiff_t>(num_tried)) {
      continue;
    }
    tried[num_tried++] = kind;
    const int8_t before = next_.at[i];
    const int64_t size = model_.digit_size(e);
    const auto rank = static_cast<size_t>(cost_.rank_of_digit(e));
    next_.at[i] = static_cast<int8_t>(place);
    next_local_ /= size;
    if (move == Move::kReduceScatter) {
      group_.size *= size;
      group_.size_of_rank[rank] *= size;
    }
    FillBoxes(move, dim, at + 1);
    if (move == Move::kReduceScatter) {
      group_.size /= size;
      group_.size_of_rank[rank] /= size;
    }
    next_local_ *= size;
    next_.at[i] = before;
  }
}

}  // namespace reshard::search
