// Classes of devices that do the same in a step, so that one device represents each class.
//
// If all cuts are even and the digits of both layouts are at common places, what a device receives and sends depends on
// its coordinates only through which of them are equal, and only pairs of digits that meet at one place matter: the
// shard of a dimension that a device has is the one that it needs if the digit there in the source and the digit there
// in the target have equal coordinates. A class is one pattern of equalities; the number of classes does not grow with
// the mesh.
#ifndef RESHARD_PLANNER_DIGITS_DEVICE_CLASSES_H_
#define RESHARD_PLANNER_DIGITS_DEVICE_CLASSES_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "reshard/layout/layout.h"

namespace reshard::digits {

// Two digits of equal size whose coordinates are compared.
struct DigitLink {
  AxisRef a, b;
  bool operator==(const DigitLink&) const = default;
};

struct DeviceClass {
  int64_t position = 0;  // of one device of the class
  int64_t devices = 1;
};

// The classes under these links; nullopt if linked digits have no common cuts, or if there would be more classes than
// devices or more than a few thousand.
std::optional<std::vector<DeviceClass>> ClassesUnder(const Mesh& mesh, const std::vector<DigitLink>& links);

}  // namespace reshard::digits

#endif  // RESHARD_PLANNER_DIGITS_DEVICE_CLASSES_H_
