#include "checkpoint/catalog/boxes.h"

#include <algorithm>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "layout/axes.h"
#include "layout/flatten.h"
#include "reshard/layout/checked.h"
#include "reshard/layout/shard_map.h"
#include "status/macros.h"

namespace reshard::catalog {
namespace {

constexpr int64_t kMostBoxes = int64_t{1} << 24;
// The least loaded of up to this many replicas is chosen; of more, the least loaded of this many spread over all.
constexpr int64_t kMostCandidates = 64;

// One interval of a dimension, and the shard that has it.
struct Cut {
  Interval interval;
  int64_t row = 0;
};

// From intervals that overlap, ascending by row: every index once, in the first of them that has it.
std::vector<Cut> FirstHolders(const std::vector<Cut>& slots) {
  std::vector<int64_t> borders;
  for (const Cut& cut : slots) {
    borders.push_back(cut.interval.begin);
    borders.push_back(cut.interval.end);
  }
  std::sort(borders.begin(), borders.end());
  borders.erase(std::unique(borders.begin(), borders.end()), borders.end());
  std::vector<int64_t> first(borders.size(), -1);  // of what begins at a border, the number of its interval
  for (size_t i = 0; i < slots.size(); ++i) {
    const Interval& interval = slots[i].interval;
    auto at = std::lower_bound(borders.begin(), borders.end(), interval.begin);
    for (; at != borders.end() && *at < interval.end; ++at) {
      int64_t& holder = first[at - borders.begin()];
      if (holder < 0) holder = static_cast<int64_t>(i);
    }
  }
  std::vector<Cut> cuts;
  for (size_t b = 0; b + 1 < borders.size(); ++b) {
    if (b > 0 && first[b] == first[b - 1]) {
      cuts.back().interval.end = borders[b + 1];
    } else {
      cuts.push_back({{borders[b], borders[b + 1]}, slots[first[b]].row});
    }
  }
  return cuts;
}

std::vector<Cut> CutsOf(const DimShards& dim) {
  std::vector<Cut> cuts;
  for (int64_t row = 0; row < dim.num_rows(); ++row) {
    for (int64_t i = dim.first[row]; i < dim.first[static_cast<size_t>(row) + 1]; ++i) {
      cuts.push_back({dim.intervals[i], row});
    }
  }
  if (dim.slots) return FirstHolders(cuts);
  std::sort(cuts.begin(), cuts.end(), [](const Cut& a, const Cut& b) { return a.interval.begin < b.interval.begin; });
  return cuts;
}

// A digit of a mesh position.
struct Digit {
  int64_t stride = 1;
  int64_t size = 1;
};

Digit DigitOf(const Mesh& mesh, const AxisRef& ref) {
  const int64_t rest = mesh.axis(ref.axis).size / (ref.pre * ref.size);
  return {mesh.stride(ref.axis) * rest, ref.size};
}

int64_t PositionOf(int64_t number, const std::vector<Digit>& digits) {
  int64_t position = 0;
  for (size_t i = digits.size(); i-- > 0;) {
    position += number % digits[i].size * digits[i].stride;
    number /= digits[i].size;
  }
  return position;
}

// Extends each box by an interval of one more dimension, or by the boxes that the interval is where dimensions are
// flattened.
void AddDim(const DimLayout& dim, const Interval& interval, std::vector<StoredBox>& boxes) {
  const std::vector<int64_t> sizes = layout::SizesOf(dim);
  std::vector<StoredBox> out;
  for (const StoredBox& box : boxes) {
    for (const std::vector<Interval>& part : layout::BoxesOfRun(sizes, interval)) {
      StoredBox& longer = out.emplace_back(box);
      for (const Interval& along : part) {
        longer.offset.push_back(along.begin);
        longer.size.push_back(along.length());
      }
    }
  }
  boxes = std::move(out);
}

}  // namespace

absl::Status BoxMaker::Add(const Layout& layout, DType dtype, std::vector<StoredBox>* boxes) {
  if (layout.partial()) {
    return absl::InvalidArgumentError("a layout with partial values cannot be stored; reduce it first");
  }
  const Mesh& mesh = layout.mesh();
  const auto rank = static_cast<size_t>(layout.rank());
  if (layout.num_elements() == 0) {
    const std::vector<int64_t> shape = layout.shape();
    boxes->push_back({std::vector<int64_t>(shape.size(), 0), shape, mesh.Device(0)});
    return absl::OkStatus();
  }
  ASSIGN_OR_RETURN(const ShardMap map, ShardMap::Create(layout));

  std::vector<std::vector<Cut>> cuts;
  std::vector<std::vector<Digit>> digits;
  std::vector<AxisRef> used;
  std::optional<int64_t> count = 1;
  for (size_t d = 0; d < rank; ++d) {
    const DimShards& dim = map.dim(static_cast<int>(d));
    cuts.push_back(CutsOf(dim));
    digits.emplace_back();
    for (const AxisRef& ref : dim.digits) {
      digits.back().push_back(DigitOf(mesh, ref));
      used.push_back(ref);
    }
    count = CheckedMul(*count, static_cast<int64_t>(cuts.back().size()));
    if (!count || *count > kMostBoxes) {
      return absl::ResourceExhaustedError(absl::StrCat("a layout of more than ", kMostBoxes, " boxes"));
    }
  }
  std::vector<Digit> free;  // along them lie the replicas
  for (const AxisRef& ref : layout::FreeAxes(mesh, std::move(used))) free.push_back(DigitOf(mesh, ref));
  int64_t replicas = 1;
  for (const Digit& digit : free) replicas *= digit.size;

  std::vector<size_t> at(rank, 0);
  for (int64_t n = 0; n < *count; ++n) {
    int64_t position = 0;
    std::vector<StoredBox> whole(1);
    for (size_t d = 0; d < rank; ++d) {
      const Cut& cut = cuts[d][at[d]];
      AddDim(layout.dims()[d], cut.interval, whole);
      position += PositionOf(cut.row, digits[d]);
    }
    std::vector<StoredBox> parts;
    for (const StoredBox& box : whole) {
      for (StoredBox& part : CutBox(box, SizeOf(dtype), kLargestBox)) parts.push_back(std::move(part));
    }
    for (StoredBox& part : parts) {
      int64_t part_bytes = SizeOf(dtype);
      for (const int64_t size : part.size) part_bytes *= size;
      const int64_t candidates = std::min(replicas, kMostCandidates);
      int64_t best = mesh.Device(position);
      for (int64_t c = 1; c < candidates; ++c) {
        const int64_t replica = c * (replicas / candidates) + std::min(c, replicas % candidates);
        const int64_t device = mesh.Device(position + PositionOf(replica, free));
        if (Load(device) < Load(best)) best = device;
      }
      part.device = best;
      loads_[best] += part_bytes;
      boxes->push_back(std::move(part));
    }
    for (size_t d = rank; d-- > 0;) {
      if (++at[d] < cuts[d].size()) break;
      at[d] = 0;
    }
  }
  return absl::OkStatus();
}

int64_t BoxMaker::Load(int64_t device) const {
  const auto found = loads_.find(device);
  return found == loads_.end() ? 0 : found->second;
}

int64_t BoxMaker::LeastLoaded() const {
  int64_t best = 0;
  int64_t least = -1;
  for (const auto& [device, bytes] : loads_) {
    if (least < 0 || bytes < least || (bytes == least && device < best)) {
      best = device;
      least = bytes;
    }
  }
  return best;
}

std::vector<Stripe> CutIntoStripes(absl::Span<const int64_t> shape, int64_t element_bytes, int64_t most) {
  std::vector<Stripe> stripes;
  if (std::find(shape.begin(), shape.end(), 0) != shape.end()) return stripes;
  int64_t first = 0;
  const StoredBox whole{std::vector<int64_t>(shape.size(), 0), {shape.begin(), shape.end()}, 0};
  for (StoredBox& box : CutBox(whole, element_bytes, most)) {
    int64_t count = 1;
    for (const int64_t size : box.size) count *= size;
    stripes.push_back({std::move(box), first, count});
    first += count;
  }
  return stripes;
}

}  // namespace reshard::catalog
