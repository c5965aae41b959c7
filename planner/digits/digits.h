// Refinement: cuts mesh axes into digits such that every axis reference of two layouts is a run of whole digits and,
// along each dimension, the two layouts put their digits at the same places wherever their sizes allow it.
//
// Example: [<X>8] with X:4 against [<Y,Z>8] with Y:2, Z:2 cuts X into X:(1)2 and X:(2)2, each of which is then at the
// place that Y, or Z, has in the other layout. Sizes without a common cut (4 against 6 beyond their gcd) stay as they
// are.
#ifndef RESHARD_PLANNER_DIGITS_DIGITS_H_
#define RESHARD_PLANNER_DIGITS_DIGITS_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "planner/digits/domains.h"
#include "reshard/layout/layout.h"

namespace reshard::digits {

struct Digit {
  AxisRef ref;         // of the mesh
  int64_t size = 1;    // == ref.size
  int64_t stride = 1;  // positions between neighboring coordinates
  int level = 0;       // of the topology, at which devices that differ only in this digit meet
  // A mesh has at most kMaxDevices devices.
  int32_t Coordinate(int64_t position) const { return static_cast<int32_t>(position / stride % size); }
};

// A cut of one dimension by one factor of one layout: the multiplicative interval [lo, hi) of the dimension's
// mixed-radix system, major first, and the mesh digit that chooses the part (-1: a block factor, of which every part is
// kept).
struct DimCut {
  int dim = 0;
  int64_t lo = 1;
  int64_t hi = 1;
  int digit = -1;
  Factor::Kind kind = Factor::Kind::kAxis;
};

struct Refinement {
  std::vector<Digit> digits;      // in mesh order, major first within an axis; without digits of size 1
  std::vector<DimCut> from, to;   // places of the two layouts in dimension order, major first
  std::vector<int> from_partial;  // digits
  std::vector<int> to_partial;

  // The digits that make up an axis reference, major first.
  absl::InlinedVector<int, 8> DigitsOf(const AxisRef& ref) const;
};

// The refinement of two layouts over the same mesh (same axes). nullopt if their sub-axes of one axis cannot be cut
// into common digits (X:(1)2 against X:(1)3 of an axis of 6). With `levels`, axes are also cut where they leave a
// domain of a topology, and the result is nullopt if such a cut does not fit the others. They are likewise cut at both
// ends of every reference in `more`.
std::optional<Refinement> Refine(const Layout& from, const Layout& to, const MeshLevels* levels = nullptr,
                                 const std::vector<AxisRef>& more = {});

// Computes from a device's coordinates the row of one dimension's table that it holds.
struct RowDigits {
  absl::InlinedVector<int, 4> digits;  // major first
  absl::InlinedVector<int64_t, 4> weights;

  int64_t Row(const int32_t* coordinates) const {
    int64_t out = 0;
    for (size_t j = 0; j < digits.size(); ++j) out += coordinates[digits[j]] * weights[j];
    return out;
  }
  int64_t RowAt(int64_t position, const std::vector<Digit>& all) const {
    int64_t out = 0;
    for (size_t j = 0; j < digits.size(); ++j) {
      out += all[digits[j]].Coordinate(position) * weights[j];
    }
    return out;
  }
};
// For a table whose rows are numbered by these references, major first.
RowDigits RowDigitsOf(const Refinement& refinement, const std::vector<AxisRef>& refs);

// Merges adjacent chosen digits of an axis back into references, in mesh order.
std::vector<AxisRef> MergeDigits(const std::vector<Digit>& digits, const std::vector<bool>& chosen);

}  // namespace reshard::digits

#endif  // RESHARD_PLANNER_DIGITS_DIGITS_H_
