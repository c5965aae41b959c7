#include "planner/report/blocks.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "layout/axes.h"
#include "layout/cut.h"
#include "reshard/layout/shard_map.h"

namespace reshard::report {
namespace {

// Steps of one walk along a dimension, after which the rest is left out uncounted: some 50 ms.
constexpr int64_t kMaxSteps = int64_t{3} << 21;
// Ranges of one device set that are listed.
constexpr int64_t kMaxRanges = 256;
// Ids that are looked up for one device set of a mesh with explicit ids.
constexpr int64_t kMaxIds = 1024;

// The stride of an axis reference within a position.
int64_t StrideOf(const Mesh& mesh, const AxisRef& ref) {
  return mesh.axis(ref.axis).size / (ref.pre * ref.size) * mesh.stride(ref.axis);
}

// Walks the non-empty cells of a dimension in ascending or descending order and merges neighbors with the same
// holders.
class BlockWalk {
 public:
  BlockWalk(const Layout& layout, int d, bool backwards)
      : dim_(layout.dim(d)),
        mesh_(layout.mesh()),
        size_(layout.dim(d).size),
        factors_(layout::EffectiveFactors(layout.dim(d))),
        table_(layout::SlotTable(layout.dim(d))),
        backwards_(backwards) {}

  // Collects the first `keep` blocks and, with `count_all`, counts the others.
  void Run(size_t keep, bool count_all) {
    keep_ = keep;
    count_all_ = count_all;
    if (size_ == 0) return;
    if (table_ != nullptr) {
      complete_ = CutBySlots(*table_);
    } else {
      complete_ = dim_.cut_before_flattened() ? VisitRows() : Cut(0, {0, size_}, false, 0);
    }
  }

  // In the order of the walk.
  std::vector<Block>& blocks() { return blocks_; }
  int64_t count() const { return count_; }
  // Whether the walk reached the other end.
  bool complete() const { return complete_; }

 private:
  bool Visit(const Interval& interval, int64_t offset) {
    if (count_ > 0 && offset == last_offset_) {
      if (static_cast<size_t>(count_) <= keep_) {
        Interval& last = blocks_.back().interval;
        last = backwards_ ? Interval{interval.begin, last.end} : Interval{last.begin, interval.end};
      }
      return true;
    }
    // The last block that is kept has ended here.
    if (static_cast<size_t>(count_) >= keep_ && !count_all_) return false;
    if (static_cast<size_t>(count_) < keep_) blocks_.push_back({interval, offset, false});
    ++count_;
    last_offset_ = offset;
    return true;
  }

  // Slots instead of indices: those of the first coordinate, then those of the next.
  bool CutBySlots(const Factor& table) {
    std::vector<int64_t> ends = {0};
    for (const std::vector<Interval>& runs : table.slots) {
      ends.push_back(ends.back() + layout::NumSlots(runs));
    }
    for (int64_t i = 0; i < table.parts(); ++i) {
      const int64_t j = backwards_ ? table.parts() - 1 - i : i;
      const Interval slots{ends[j], ends[static_cast<size_t>(j) + 1]};
      if (slots.length() > 0 && !Visit(slots, j * StrideOf(mesh_, table.axis))) return false;
    }
    return true;
  }

  // What is cut before it is flattened: as an enumeration has it, where that is no more work than Cut may be.
  bool VisitRows() {
    if (size_ > kMaxSteps) return false;
    const absl::StatusOr<Layout> alone = Layout::Create(mesh_, {dim_});
    const absl::StatusOr<ShardMap> map = alone.ok() ? ShardMap::Create(*alone) : alone.status();
    if (!map.ok()) return false;
    const DimShards& shards = map->dim(0);
    std::vector<std::pair<Interval, int64_t>> cells;  // with the offset of its holders
    for (int64_t row = 0; row < shards.num_rows(); ++row) {
      int64_t rest = row, offset = 0;
      for (size_t i = shards.digits.size(); i-- > 0;) {
        offset += rest % shards.digits[i].size * StrideOf(mesh_, shards.digits[i]);
        rest /= shards.digits[i].size;
      }
      for (int64_t i = shards.first[row]; i < shards.first[static_cast<size_t>(row) + 1]; ++i) {
        cells.emplace_back(shards.intervals[i], offset);
      }
    }
    std::sort(cells.begin(), cells.end(), [](const auto& a, const auto& b) { return a.first.begin < b.first.begin; });
    if (backwards_) std::reverse(cells.begin(), cells.end());
    return std::all_of(cells.begin(), cells.end(), [this](const auto& cell) { return Visit(cell.first, cell.second); });
  }

