#include "layout/flatten.h"

#include <algorithm>
#include <iterator>
#include <numeric>

#include "layout/cut.h"
#include "reshard/layout/checked.h"
#include "status/macros.h"

namespace reshard::layout {
namespace {

// The factors of flattened dimensions, major first, in terms of the one that they are flattened into. Between them
// stand the sizes that every device still holds whole: what factors in front of all may cut.
class FactorList {
 public:
  explicit FactorList(const Mesh& mesh) : mesh_(mesh) {}

  // Adds the next dimension, faster than those before it, cut by these; `tail` is the product of the sizes behind it.
  // False where no factors of the flattened dimension say the same.
  bool AddDim(int64_t size, const std::vector<const Factor*>& factors, int64_t tail) {
    int64_t length = size;  // of each interval
    int64_t blocks = 1;
    for (const Factor* factor : factors) {
      if (uneven_) return false;
      // The number of an interval counts those of the dimensions in front, too; whether it is odd stays the same if
      // this dimension has an even number of them.
      const bool reflected = factor->kind == Factor::Kind::kReflected;
      if (reflected && !items_.empty() && blocks % 2 != 0) return false;
      reflected_ |= reflected;
      if (factor->kind == Factor::Kind::kSizes || length % factor->parts() != 0) {
        uneven_ = true;
        if (!AddSizes(*factor, length, tail)) return false;
        continue;
      }
      if (factor->has_axis()) {
        items_.push_back({*factor});
      } else {
        AddHeld(factor->blocks);
        blocks *= factor->blocks;
      }
      length /= factor->parts();
    }
    if (!uneven_) AddHeld(length);
    return true;
  }

  // A factor in front of the flattened dimensions: it cuts what is held, the major part first.
  bool CutHeld(const Factor& factor) {
    if (uneven_ || reflected_ || factor.kind == Factor::Kind::kReflected || factor.kind == Factor::Kind::kSizes) {
      return false;
    }
    int64_t left = factor.parts(), taken = 1;
    while (left > 1) {
      while (next_ < items_.size() && items_[next_].held <= 1) ++next_;
      if (next_ == items_.size()) return false;
      const int64_t held = items_[next_].held;
      if (held % left != 0 && left % held != 0) return false;
      const int64_t part = std::min(held, left);
      Item item{factor};
      item.factor.axis = {factor.axis.axis, factor.axis.pre * taken, part};
      item.factor.blocks = part;
      items_[next_].held /= part;
      items_.insert(items_.begin() + static_cast<ptrdiff_t>(next_++), std::move(item));
      left /= part;
      taken *= part;
    }
    return true;
  }

  // The factors, with blocks for what is held whole in front of an axis. nullopt where these would be too many.
  std::optional<std::vector<Factor>> Take() {
    std::vector<Factor> out;
    int64_t blocks = 1, all_blocks = 1;
    for (Item& item : items_) {
      if (item.held > 0 || !item.factor.has_axis()) {
        blocks *= item.held > 0 ? item.held : item.factor.blocks;
        continue;
      }
      all_blocks *= blocks;
      if (all_blocks > kMaxIntervals) return std::nullopt;
      if (blocks > 1) out.push_back(Factor::Blocks(blocks));
      blocks = 1;
      out.push_back(std::move(item.factor));
    }
    return out;
  }

 private:
  struct Item {
    Factor factor;
    int64_t held = 0;  // above 0: no factor but a size that is held whole
  };

  void AddHeld(int64_t size) {
    if (size > 1) items_.push_back({{}, size});
  }

  // An uneven cut of intervals of `length`, as explicit sizes of the flattened dimension.
  bool AddSizes(const Factor& factor, int64_t length, int64_t tail) {
    const bool whole_axis = factor.has_axis() && factor.axis.size == mesh_.axis(factor.axis.axis).size;
    if (!whole_axis || factor.kind == Factor::Kind::kReflected) return false;
    Factor sizes = Factor::Along(factor.axis);
    sizes.kind = Factor::Kind::kSizes;
    for (int64_t j = 0; j < factor.parts(); ++j) {
      const bool given = factor.kind == Factor::Kind::kSizes;
      sizes.sizes.push_back(tail * (given ? factor.sizes[j] : CeilChunk({0, length}, factor.parts(), j).length()));
    }
    items_.push_back({std::move(sizes)});
    return true;
  }

