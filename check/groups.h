// The groups of a step: positions of one mesh that differ along some axes only, and what the members of a group hold
// together. A group's boxes are a product over dimensions, which is what keeps this cheap.
#ifndef RESHARD_CHECK_GROUPS_H_
#define RESHARD_CHECK_GROUPS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "check/meet.h"

namespace reshard::check {

// "X" or "X:(1)2"; nothing when it is not an axis of the mesh, or more than one.
std::optional<AxisRef> ParseAxis(std::string_view text, const Mesh& mesh);

// The axes of a mesh cut so finely that every given reference is a run of whole digits.
class Digits {
 public:
  // Nothing when the references do not nest (X:(1)2 and X:(1)3 of X:6).
  static std::optional<Digits> Align(const Mesh& mesh, const std::vector<const std::vector<AxisRef>*>& lists);
  struct Digit {
    int axis = 0;
    int64_t pre = 1;
    int64_t size = 1;
    int64_t stride = 1;  // in positions
  };
  const std::vector<Digit>& digits() const { return digits_; }
  // The digits of a reference, major first.
  std::vector<int> Of(const AxisRef& ref) const;
  // One bit per digit. Nothing when two references share a digit.
  std::optional<std::vector<bool>> Of(const std::vector<AxisRef>& refs) const;

 private:
  std::vector<Digit> digits_;
};

class Groups {
 public:
  Groups(const Digits& digits, std::vector<bool> inside);

  int64_t size() const { return size_; }
  // The group of a position, named by its first member.
  int64_t Of(int64_t position) const;
  // The position's number within its group, ascending by position.
  int64_t Index(int64_t position) const;
  bool inside(int digit) const { return inside_[digit]; }

 private:
  const Digits* digits_;
  std::vector<bool> inside_;
  int64_t size_ = 1;
};

// One side's shards of a dimension, seen by groups: rows that members of one group hold have one key.
struct KeyedDim {
  std::vector<int64_t> key_of_row;
  absl::flat_hash_map<int64_t, int64_t> length;     // of all rows with the key
  absl::flat_hash_map<int64_t, int64_t> non_empty;  // rows with the key
};
KeyedDim KeyRows(const Digits& digits, const Groups& groups, const Holdings& of, int d);

}  // namespace reshard::check

#endif  // RESHARD_CHECK_GROUPS_H_
