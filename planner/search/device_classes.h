// Devices that do the same in a step, so that one of them stands for all.
//
// Where all cuts are even and digits of both layouts stand at common places, what a device receives and sends depends
// on its coordinates only through which of them are equal, and only those pairs of digits matter that meet at one place
// (the shard that a device has of dimension d is the one it needs when the digit there in the source and the digit
// there in the target have equal coordinates). A class is one pattern of equalities; the number of classes does not
// grow with the mesh.
#ifndef RESHARD_PLANNER_SEARCH_DEVICE_CLASSES_H_
#define RESHARD_PLANNER_SEARCH_DEVICE_CLASSES_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "reshard/layout/layout.h"

namespace reshard::search {

// Two digits of one size whose coordinates are compared.
struct DigitLink {
  AxisRef a, b;
  bool operator==(const DigitLink&) const = default;
};

struct DeviceClass {
  int64_t position = 0;  // of one device of the class
  int64_t devices = 1;
};

// The classes under these links. Nothing when linked digits have no common cuts, or there would be more classes than
// devices or than a few thousand.
std::optional<std::vector<DeviceClass>> ClassesUnder(const Mesh& mesh, const std::vector<DigitLink>& links);

}  // namespace reshard::search

#endif  // RESHARD_PLANNER_SEARCH_DEVICE_CLASSES_H_