  bool Cut(size_t k, const Interval& whole, bool odd, int64_t offset) {
    if (k == factors_.size()) return Visit(whole, offset);
    const Factor& factor = *factors_[k];
    const int64_t parts = factor.parts();
    const bool sizes = factor.kind == Factor::Kind::kSizes;
    // Behind the chunks that CeilDiv fills there are only empty ones.
    const int64_t used = sizes ? parts : CeilDiv(whole.length(), CeilDiv(whole.length(), parts));
    const int64_t stride = factor.has_axis() ? StrideOf(mesh_, factor.axis) : 0;
    int64_t edge = backwards_ ? whole.end : whole.begin;
    for (int64_t i = 0; i < used; ++i) {
      if (++steps_ > kMaxSteps) return false;
      const int64_t j = backwards_ ? used - 1 - i : i;
      Interval part;
      if (sizes) {
        const int64_t length = factor.sizes[j];
        part = backwards_ ? Interval{edge - length, edge} : Interval{edge, edge + length};
        edge = backwards_ ? part.begin : part.end;
      } else {
        part = layout::CeilChunk(whole, parts, j);
      }
      if (part.length() == 0) continue;
      const bool mirrored = factor.kind == Factor::Kind::kReflected && odd;
      const bool part_odd = factor.has_axis() ? odd : layout::OddAfterDigit(odd, parts, j);
      if (!Cut(k + 1, part, part_odd, offset + stride * (mirrored ? parts - 1 - j : j))) return false;
    }
    return true;
  }

  const DimLayout& dim_;
  const Mesh& mesh_;
  const int64_t size_;
  const std::vector<const Factor*> factors_;
  const Factor* const table_;  // null where there is none
  const bool backwards_;
  size_t keep_ = 0;
  bool count_all_ = false;
  std::vector<Block> blocks_;
  int64_t count_ = 0;
  int64_t last_offset_ = 0;
  int64_t steps_ = 0;
  bool complete_ = true;
};

// Walks the intervals of one device along a dimension in ascending order, without storing them as Layout::Intervals
// does.
class HeldWalk {
 public:
  HeldWalk(const Layout& layout, int64_t position, int d, size_t keep) : keep_(keep) {
    if (layout.dim(d).cut_before_flattened()) {
      for (const Interval& interval : layout.Intervals(position, d)) Visit(interval);
      return;
    }
    for (const Factor* factor : layout::EffectiveFactors(layout.dim(d))) {
      Level level{factor};
      if (factor->has_axis()) level.coordinate = layout.Coordinate(position, factor->axis);
      if (factor->kind == Factor::Kind::kSizes) {
        const auto own = factor->sizes.begin() + level.coordinate;
        level.begin = std::accumulate(factor->sizes.begin(), own, int64_t{0});
        level.length = *own;
      }
      levels_.push_back(level);
    }
    Cut(0, {0, layout.dim(d).size}, false);
  }

  Held& held() { return held_; }

 private:
  struct Level {
    const Factor* factor;
    int64_t coordinate = 0;
    int64_t begin = 0;  // kSizes: the chunk that is kept
    int64_t length = 0;
  };

  void Visit(const Interval& interval) {
    held_.length += interval.length();
    const bool touches = held_.count > 0 && last_end_ == interval.begin;
    last_end_ = interval.end;
    if (!touches) ++held_.count;
    if (static_cast<size_t>(held_.count) > keep_) return;
    if (touches) {
      held_.first.back().end = interval.end;
    } else {
      held_.first.push_back(interval);
    }
  }

