// What the rows of one side of a dimension share with those rows of the other side that agree with a device on some
// digits.
#ifndef RESHARD_PLANNER_TRANSFERS_PINNED_SUMS_H_
#define RESHARD_PLANNER_TRANSFERS_PINNED_SUMS_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "absl/types/span.h"
#include "planner/digits/digits.h"
#include "planner/transfers/overlap.h"

namespace reshard::transfers {

// State: none but a table, which changes how fast At() is, not what it returns.
class PinnedSums {
 public:
  // `fixed_by`: per digit of `other`, the digit whose coordinate it must have, or -1. `of_receivers`: `own` is about
  // rows of the target, otherwise of the source. `overlap` must outlive it.
  PinnedSums(const DimOverlap& overlap, const std::vector<digits::Digit>& digits, const digits::RowDigits& own,
             const digits::RowDigits& other, absl::Span<const int> fixed_by, bool of_receivers);
  // The sums over the pairs of `row` with rows that have the device's coordinates (one per digit) where they are fixed.
  SpreadSums At(int64_t row, const int32_t* coordinates) const;
  // Call before `asked` calls to At(): sums up for all rows and coordinates at once, unless `asked` is below the number
  // of rows.
  void Tabulate(int64_t asked);
  // Forgets what was tabulated.
  void Forget();
  // Of a table: whether the row alone decides the sums, and the numbers of the sums: different for different sums,
  // below `numbers()`.
  bool by_row() const { return num_keys_ == 1; }
  int32_t NumberAt(int64_t row, const int32_t* coordinates) const { return table_[IndexOf(row, coordinates)]; }
  int32_t numbers() const { return once_->size(); }

 private:
  // A digit of the other row, and what fixes it: a digit of the own row, or one outside, which is part of the key.
  struct Condition {
    int64_t weight, size;    // of the digit in the other row
    int64_t own_weight = 0;  // of the digit that fixes it in the own row
    int fixed_by = -1;       // the digit outside that does
    int64_t Of(int64_t row) const { return row / weight % size; }
  };
  // The pairs of the own row r are PairAt(first()[r]) to, but not, PairAt(first()[r + 1]).
  const std::vector<int64_t>& first() const { return of_receivers_ ? overlap_->first_of_to : overlap_->first_of_from; }
  const Pair& PairAt(int64_t number) const {
    return overlap_->pairs[of_receivers_ ? number : overlap_->by_from[number]];
  }
  int64_t OtherRow(const Pair& pair) const { return of_receivers_ ? pair.from_row : pair.to_row; }
  Spread SpreadIn(const Pair& pair) const { return of_receivers_ ? pair.in_to : pair.in_from; }
  // Whether the digits that are fixed within the rows agree.
  bool Counts(int64_t mine, int64_t theirs) const;
  size_t IndexOf(int64_t row, const int32_t* coordinates) const {
    int64_t key = 0;
    for (const Condition& c : keys_) key = key * c.size + coordinates[c.fixed_by];
    return static_cast<size_t>(row * num_keys_ + key);
  }

  const DimOverlap* overlap_;
  bool of_receivers_;
  absl::InlinedVector<Condition, 2> conditions_, keys_;
  int64_t num_keys_ = 1;
  std::vector<int32_t> table_;      // by row, then key: the number of the sums; empty unless tabulated
  std::unique_ptr<SumsOnce> once_;  // that the table numbers
};

}  // namespace reshard::transfers

#endif  // RESHARD_PLANNER_TRANSFERS_PINNED_SUMS_H_