  const Mesh& mesh_;
  std::vector<Item> items_;
  size_t next_ = 0;         // what is held in front of it is cut already
  bool uneven_ = false;     // explicit sizes came: nothing may cut what they leave
  bool reflected_ = false;  // a reflected axis came: the numbers of intervals matter
};

int NumDims(const DimLayout& dim) { return static_cast<int>(SizesOf(dim).size()); }

// The same dimension said by factors alone, if it can be.
DimLayout Simplified(DimLayout dim, const Mesh& mesh) {
  if (dim.flattened.empty()) return dim;
  const bool inside = std::any_of(dim.flattened.begin(), dim.flattened.end(),
                                  [](const DimLayout& inner) { return SlotTable(inner) != nullptr; });
  std::optional<std::vector<Factor>> factors;
  if (!inside) factors = FactorsOf(dim, mesh);  // Layout::Create rejects a slot table inside and says why
  if (!factors) return dim;
  DimLayout out = Whole(dim);
  out.factors = *std::move(factors);
  return out;
}

// The dimensions as one, if a slot table cuts the first and nothing the others: the same table of longer runs.
std::optional<DimLayout> WithSlots(const DimLayout& common) {
  const DimLayout& first = common.flattened.front();
  const auto is_cut = [](const DimLayout& dim) { return !dim.Axes().empty(); };
  const Factor* const table = SlotTable(first);
  if (table == nullptr || std::any_of(common.flattened.begin() + 1, common.flattened.end(), is_cut)) {
    return std::nullopt;
  }
  DimLayout out = Whole(common);
  Factor& longer = out.factors.emplace_back(*table);
  const int64_t tail = first.size == 0 ? 0 : common.size / first.size;
  for (std::vector<Interval>& runs : longer.slots) {
    if (tail == 0) runs.clear();
    for (Interval& run : runs) run = {run.begin * tail, run.end * tail};
  }
  return out;
}

// The layout over dimensions each of which stands for this many (`groups`) of the tensor's.
absl::StatusOr<Layout> Over(const Layout& layout, const std::vector<int>& groups) {
  std::vector<DimLayout> out;
  size_t next = 0;
  for (const int group : groups) {
    DimLayout common;
    common.size = 1;
    for (int dims = 0; dims < group; ++next) {
      const DimLayout& dim = layout.dims()[next];
      dims += NumDims(dim);
      common.size *= dim.size;  // fits: the product of all sizes that are not 0 does
      common.flattened.push_back(Simplified(dim, layout.mesh()));
    }
    if (common.flattened.size() == 1) {
      out.push_back(common.flattened.front());
      continue;
    }
    std::optional<DimLayout> slots = WithSlots(common);
    out.push_back(slots ? *std::move(slots) : Simplified(std::move(common), layout.mesh()));
  }
  return Layout::Create(layout.mesh(), std::move(out), layout.partial());
}

// Where dimensions end, in dimensions of the tensor.
std::vector<int> Ends(const Layout& layout) {
  std::vector<int> out;
  for (const DimLayout& dim : layout.dims()) out.push_back((out.empty() ? 0 : out.back()) + NumDims(dim));
  return out;
}

}  // namespace

std::vector<int64_t> SizesOf(const DimLayout& dim) {
  std::vector<int64_t> sizes;
  AppendSizes(dim, sizes);
  return sizes;
}

void AppendSizes(const DimLayout& dim, std::vector<int64_t>& sizes) {
  if (dim.flattened.empty()) sizes.push_back(dim.size);
  for (const DimLayout& inner : dim.flattened) AppendSizes(inner, sizes);
}

std::vector<std::vector<Interval>> BoxesOfRun(absl::Span<const int64_t> sizes, const Interval& run) {
  if (sizes.size() == 1) return {{run}};
  int64_t row = 1;
  for (const int64_t size : sizes.subspan(1)) row *= size;
  std::vector<std::vector<Interval>> boxes;
  const auto add_within = [&](int64_t index, const Interval& of_row) {
    for (std::vector<Interval>& inner : BoxesOfRun(sizes.subspan(1), of_row)) {
      inner.insert(inner.begin(), {index, index + 1});
      boxes.push_back(std::move(inner));
    }
  };
  const int64_t first = CeilDiv(run.begin, row), last = run.end / row;  // whole rows are first .. last-1
  if (first > last) {
    add_within(last, {run.begin % row, run.end % row});
    return boxes;
  }
  if (run.begin % row != 0) add_within(first - 1, {run.begin % row, row});
  if (first < last) {
    std::vector<Interval>& whole = boxes.emplace_back();
    whole.push_back({first, last});
    for (const int64_t size : sizes.subspan(1)) whole.push_back({0, size});
  }
  if (run.end % row != 0) add_within(last, {0, run.end % row});
  return boxes;
}

DimLayout Whole(const DimLayout& dim) {
  DimLayout out{dim.size, {}};
  if (dim.flattened.empty()) return out;
  for (const int64_t size : SizesOf(dim)) out.flattened.push_back({size, {}});
  return out;
}

void FlattenedRuns::Append(int64_t size, absl::Span<const Interval> held) {
  int64_t length = 0;
  for (const Interval& interval : held) length += interval.length();
  std::vector<Interval> out;
  for (const Interval& run : runs_) {
    if (length == size && size > 0) {
      out.push_back({run.begin * size, run.end * size});
      continue;
    }
    for (int64_t i = run.begin; i < run.end; ++i) {
      for (const Interval& interval : held) out.push_back({i * size + interval.begin, i * size + interval.end});
    }
  }
  JoinRuns(out);
  runs_ = std::move(out);
  length_ *= length;
}

std::vector<Interval> FlattenedRuns::At(absl::Span<const Interval> local) const {
  std::vector<Interval> out;
  auto run = runs_.begin();
  int64_t before = 0;  // local positions in front of `run`
  for (const Interval& part : local) {
    int64_t at = part.begin;
    while (at < part.end) {
      for (; before + run->length() <= at; ++run) before += run->length();
      const int64_t end = std::min(part.end, before + run->length());
      out.push_back({run->begin + at - before, run->begin + end - before});
      at = end;
    }
  }
  JoinRuns(out);
  return out;
}

std::optional<std::vector<Factor>> FactorsOf(const DimLayout& dim, const Mesh& mesh) {
  if (!dim.cut_before_flattened()) return dim.factors;
  if (dim.size == 0) return std::nullopt;
  FactorList list(mesh);
  int64_t tail = dim.size;
  for (const DimLayout& inner : dim.flattened) {
    tail /= inner.size;
    auto factors = FactorsOf(inner, mesh);
    if (!factors) return std::nullopt;
    const DimLayout plain{inner.size, *std::move(factors)};
    if (!list.AddDim(plain.size, EffectiveFactors(plain), tail)) return std::nullopt;
  }
  for (const Factor* factor : EffectiveFactors(dim)) {
    if (!list.CutHeld(*factor)) return std::nullopt;
  }
  return list.Take();
}

absl::StatusOr<std::pair<Layout, Layout>> OverCommonDims(const Layout& a, const Layout& b) {
  if ((!a.flattens() && !b.flattens()) || a.shape() != b.shape()) return std::pair(a, b);
  const std::vector<int> ends_a = Ends(a), ends_b = Ends(b);
  std::vector<int> common;
  std::set_intersection(ends_a.begin(), ends_a.end(), ends_b.begin(), ends_b.end(), std::back_inserter(common));
  std::adjacent_difference(common.begin(), common.end(), common.begin());
  ASSIGN_OR_RETURN(Layout over_a, Over(a, common));
  ASSIGN_OR_RETURN(Layout over_b, Over(b, common));
  return std::pair(std::move(over_a), std::move(over_b));
}

}  // namespace reshard::layout
