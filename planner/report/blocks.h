// What a picture of a layout shows: along each dimension the blocks that different devices hold, and for each block the
// devices that hold it. Nothing here enumerates a mesh or a dimension: the work is bounded, whatever the layout.
#ifndef RESHARD_PLANNER_REPORT_BLOCKS_H_
#define RESHARD_PLANNER_REPORT_BLOCKS_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "reshard/layout/layout.h"

namespace reshard::report {

// A part of a dimension that the same devices hold. Each axis of the dimension gives one digit of a device's position,
// so the holders are the positions whose digits along these axes add up to `offset`.
struct Block {
  Interval interval;
  int64_t offset = 0;
  bool elided = false;  // stands for any number of blocks that are left out
};

struct DimBlocks {
  // Ascending, not empty; they cover [0, size) without gaps. Of a slot table: the slots of all coordinates, one after
  // the other, counted from 0.
  std::vector<Block> blocks;
  int64_t count = 0;  // of all blocks, those left out included; -1: too many to count
};

// At most `limit` (at least 3) blocks of dimension d; where there are more, one near the middle is the elided one.
DimBlocks BlocksOf(const Layout& layout, int d, size_t limit);

// The indices in the slots of the coordinate whose block in a slot table has this offset, such as "5-6,8".
std::string SlotText(const Layout& layout, int d, int64_t offset);

// What one device holds along one dimension, when that may be a million intervals.
struct Held {
  std::vector<Interval> first;  // as in Layout::Intervals, but not more than asked for
  int64_t count = 0;            // of all intervals
  int64_t length = 0;           // of all intervals together
};
Held HeldAlong(const Layout& layout, int64_t position, int d, size_t keep);

// What the axes of dimension d contribute to `position`: the device holds the blocks with this offset.
int64_t OffsetOf(const Layout& layout, int d, int64_t position);

// One digit of a mixed-radix position.
struct Digit {
  int64_t size = 1;
  int64_t stride = 1;
};

// The digits of a position that none of the dimensions `dims` uses, major first.
std::vector<Digit> FreeDigits(const Layout& layout, const std::vector<int>& dims);

// Some or all devices at `offset` plus any values of the free digits, as inclusive ranges of ids.
struct DeviceSet {
  std::vector<std::pair<int64_t, int64_t>> ranges;  // ascending
  int64_t count = 0;                                // of all devices
  int64_t last = -1;     // the highest id, also when the ranges do not reach it; -1: not known
  bool complete = true;  // whether the ranges hold all of them
};
DeviceSet DevicesAt(const Mesh& mesh, const std::vector<Digit>& free, int64_t offset);
// The same for all devices of the mesh.
DeviceSet AllDevices(const Mesh& mesh);
// The same for ids in any order.
DeviceSet DevicesOf(std::vector<int64_t> ids);

// "0-3,8,10" in at most `width` characters: shortened as "0-3,...,10", "0-3,..." or, when even that is too wide,
// "0,..." whatever its width.
std::string DeviceText(const DeviceSet& set, size_t width);
// The parts of the shortest list of ranges: "0-3", "8", "10". Two neighbors are written one by one.
std::vector<std::string> DeviceRanges(const DeviceSet& set);

}  // namespace reshard::report

#endif  // RESHARD_PLANNER_REPORT_BLOCKS_H_
