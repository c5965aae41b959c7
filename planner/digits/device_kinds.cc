#include "planner/digits/device_kinds.h"

#include <cassert>

#include "absl/container/flat_hash_map.h"

namespace reshard::digits {

void DeviceKinds::TellApart(absl::Span<const int32_t> column, int32_t entries) {
  assert(column.size() == kind_.size());
  if (entries <= 1) return;
  // As a table where that is small.
  constexpr int64_t kLargestTable = int64_t{1} << 20;
  int32_t next = 0;
  if (int64_t{count_} * entries <= kLargestTable) {
    std::vector<int32_t> number(static_cast<size_t>(count_) * static_cast<size_t>(entries), -1);
    for (size_t i = 0; i < kind_.size(); ++i) {
      int32_t& one =
          number[static_cast<size_t>(kind_[i]) * static_cast<size_t>(entries) + static_cast<size_t>(column[i])];
      if (one < 0) one = next++;
      kind_[i] = one;
    }
  } else {
    absl::flat_hash_map<int64_t, int32_t> number;
    for (size_t i = 0; i < kind_.size(); ++i) {
      const auto [one, fresh] = number.emplace(int64_t{kind_[i]} * entries + column[i], next);
      next += fresh;
      kind_[i] = one->second;
    }
  }
  count_ = next;
}

void DeviceKinds::TellApart(absl::Span<const int64_t> column) {
  std::vector<int32_t> small(column.size());
  absl::flat_hash_map<int64_t, int32_t> number;
  for (size_t i = 0; i < column.size(); ++i) {
    // Neighbors are mostly alike.
    small[i] = i > 0 && column[i] == column[i - 1]
                   ? small[i - 1]
                   : number.emplace(column[i], static_cast<int32_t>(number.size())).first->second;
  }
  TellApart(small, static_cast<int32_t>(number.size()));
}

std::vector<DeviceClass> DeviceKinds::Classes() const {
  std::vector<DeviceClass> out(static_cast<size_t>(count_), {-1, 0});
  for (size_t i = 0; i < kind_.size(); ++i) {
    DeviceClass& one = out[static_cast<size_t>(kind_[i])];
    if (one.devices++ == 0) one.position = static_cast<int64_t>(i);
  }
  return out;
}

}  // namespace reshard::digits
