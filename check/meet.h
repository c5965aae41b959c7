// How the shards of a dimension under one layout meet those under another, and the same for whole boxes.
#ifndef RESHARD_CHECK_MEET_H_
#define RESHARD_CHECK_MEET_H_

#include <cstdint>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "check/holdings.h"

namespace reshard::check {

// One dimension: rows of `from` against rows of `to`.
class Meet {
 public:
  struct Pair {
    int64_t from_row = 0;
    int64_t to_row = 0;
    int64_t elements = 0;  // of the `to` row that the `from` row holds too; at least 1
  };
  Meet(const Holdings::Dim& from, const Holdings::Dim& to, const Contents& contents);
  // Whether rows of `from` may overlap, or hold an element several times, or rows of `to`.
  bool slots() const { return slots_; }

  const std::vector<Pair>& pairs() const { return pairs_; }
  // Elements that the two rows share.
  int64_t Shared(int64_t from_row, int64_t to_row) const {
    const auto it = index_.find(from_row * to_rows_ + to_row);
    return it == index_.end() ? 0 : pairs_[it->second].elements;
  }
  // Rows of the other side that share something with this one.
  int64_t ToRowsOf(int64_t from_row) const { return to_rows_of_[from_row]; }
  int64_t FromRowsOf(int64_t to_row) const { return from_rows_of_[to_row]; }

 private:
  void Add(int64_t from_row, int64_t to_row, int64_t elements);
  void MeetSlots(const Holdings::Dim& from, const Holdings::Dim& to, const Contents& contents);

  int64_t to_rows_ = 0;
  bool slots_ = false;
  std::vector<Pair> pairs_;
  absl::flat_hash_map<int64_t, int32_t> index_;  // from_row * to_rows_ + to_row
  std::vector<int64_t> to_rows_of_, from_rows_of_;
};

// The intervals in ascending order, each element once.
std::vector<Interval> Distinct(std::vector<Interval> intervals);
// Elements of an interval that lie in those of `by`, which are ascending and disjoint.
int64_t Covered(const Interval& interval, const std::vector<Interval>& by);

// Elements that the box of position q of `to` has and that of position p of `from` does not have, each counted once,
// however many slots it has; p < 0: there is no such box.
int64_t DistinctLack(const Holdings& from, int64_t p, const Holdings& to, int64_t q,
                     const std::vector<Contents>& contents);

// Two layouts of one shape, all dimensions. `contributions`: the last dimension, that of the partial values, takes
// part, which requires that both sides have the same.
class Meeting {
 public:
  Meeting(const Holdings& from, const Holdings& to, const std::vector<Contents>& contents, bool contributions);

  const Holdings& from() const { return *from_; }
  const Holdings& to() const { return *to_; }
  int num_dims() const { return static_cast<int>(dims_.size()); }
  // Whether a slot table cuts a dimension of either.
  bool slots() const;
  const Meet& dim(int d) const { return dims_[d]; }
  // Elements that the box of a position of `from` shares with the box of a position of `to`.
  int64_t Shared(int64_t from_position, int64_t to_position) const;
  // The same for a device of the plan; 0 where it is not in both meshes.
  int64_t Kept(int64_t device) const;
  // Boxes of `from` that share something with the box of a position of `to`.
  int64_t FromCellsOf(int64_t to_position) const;
  // Boxes of `to` that share something with the box of a position of `from`.
  int64_t ToCellsOf(int64_t from_position) const;
  // The position's box of `to` as a box of `from`: the cell's number, or -1 where `from` has no such box.
  int64_t SameCell(int64_t to_position) const;

 private:
  const Holdings* from_;
  const Holdings* to_;
  std::vector<Meet> dims_;
};

}  // namespace reshard::check

#endif  // RESHARD_CHECK_MEET_H_
