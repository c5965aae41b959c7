// Finds devices that do the same by telling apart those that do not, one property after another. A property is a column
// of small numbers. Where sizes do not divide, most devices of a large mesh still do the same, and one of a kind stands
// for all.
#ifndef RESHARD_PLANNER_DIGITS_DEVICE_KINDS_H_
#define RESHARD_PLANNER_DIGITS_DEVICE_KINDS_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "planner/digits/device_classes.h"

namespace reshard::digits {

// State: a kind per device, numbered in the order of their first devices. At first all are of one kind.
class DeviceKinds {
 public:
  explicit DeviceKinds(size_t devices) : kind_(devices, 0) {}

  // Post-condition: two devices are of one kind exactly if they were before and have the same entry in `column`.
  // Requires one entry per device, from 0 up, below `entries`.
  //
  // Example: kinds 0 0 1 1 and a column 5 7 5 5 become 0 1 2 2.
  void TellApart(absl::Span<const int32_t> column, int32_t entries);
  // The same for any numbers.
  void TellApart(absl::Span<const int64_t> column);

  absl::Span<const int32_t> kinds() const { return kind_; }  // per device
  int32_t count() const { return count_; }
  // Per kind its first device, and how many devices it has.
  std::vector<DeviceClass> Classes() const;

 private:
  std::vector<int32_t> kind_;
  int32_t count_ = 1;
};

}  // namespace reshard::digits

#endif  // RESHARD_PLANNER_DIGITS_DEVICE_KINDS_H_
