// The device order of an HLO sharding as digits of the device number, and back.
#ifndef RESHARD_LAYOUT_NOTATION_HLO_DEVICES_H_
#define RESHARD_LAYOUT_NOTATION_HLO_DEVICES_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "reshard/layout/layout.h"

namespace reshard::notation {

// The devices in the order in which the tiles list them, as digits of the device number, major first: the digit
// (stride, size) of number i is i / stride % size.
class HloDevices {
 public:
  // iota(product).reshape(sizes).transpose(order). Both must fit each other.
  void FromIota(const std::vector<int64_t>& sizes, const std::vector<int64_t>& order);
  // A permutation of 0..n-1; false when it is not a product of digits.
  bool FromIds(const std::vector<int64_t>& ids);

  // The next tile dimension of this size: takes digits from the major end and returns the axes, or parts of axes, that
  // they are, neighbors joined. Nothing when digits or axes would have to be split where they do not divide.
  std::optional<std::vector<AxisRef>> Take(int64_t size, const Mesh& mesh);

 private:
  struct Digit {
    int64_t stride = 1;
    int64_t size = 1;
  };

  std::vector<Digit> digits_;
  size_t next_ = 0;
};

// Every axis of the mesh cut into parts so that each of `refs` is one of them; in mesh order, nothing of size 1. The
// refs must not overlap.
std::vector<AxisRef> AllParts(const Mesh& mesh, const std::vector<AxisRef>& refs);

// The text [r..]T(p..) that brings the parts (as AllParts gives them) into this order; [n] when they are in this order
// already.
std::string IotaText(const std::vector<AxisRef>& parts, const std::vector<AxisRef>& order);

}  // namespace reshard::notation

#endif  // RESHARD_LAYOUT_NOTATION_HLO_DEVICES_H_