  void Cut(size_t k, const Interval& whole, bool odd) {
    if (whole.length() == 0) return;
    if (k == levels_.size()) return Visit(whole);
    const Level& level = levels_[k];
    if (level.factor->kind == Factor::Kind::kSlots) {
      for (const Interval& run : level.factor->slots[level.coordinate]) Visit(run);
      return;
    }
    const int64_t parts = level.factor->parts();
    switch (level.factor->kind) {
      case Factor::Kind::kBlocks: {
        const int64_t chunk = CeilDiv(whole.length(), parts);
        int64_t j = 0;
        for (int64_t begin = whole.begin; begin < whole.end; ++j) {
          const int64_t end = whole.end - begin < chunk ? whole.end : begin + chunk;
          Cut(k + 1, {begin, end}, layout::OddAfterDigit(odd, parts, j));
          begin = end;
        }
        return;
      }
      case Factor::Kind::kSizes:
        return Cut(k + 1, {whole.begin + level.begin, whole.begin + level.begin + level.length}, odd);
      case Factor::Kind::kSlots:
        return;  // above
      case Factor::Kind::kAxis:
        return Cut(k + 1, layout::CeilChunk(whole, parts, level.coordinate), odd);
      case Factor::Kind::kReflected:
        return Cut(k + 1, layout::CeilChunk(whole, parts, odd ? parts - 1 - level.coordinate : level.coordinate), odd);
    }
  }

