#include "checkpoint/catalog/cover.h"

#include <algorithm>
#include <cstddef>
#include <utility>

namespace reshard::catalog {
namespace {

__extension__ using Volume = unsigned __int128;

// A region and the boxes that have elements in it.
struct Region {
  std::vector<int64_t> begin;
  std::vector<int64_t> end;
  std::vector<int64_t> boxes;
};

struct CutPlane {
  size_t dimension = 0;
  int64_t at = 0;
};

class Cover {
 public:
  Cover(absl::Span<const int64_t> shape, absl::Span<const int64_t> boxes) : rank_(shape.size()), boxes_(boxes) {}

  std::optional<CoverFault> Check(Region whole) {
    std::vector<Region> open;
    open.push_back(std::move(whole));
    while (!open.empty()) {
      const Region part = std::move(open.back());
      open.pop_back();
      const Volume covered = Covered(part);
      const Volume wanted = Size(part);
      if (covered != wanted) return Locate(part, covered > wanted);
      if (part.boxes.size() == 1) continue;  // it is the region
      if (SplitCleanly(part, &open)) continue;
      const std::optional<CutPlane> cut = MedianCut(part);
      open.push_back(Half(part, *cut, /*upper=*/false));
      open.push_back(Half(part, *cut, /*upper=*/true));
    }
    return std::nullopt;
  }

 private:
  int64_t Begin(int64_t box, size_t d) const { return boxes_[static_cast<size_t>(box) * 2 * rank_ + d]; }
  int64_t End(int64_t box, size_t d) const {
    return Begin(box, d) + boxes_[static_cast<size_t>(box) * 2 * rank_ + rank_ + d];
  }

  Volume Size(const Region& part) const {
    Volume size = 1;
    for (size_t d = 0; d < rank_; ++d) size *= static_cast<Volume>(part.end[d] - part.begin[d]);
    return size;
  }

  // How many elements of the part the boxes have together.
  Volume Covered(const Region& part) const {
    Volume sum = 0;
    for (const int64_t box : part.boxes) {
      Volume volume = 1;
      for (size_t d = 0; d < rank_; ++d) {
        volume *= static_cast<Volume>(std::min(End(box, d), part.end[d]) - std::max(Begin(box, d), part.begin[d]));
      }
      sum += volume;
    }
    return sum;
  }

  // The median of the boxes' borders within the part, in the dimension that has most of them; nothing where each box
  // covers all of it.
  std::optional<CutPlane> MedianCut(const Region& part) const {
    std::vector<int64_t> most;
    std::vector<int64_t> borders;
    size_t dimension = 0;
    for (size_t d = 0; d < rank_; ++d) {
      borders.clear();
      for (const int64_t box : part.boxes) {
        if (Begin(box, d) > part.begin[d]) borders.push_back(Begin(box, d));
        if (End(box, d) < part.end[d]) borders.push_back(End(box, d));
      }
      if (borders.size() > most.size()) {
        most.swap(borders);
        dimension = d;
      }
    }
    if (most.empty()) return std::nullopt;
    const auto middle = most.begin() + static_cast<ptrdiff_t>(most.size() / 2);
    std::nth_element(most.begin(), middle, most.end());
    return CutPlane{dimension, *middle};
  }

  Region Half(const Region& part, const CutPlane& cut, bool upper) const {
    Region half = {part.begin, part.end, {}};
    (upper ? half.begin : half.end)[cut.dimension] = cut.at;
    for (const int64_t box : part.boxes) {
      if (upper ? End(box, cut.dimension) > cut.at : Begin(box, cut.dimension) < cut.at) half.boxes.push_back(box);
    }
    return half;
  }

  // Cuts the part wherever that cuts no box, in the first dimension where no slab keeps more than three quarters of the
  // boxes. A slab of one box that is just that box is done with at once. False where there is no such dimension.
  bool SplitCleanly(const Region& part, std::vector<Region>* open) {
    for (size_t d = 0; d < rank_; ++d) {
      ordered_.clear();
      bool cut = false;
      for (const int64_t box : part.boxes) {
        ordered_.emplace_back(std::max(Begin(box, d), part.begin[d]), box);
        cut |= ordered_.back().first != part.begin[d];
      }
      if (!cut) continue;
      if (!std::is_sorted(ordered_.begin(), ordered_.end())) std::sort(ordered_.begin(), ordered_.end());
      slabs_.clear();
      size_t largest = 0;
      int64_t end = part.begin[d];
      for (size_t i = 0; i < ordered_.size(); ++i) {
        if (i == 0 || ordered_[i].first >= end) {
          if (!slabs_.empty()) largest = std::max(largest, i - slabs_.back());
          slabs_.push_back(i);
        }
        end = std::max(end, End(ordered_[i].second, d));
      }
      largest = std::max(largest, ordered_.size() - slabs_.back());
      if (slabs_.size() < 2 || largest > std::max<size_t>(ordered_.size() / 4 * 3, 8)) continue;
      AddSlabs(part, d, open);
      return true;
    }
    return false;
  }

  void AddSlabs(const Region& part, size_t d, std::vector<Region>* open) {
    for (size_t s = 0; s < slabs_.size(); ++s) {
      const size_t first = slabs_[s];
      const size_t last = s + 1 < slabs_.size() ? slabs_[s + 1] : ordered_.size();
      Region slab = {part.begin, part.end, {}};
      // A gap belongs to the slab before it, whose volumes then do not add up.
      if (s > 0) slab.begin[d] = ordered_[first].first;
      if (s + 1 < slabs_.size()) slab.end[d] = ordered_[last].first;
      for (size_t i = first; i < last; ++i) slab.boxes.push_back(ordered_[i].second);
      if (last - first > 1 || Covered(slab) != Size(slab)) open->push_back(std::move(slab));
    }
  }

  // An element of the part that is in several boxes (`twice`) or in none, where the volumes say that there is one.
  CoverFault Locate(Region part, bool twice) const {
    while (const std::optional<CutPlane> cut = MedianCut(part)) {
      Region lower = Half(part, *cut, /*upper=*/false);
      const Volume covered = Covered(lower);
      const Volume wanted = Size(lower);
      part = (twice ? covered > wanted : covered < wanted) ? std::move(lower) : Half(part, *cut, /*upper=*/true);
    }
    return {std::move(part.begin), twice};
  }

  size_t rank_;
  absl::Span<const int64_t> boxes_;
  std::vector<std::pair<int64_t, int64_t>> ordered_;  // begin, box
  std::vector<size_t> slabs_;                         // where each begins in ordered_
};

}  // namespace

std::optional<CoverFault> FindCoverFault(absl::Span<const int64_t> shape, absl::Span<const int64_t> boxes,
                                         int64_t count) {
  const size_t rank = shape.size();
  Region whole = {std::vector<int64_t>(rank, 0), {shape.begin(), shape.end()}, {}};
  if (std::find(shape.begin(), shape.end(), 0) != shape.end()) return std::nullopt;
  for (int64_t i = 0; i < count; ++i) {
    const absl::Span<const int64_t> size = boxes.subspan(static_cast<size_t>(i) * 2 * rank + rank, rank);
    if (std::find(size.begin(), size.end(), 0) == size.end()) whole.boxes.push_back(i);
  }
  return Cover(shape, boxes).Check(std::move(whole));
}

}  // namespace reshard::catalog
