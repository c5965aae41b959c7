#include "layout/rules.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "layout/cut.h"
#include "layout/names.h"
#include "reshard/layout/checked.h"
#include "reshard/layout/text.h"

namespace reshard::layout {
namespace {

// Parts of one axis must nest: ordered by pre, the end pre*size of one divides the pre of the next. A whole axis leaves
// nothing for another reference to it.
bool Overlap(const AxisRef& a, const AxisRef& b, int64_t axis_size) {
  if (a.size == axis_size || b.size == axis_size) return true;
  const AxisRef& first = a.pre <= b.pre ? a : b;
  const AxisRef& second = a.pre <= b.pre ? b : a;
  if (second.pre % (first.pre * first.size) == 0) return false;
  // Equal pre: a part of size 1 fits before the other one.
  return first.pre != second.pre || second.size != 1;
}

// A reference within a message.
std::string Text(const Mesh& mesh, const AxisRef& ref) { return Printable(ToString(mesh, ref)); }

// The first index below `size` that no run holds; `size` where there is none. Requires runs within [0, size).
int64_t FirstMissing(std::vector<Interval> runs, int64_t size) {
  constexpr int64_t kDirect = 16;  // indices per run up to which the runs of each index are counted
  if (size <= kDirect * (static_cast<int64_t>(runs.size()) + 1)) {
    std::vector<int64_t> change(static_cast<size_t>(size) + 1, 0);  // in the number of runs, from index to index
    for (const Interval& run : runs) {
      ++change[run.begin];
      --change[run.end];
    }
    int64_t index = 0;
    for (int64_t holders = 0; index < size; ++index) {
      holders += change[index];
      if (holders == 0) break;
    }
    return index;
  }
  std::sort(runs.begin(), runs.end(), [](const Interval& a, const Interval& b) { return a.begin < b.begin; });
  int64_t reached = 0;
  for (const Interval& run : runs) {
    if (run.begin > reached) break;
    reached = std::max(reached, run.end);
  }
  return reached;
}

}  // namespace

LayoutRules::Broken LayoutRules::BeginDim(int64_t size) {
  if (++rank_ > kMaxRank) return absl::StrCat("the layout has more than ", kMaxRank, " dimensions");
  if (size < 0) return absl::StrCat("the size ", size, " is negative");
  if (size == 0) {
    has_zero_ = true;
  } else {
    const std::optional<int64_t> product = CheckedMul(nonzero_product_, size);
    if (!product) return "the number of elements does not fit a signed 64-bit integer";
    nonzero_product_ = *product;
  }
  intervals_ = runs_inside_ = 1;
  size_ = size;
  dim_factors_ = 0;
  dim_has_slots_ = dim_cut_ = is_flattened_ = uneven_inside_ = false;
  common_length_ = size;
  return std::nullopt;
}

LayoutRules::Broken LayoutRules::BeginFlattened() {
  if (flattened_.size() == kMaxFlattened) {
    return absl::StrCat("dimensions are flattened more than ", kMaxFlattened, " deep");
  }
  flattened_.emplace_back();
  return std::nullopt;
}

LayoutRules::Broken LayoutRules::EndFlattened() {
  const Flattened inside = flattened_.back();
  flattened_.pop_back();
  if (inside.dims == 0) return "there is no dimension to flatten";
  if (inside.runs > kMaxIntervals) {
    return absl::StrCat("the flattened dimensions are cut into more than ", kMaxIntervals, " intervals on one device");
  }
  intervals_ = 1;
  runs_inside_ = inside.runs;
  size_ = inside.size;
  dim_factors_ = 0;
  dim_has_slots_ = false;
  dim_cut_ = inside.cut;
  is_flattened_ = true;
  uneven_inside_ = !inside.length;
  common_length_ = inside.length;
  return std::nullopt;
}

void LayoutRules::EndDim() {
  if (flattened_.empty()) return;
  Flattened& outer = flattened_.back();
  if (dim_cut_) {
    // Below 2^62: each element of the dimensions in front repeats the intervals of this one.
    const int64_t intervals = runs_inside_ - 1 + intervals_;
    outer.runs = CheckedMul(outer.size, intervals).value_or(INT64_MAX);
    outer.cut = true;
  }
  if (outer.length && !dim_cut_) {
    outer.length = *outer.length * size_;
  } else if (outer.length && common_length_) {
    outer.length = *outer.length * *common_length_ * intervals_;
  } else {
    outer.length = std::nullopt;
  }
  outer.size *= size_;
  ++outer.dims;
}

LayoutRules::Broken LayoutRules::UseAxis(const AxisRef& ref, bool must_be_whole) {
  if (ref.axis < 0 || ref.axis >= mesh_.num_axes()) {
    return absl::StrCat("there is no axis number ", ref.axis, "; the mesh has ", AxisNames(mesh_));
  }
  const Mesh::Axis& axis = mesh_.axis(ref.axis);
  const std::optional<int64_t> end =
      ref.pre >= 1 && ref.size >= 1 ? CheckedMul(ref.pre, ref.size) : std::optional<int64_t>(0);
  if (!end || *end == 0 || axis.size % *end != 0) {
    return absl::StrCat("the part ", Printable(axis.name), ":(", ref.pre, ")", ref.size,
                        " does not fit the axis: ", ref.pre, "*", ref.size, " must divide ", axis.size);
  }
  if (must_be_whole && (ref.pre != 1 || ref.size != axis.size)) {
    return absl::StrCat("only a whole axis can be reflected or have explicit sizes or slots, not ", Text(mesh_, ref));
  }
  for (const AxisRef& other : used_) {
    if (other.axis != ref.axis || !Overlap(other, ref, axis.size)) continue;
    if (other == ref) return absl::StrCat(Text(mesh_, ref), " is used twice");
    return absl::StrCat(Text(mesh_, ref), " overlaps with ", Text(mesh_, other), ", which is used too");
  }
  used_.push_back(ref);
  return std::nullopt;
}

LayoutRules::Broken LayoutRules::AddFactor(Factor& factor) {
  if (++factors_ > kMaxFactors) return absl::StrCat("the layout has more than ", kMaxFactors, " factors");

  if (factor.kind != Factor::Kind::kSizes) factor.sizes.clear();
  if (factor.kind != Factor::Kind::kSlots) factor.slots.clear();
  if (factor.kind != Factor::Kind::kAxis) factor.written_as_sub = false;

  if (dim_has_slots_ || (factor.kind == Factor::Kind::kSlots && dim_factors_ > 0)) {
    return "a slot table is the only factor of its dimension";
  }
  if (factor.kind == Factor::Kind::kSlots && (dim_cut_ || !flattened_.empty())) {
    return "a slot table cannot cut dimensions before they are flattened, nor what others have cut";
  }
  if (uneven_inside_ && factor.kind != Factor::Kind::kAxis && factor.kind != Factor::Kind::kSizes) {
    return "blocks and reflected axes cannot cut flattened fragments that differ in length";
  }
  ++dim_factors_;

  if (factor.kind == Factor::Kind::kBlocks) {
    factor.axis = AxisRef{};
    if (factor.blocks < 1) return absl::StrCat("a block count must be at least 1, not ", factor.blocks);
    const std::optional<int64_t> intervals = CheckedMul(intervals_, factor.blocks);
    if (!intervals || *intervals > kMaxIntervals) {
      return absl::StrCat("the dimension is cut into more than ", kMaxIntervals, " intervals");
    }
    intervals_ = *intervals;
  } else {
    factor.blocks = 1;
    dim_cut_ |= factor.axis.size > 1;
    if (Broken broken = UseAxis(factor.axis, factor.kind != Factor::Kind::kAxis)) return broken;
    if (factor.axis.size != mesh_.axis(factor.axis.axis).size) factor.written_as_sub = false;
  }

  if (factor.kind == Factor::Kind::kSlots) {
    for (std::vector<Interval>& runs : factor.slots) JoinRuns(runs);
    return CheckSlots(factor);
  }
  if (factor.kind != Factor::Kind::kSizes) {
    const int64_t parts = factor.parts();
    if (common_length_ && *common_length_ % parts != 0) {
      common_length_ = std::nullopt;
    } else if (common_length_) {
      common_length_ = *common_length_ / parts;
    }
    return std::nullopt;
  }

  const std::string name = Printable(mesh_.axis(factor.axis.axis).name);
  if (static_cast<int64_t>(factor.sizes.size()) != factor.axis.size) {
    return absl::StrCat("axis ", name, " has size ", factor.axis.size, " but ", factor.sizes.size(),
                        " explicit sizes are given");
  }
  int64_t sum = 0;
  for (const int64_t size : factor.sizes) {
    if (size < 0) return absl::StrCat("the explicit size ", size, " is negative");
    const std::optional<int64_t> next = CheckedAdd(sum, size);
    if (!next) return absl::StrCat("the explicit sizes of axis ", name, " do not fit a signed 64-bit integer");
    sum = *next;
  }
  if (!common_length_) {
    return absl::StrCat("the explicit sizes of axis ", name, " add up to ", sum,
                        " but the intervals they cut differ in length");
  }
  if (sum != *common_length_) {
    return absl::StrCat("the explicit sizes of axis ", name, " add up to ", sum, " but the intervals they cut have ",
                        *common_length_, " elements");
  }
  const bool equal =
      std::all_of(factor.sizes.begin(), factor.sizes.end(), [&](int64_t size) { return size == factor.sizes.front(); });
  common_length_ = equal ? std::optional<int64_t>(factor.sizes.front()) : std::nullopt;
  return std::nullopt;
}

LayoutRules::Broken LayoutRules::CheckSlots(const Factor& factor) {
  const std::string name = Printable(mesh_.axis(factor.axis.axis).name);
  if (has_slots_) return "a layout has at most one slot table";
  has_slots_ = dim_has_slots_ = true;
  if (static_cast<int64_t>(factor.slots.size()) != factor.axis.size) {
    return absl::StrCat("axis ", name, " has size ", factor.axis.size, " but ", factor.slots.size(),
                        " lists of slots are given");
  }
  std::vector<Interval> held;
  for (size_t j = 0; j < factor.slots.size(); ++j) {
    int64_t slots = 0;
    for (const Interval& run : factor.slots[j]) {
      const int64_t outside = run.begin < 0 || run.begin >= size_ ? run.begin : run.end - 1;
      if (run.begin < 0 || run.begin >= run.end || run.end > size_) {
        return absl::StrCat("the slot table of axis ", name, " has the index ", outside,
                            ", but the indices of the dimension are 0 .. ", size_ - 1);
      }
      // No fragment is larger than the tensor, so that sizes that fit for the tensor fit for every fragment.
      if (run.length() > size_ - slots) {
        return absl::StrCat("coordinate ", j, " of axis ", name, " has more slots than the dimension has indices, ",
                            size_);
      }
      slots += run.length();
      held.push_back(run);
    }
  }
  if (static_cast<int64_t>(held.size()) > kMaxIntervals) {
    return absl::StrCat("the slot table of axis ", name, " has more than ", kMaxIntervals, " runs of indices");
  }
  const int64_t missing = FirstMissing(std::move(held), size_);
  if (missing < size_) return absl::StrCat("no slot of axis ", name, " holds the index ", missing);
  common_length_ = std::nullopt;
  return std::nullopt;
}

LayoutRules::Broken LayoutRules::AddPartial(const AxisRef& ref) {
  if (++factors_ > kMaxFactors) return absl::StrCat("the layout has more than ", kMaxFactors, " factors");
  return UseAxis(ref, /*must_be_whole=*/false);
}

}  // namespace reshard::layout