  const size_t keep_;
  std::vector<Level> levels_;
  Held held_;
  int64_t last_end_ = 0;
};

DeviceSet FromRanges(std::vector<std::pair<int64_t, int64_t>> ranges, int64_t count, int64_t last, bool complete) {
  DeviceSet set;
  set.ranges = std::move(ranges);
  set.count = count;
  set.last = last;
  set.complete = complete;
  return set;
}

std::string RangeText(const std::pair<int64_t, int64_t>& range) {
  if (range.first == range.second) return absl::StrCat(range.first);
  return absl::StrCat(range.first, range.second == range.first + 1 ? "," : "-", range.second);
}

}  // namespace

std::string SlotText(const Layout& layout, int d, int64_t offset) {
  const Factor& table = *layout::SlotTable(layout.dim(d));
  return layout::SlotsText(table.slots[offset / StrideOf(layout.mesh(), table.axis)]);
}

DimBlocks BlocksOf(const Layout& layout, int d, size_t limit) {
  DimBlocks out;
  BlockWalk forward(layout, d, false);
  forward.Run(limit, true);
  out.blocks = std::move(forward.blocks());
  out.count = forward.complete() ? forward.count() : -1;
  if (forward.complete() && static_cast<size_t>(forward.count()) <= limit) return out;

  const size_t head = limit / 2;
  BlockWalk backward(layout, d, true);
  backward.Run(limit - 1 - head, false);
  std::vector<Block> tail = std::move(backward.blocks());
  out.blocks.resize(std::min(out.blocks.size(), head));
  Block elided;
  elided.elided = true;
  elided.interval.begin = out.blocks.empty() ? 0 : out.blocks.back().interval.end;
  while (!tail.empty() && tail.back().interval.begin <= elided.interval.begin) tail.pop_back();
  elided.interval.end = tail.empty() ? layout.dim(d).size : tail.back().interval.begin;
  if (elided.interval.length() > 0) out.blocks.push_back(elided);
  out.blocks.insert(out.blocks.end(), tail.rbegin(), tail.rend());
  return out;
}

Held HeldAlong(const Layout& layout, int64_t position, int d, size_t keep) {
  return std::move(HeldWalk(layout, position, d, keep).held());
}

int64_t OffsetOf(const Layout& layout, int d, int64_t position) {
  int64_t offset = 0;
  for (const AxisRef& axis : layout.dim(d).Axes()) {
    offset += layout.Coordinate(position, axis) * StrideOf(layout.mesh(), axis);
  }
  return offset;
}

std::vector<Digit> FreeDigits(const Layout& layout, const std::vector<int>& dims) {
  std::vector<AxisRef> used;
  for (const int d : dims) {
    const std::vector<AxisRef> axes = layout.dim(d).Axes();
    used.insert(used.end(), axes.begin(), axes.end());
  }
  std::vector<Digit> free;
  for (const AxisRef& ref : layout::FreeAxes(layout.mesh(), std::move(used))) {
    free.push_back({ref.size, StrideOf(layout.mesh(), ref)});
  }
  return free;
}

DeviceSet DevicesAt(const Mesh& mesh, const std::vector<Digit>& free, int64_t offset) {
  int64_t count = 1;
  int64_t reach = 0;  // from the first position to the last
  for (const Digit& digit : free) {
    count *= digit.size;
    reach += (digit.size - 1) * digit.stride;
  }
  // Positions that follow each other: the minor digits that leave no gap.
  size_t outer = free.size();
  int64_t run = 1;
  while (mesh.contiguous() && outer > 0 && free[outer - 1].stride == run) run *= free[--outer].size;

  const int64_t starts = count / run;
  const int64_t listed = std::min(starts, mesh.contiguous() ? kMaxRanges : kMaxIds);
  std::vector<int64_t> positions;
  positions.reserve(listed);
  for (int64_t i = 0; i < listed; ++i) {
    int64_t position = offset;
    int64_t rest = i;
    for (size_t k = outer; k-- > 0;) {
      position += rest % free[k].size * free[k].stride;
      rest /= free[k].size;
    }
    positions.push_back(position);
  }
  if (mesh.contiguous()) {
    std::vector<std::pair<int64_t, int64_t>> ranges;
    ranges.reserve(positions.size());
    for (int64_t position : positions) ranges.emplace_back(mesh.Device(position), mesh.Device(position + run - 1));
    return FromRanges(std::move(ranges), count, mesh.Device(offset + reach), listed == starts);
  }
  for (int64_t& position : positions) position = mesh.Device(position);
  DeviceSet set = DevicesOf(std::move(positions));
  set.complete = listed == count;
  set.count = count;
  if (!set.complete) set.last = -1;
  return set;
}

DeviceSet AllDevices(const Mesh& mesh) {
  // An explicit list has no order to rely on, but its highest id is known.
  DeviceSet set = DevicesAt(mesh, {{mesh.size(), 1}}, 0);
  set.last = mesh.world() - 1;
  return set;
}

DeviceSet DevicesOf(std::vector<int64_t> ids) {
  std::sort(ids.begin(), ids.end());
  std::vector<std::pair<int64_t, int64_t>> ranges;
  for (int64_t id : ids) {
    if (!ranges.empty() && ranges.back().second + 1 == id) {
      ranges.back().second = id;
    } else {
      ranges.emplace_back(id, id);
    }
  }
  const int64_t last = ids.empty() ? -1 : ids.back();
  return FromRanges(std::move(ranges), static_cast<int64_t>(ids.size()), last, true);
}

std::vector<std::string> DeviceRanges(const DeviceSet& set) {
  std::vector<std::string> out;
  out.reserve(set.ranges.size());
  for (const auto& range : set.ranges) out.push_back(RangeText(range));
  return out;
}

std::string DeviceText(const DeviceSet& set, size_t width) {
  std::vector<std::string> ranges = DeviceRanges(set);
  if (set.complete) {
    std::string all = absl::StrJoin(ranges, ",");
    if (all.size() <= width) return all;
  }
  if (ranges.empty()) return "";
  const std::string last = set.last < 0 ? ",..." : absl::StrCat(",...,", set.last);
  std::string head;
  for (const std::string& range : ranges) {
    const std::string more = absl::StrCat(head, head.empty() ? "" : ",", range);
    if (more.size() + last.size() > width) break;
    head = more;
  }
  if (!head.empty()) return absl::StrCat(head, last);
  std::string first = absl::StrCat(ranges[0], ",...");
  if (ranges.size() > 1 && first.size() <= width) return first;
  return absl::StrCat(set.ranges[0].first, ",...");
}

}  // namespace reshard::report
