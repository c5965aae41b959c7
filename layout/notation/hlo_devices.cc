#include "layout/notation/hlo_devices.h"

#include <algorithm>
#include <iterator>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "layout/axes.h"

namespace reshard::notation {
namespace {

// Appends the axes, major first, that the digit (stride, size) of the device number is made of; false when there are
// none.
bool AppendAxes(int64_t stride, int64_t size, const Mesh& mesh, std::vector<AxisRef>* out) {
  std::vector<AxisRef> minor_first;
  for (int axis = mesh.num_axes(); axis-- > 0 && size > 1;) {
    const int64_t axis_size = mesh.axis(axis).size;
    const int64_t begin = mesh.stride(axis);
    if (stride >= begin * axis_size) continue;  // the digit begins further to the left
    // The digit begins within this axis, at the place rest = stride / begin.
    if (stride % begin != 0 || axis_size % (stride / begin) != 0) return false;
    const int64_t room = axis_size / (stride / begin);
    const int64_t here = std::min(room, size);
    if (room % here != 0 || size % here != 0) return false;
    minor_first.push_back({axis, room / here, here});
    stride *= here;
    size /= here;
  }
  out->insert(out->end(), minor_first.rbegin(), minor_first.rend());
  return size == 1;
}

}  // namespace

void HloDevices::FromIota(const std::vector<int64_t>& sizes, const std::vector<int64_t>& order) {
  std::vector<Digit> digits(sizes.size());
  int64_t stride = 1;
  for (size_t i = sizes.size(); i-- > 0;) {
    digits[i] = {stride, sizes[i]};
    stride *= sizes[i];
  }
  digits_.clear();
  for (const int64_t i : order) digits_.push_back(digits[i]);
  next_ = 0;
}

bool HloDevices::FromIds(const std::vector<int64_t>& ids) {
  // From the minor end: within the first `block` numbers all digits are known; ids[block] is the stride of the next
  // one, which goes on as long as the numbers at multiples of `block` keep rising by that stride.
  std::vector<Digit> minor_first;
  size_t block = 1;
  while (block < ids.size()) {
    const int64_t stride = ids[block];
    size_t size = 1;
    while (size * block < ids.size() && ids[size * block] == static_cast<int64_t>(size) * stride) ++size;
    if (stride <= 0 || size < 2 || ids.size() % (block * size) != 0) return false;
    minor_first.push_back({stride, static_cast<int64_t>(size)});
    block *= size;
  }
  for (size_t i = 0; i < ids.size(); ++i) {
    int64_t number = 0;
    auto left = static_cast<int64_t>(i);
    for (const Digit& digit : minor_first) {
      number += left % digit.size * digit.stride;
      left /= digit.size;
    }
    if (number != ids[i]) return false;
  }
  digits_.assign(minor_first.rbegin(), minor_first.rend());
  next_ = 0;
  return true;
}

std::optional<std::vector<AxisRef>> HloDevices::Take(int64_t size, const Mesh& mesh) {
  std::vector<AxisRef> refs;
  while (size > 1) {
    if (next_ == digits_.size()) return std::nullopt;
    Digit& digit = digits_[next_];
    const int64_t taken = std::min(digit.size, size);
    if (digit.size % taken != 0 || size % taken != 0) return std::nullopt;
    // The major part of the digit.
    digit.size /= taken;
    if (!AppendAxes(digit.stride * digit.size, taken, mesh, &refs)) return std::nullopt;
    if (digit.size == 1) ++next_;
    size /= taken;
  }
  return layout::JoinParts(refs);
}

std::vector<AxisRef> AllParts(const Mesh& mesh, const std::vector<AxisRef>& refs) {
  std::vector<AxisRef> parts;
  for (int axis = 0; axis < mesh.num_axes(); ++axis) {
    std::vector<int64_t> cuts = {1, mesh.axis(axis).size};
    for (const AxisRef& ref : refs) {
      if (ref.axis != axis) continue;
      cuts.push_back(ref.pre);
      cuts.push_back(ref.pre * ref.size);
    }
    std::sort(cuts.begin(), cuts.end());
    cuts.erase(std::unique(cuts.begin(), cuts.end()), cuts.end());
    for (size_t i = 1; i < cuts.size(); ++i) parts.push_back({axis, cuts[i - 1], cuts[i] / cuts[i - 1]});
  }
  return parts;
}

std::string IotaText(const std::vector<AxisRef>& parts, const std::vector<AxisRef>& order) {
  // Runs of parts that stay together become one dimension of the reshape.
  struct Run {
    size_t first;  // of the parts
    int64_t size;
  };
  std::vector<Run> runs;
  size_t expected = parts.size();
  for (const AxisRef& ref : order) {
    const auto at = static_cast<size_t>(std::distance(parts.begin(), std::find(parts.begin(), parts.end(), ref)));
    if (!runs.empty() && at == expected) {
      runs.back().size *= ref.size;
    } else {
      runs.push_back({at, ref.size});
    }
    expected = at + 1;
  }
  std::vector<size_t> by_part(runs.size());
  for (size_t i = 0; i < runs.size(); ++i) by_part[i] = i;
  std::sort(by_part.begin(), by_part.end(), [&](size_t a, size_t b) { return runs[a].first < runs[b].first; });
  std::vector<int64_t> reshape;
  std::vector<size_t> transpose(runs.size());
  for (size_t place = 0; place < by_part.size(); ++place) {
    reshape.push_back(runs[by_part[place]].size);
    transpose[by_part[place]] = place;
  }
  std::string out = absl::StrCat("[", absl::StrJoin(reshape, ","), "]");
  if (reshape.size() > 1) absl::StrAppend(&out, "T(", absl::StrJoin(transpose, ","), ")");
  return out;
}

}  // namespace reshard::notation
