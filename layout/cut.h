// How one factor cuts one interval.
#ifndef RESHARD_LAYOUT_CUT_H_
#define RESHARD_LAYOUT_CUT_H_

#include <cassert>
#include <cstdint>
#include <string>
#include <vector>

#include "reshard/layout/checked.h"
#include "reshard/layout/layout.h"

namespace reshard::layout {

// Chunk j of the interval cut into `parts` chunks of ceil(length/parts); the last ones may be short or empty.
// Requires parts >= 1 and 0 <= j < parts; no intermediate value exceeds the interval's end.
inline Interval CeilChunk(const Interval& whole, int64_t parts, int64_t j) {
  assert(parts >= 1 && j >= 0 && j < parts);
  const int64_t length = whole.length();
  if (length == 0) return {whole.begin, whole.begin};
  const int64_t chunk = CeilDiv(length, parts);
  const int64_t full = length / chunk;
  return {j <= full ? whole.begin + j * chunk : whole.end, j < full ? whole.begin + (j + 1) * chunk : whole.end};
}

// The coordinate of a device position along an axis reference. 32-bit division is several times faster, and positions
// and strides fit: a mesh has at most kMaxDevices devices.
inline int64_t CoordinateAlong(const Mesh& mesh, int64_t position, const AxisRef& ref) {
  static_assert(kMaxDevices <= UINT32_MAX);
  const auto size = static_cast<uint32_t>(ref.size);
  const auto axis_size = static_cast<uint32_t>(mesh.axis(ref.axis).size);
  const auto stride = static_cast<uint32_t>(mesh.stride(ref.axis));
  const uint32_t rest = size == axis_size ? 1 : axis_size / (static_cast<uint32_t>(ref.pre) * size);
  return static_cast<uint32_t>(position) / (stride * rest) % size;
}

// The parity of an interval's number after a digit of `parts` cuts an interval whose number has parity `odd`, and chunk
// j is taken: the new number is old * parts + j.
inline bool OddAfterDigit(bool odd, int64_t parts, int64_t j) { return ((odd && parts % 2 != 0) ? 1 : 0) != j % 2; }

// The factors that decide which device holds what: not those of one part, and no integer digits behind the last axis.
std::vector<const Factor*> EffectiveFactors(const DimLayout& dim);

// The slot table of a dimension; null if it has none.
inline const Factor* SlotTable(const DimLayout& dim) {
  const bool has_one = !dim.factors.empty() && dim.factors.front().kind == Factor::Kind::kSlots;
  return has_one ? &dim.factors.front() : nullptr;
}

// Joins runs of slots that continue the one before them.
void JoinRuns(std::vector<Interval>& runs);

// Number of slots that the runs fill.
int64_t NumSlots(const std::vector<Interval>& runs);

// "5-6,8": the indices in the slots that the runs fill.
std::string SlotsText(const std::vector<Interval>& runs);

// Elements of the largest shard along the dimension, over all coordinates. The factors must be valid.
int64_t LargestShard(const DimLayout& dim);

}  // namespace reshard::layout

#endif  // RESHARD_LAYOUT_CUT_H_
