#include "reshard/layout/layout.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "absl/hash/hash.h"
#include "absl/strings/str_cat.h"
#include "layout/cut.h"
#include "layout/flatten.h"
#include "layout/rules.h"

namespace reshard {
const char* Name(ReduceOp op) {
  switch (op) {
    case ReduceOp::kSum:
      return "sum";
    case ReduceOp::kAvg:
      return "avg";
    case ReduceOp::kMin:
      return "min";
    case ReduceOp::kMax:
      return "max";
    case ReduceOp::kProd:
      return "prod";
  }
  return "sum";
}

std::optional<ReduceOp> FindReduceOp(std::string_view name) {
  for (const ReduceOp op : {ReduceOp::kSum, ReduceOp::kAvg, ReduceOp::kMin, ReduceOp::kMax, ReduceOp::kProd}) {
    if (name == Name(op)) return op;
  }
  return std::nullopt;
}

Factor Factor::Slots(const AxisRef& axis, absl::Span<const std::vector<int64_t>> indices) {
  Factor factor = Along(axis);
  factor.kind = Kind::kSlots;
  for (const std::vector<int64_t>& of_one : indices) {
    std::vector<Interval>& runs = factor.slots.emplace_back();
    for (const int64_t index : of_one) runs.push_back({index, index + 1});
    layout::JoinRuns(runs);
  }
  return factor;
}

namespace {

std::optional<int> SlotDim(const std::vector<DimLayout>& dims) {
  for (size_t d = 0; d < dims.size(); ++d) {
    if (layout::SlotTable(dims[d]) != nullptr) return static_cast<int>(d);
  }
  return std::nullopt;
}

bool Flattens(const DimLayout& dim) { return !dim.flattened.empty(); }
bool OnlyFactors(const DimLayout& dim) { return layout::SlotTable(dim) == nullptr && !dim.cut_before_flattened(); }

// The rule that a dimension breaks, if any. The depth is limited by the rules.
layout::LayoutRules::Broken CheckDim(DimLayout& dim, layout::LayoutRules& rules) {
  layout::LayoutRules::Broken broken = dim.flattened.empty() ? rules.BeginDim(dim.size) : rules.BeginFlattened();
  if (broken) return broken;
  for (DimLayout& inner : dim.flattened) {
    if ((broken = CheckDim(inner, rules))) return broken;
  }
  if (!dim.flattened.empty() && (broken = rules.EndFlattened())) return broken;
  dim.size = rules.size();
  for (Factor& factor : dim.factors) {
    if ((broken = rules.AddFactor(factor))) return broken;
  }
  rules.EndDim();
  return std::nullopt;
}

}  // namespace

bool DimLayout::cut_before_flattened() const {
  return std::any_of(flattened.begin(), flattened.end(), [](const DimLayout& dim) {
    return !layout::EffectiveFactors(dim).empty() || dim.cut_before_flattened();
  });
}

std::vector<AxisRef> DimLayout::Axes() const {
  std::vector<AxisRef> out;
  for (const DimLayout& dim : flattened) {
    const std::vector<AxisRef> inner = dim.Axes();
    out.insert(out.end(), inner.begin(), inner.end());
  }
  for (const Factor& factor : factors) {
    if (factor.has_axis()) out.push_back(factor.axis);
  }
  return out;
}

Layout::State::State(const Mesh& of_mesh, std::vector<DimLayout> of_dims, std::optional<Partial> of_partial,
                     int64_t elements)
    : mesh(of_mesh),
      dims(std::move(of_dims)),
      partial(std::move(of_partial)),
      num_elements(elements),
      slot_dim(SlotDim(dims)),
      flattens(std::any_of(dims.begin(), dims.end(), Flattens)),
      only_factors(std::all_of(dims.begin(), dims.end(), OnlyFactors)),
      // A partial reduction has axes, so that an empty one stands for none.
      hash(absl::HashOf(mesh, dims, partial.value_or(Partial()))) {}

Layout::Layout() {
  static const auto* const scalar = new std::shared_ptr<const State>(
      std::make_shared<const State>(Mesh(), std::vector<DimLayout>(), std::nullopt, 1));
  state_ = *scalar;
}

absl::StatusOr<Layout> Layout::Create(const Mesh& mesh, std::vector<DimLayout> dims, std::optional<Partial> partial) {
  layout::LayoutRules rules(mesh);
  for (DimLayout& dim : dims) {
    if (layout::LayoutRules::Broken broken = CheckDim(dim, rules)) return absl::InvalidArgumentError(*broken);
  }
  if (partial && partial->axes.empty()) partial.reset();
  if (partial) {
    for (const AxisRef& ref : partial->axes) {
      if (layout::LayoutRules::Broken broken = rules.AddPartial(ref)) return absl::InvalidArgumentError(*broken);
    }
  }
  return Layout(std::make_shared<const State>(mesh, std::move(dims), std::move(partial), rules.num_elements()));
}

absl::StatusOr<Layout> Layout::WithPartial(std::optional<Partial> partial) const {
  return Create(mesh(), dims(), std::move(partial));
}

Layout Layout::WithoutPartial() const {
  if (!partial()) return *this;
  return Layout(std::make_shared<const State>(mesh(), dims(), std::nullopt, num_elements()));
}

absl::StatusOr<Layout> EvenLayout(const Mesh& mesh, absl::Span<const int64_t> sizes, int dim,
                                  std::vector<Factor> factors) {
  if (dim >= static_cast<int>(sizes.size())) {
    return absl::InvalidArgumentError(absl::StrCat("dimension ", dim, " of a tensor of ", sizes.size()));
  }
  std::vector<DimLayout> dims;
  dims.reserve(sizes.size());
  for (const int64_t size : sizes) dims.push_back({size, {}});
  if (dim >= 0) dims[dim].factors = std::move(factors);
  return Layout::Create(mesh, std::move(dims));
}

std::vector<int64_t> Layout::shape() const {
  std::vector<int64_t> shape;
  shape.reserve(dims().size());
  for (const DimLayout& dim : dims()) layout::AppendSizes(dim, shape);
  return shape;
}

int64_t Layout::Coordinate(int64_t position, const AxisRef& ref) const {
  return layout::CoordinateAlong(mesh(), position, ref);
}

namespace {

// What the factors keep of [0, size) at a position, in ascending order; intervals that touch are one.
std::vector<Interval> CutBy(const DimLayout& dim, int64_t size, const Mesh& mesh, int64_t position) {
  // All intervals so far in ascending order, empty ones included: their index is the number that `~X` looks at.
  std::vector<Interval> held = {{0, size}};
  for (const Factor* factor : layout::EffectiveFactors(dim)) {
    const int64_t parts = factor->parts();
    if (factor->kind == Factor::Kind::kBlocks) {
      std::vector<Interval> cut;
      cut.reserve(held.size() * static_cast<size_t>(parts));
      for (const Interval& whole : held) {
        for (int64_t j = 0; j < parts; ++j) cut.push_back(layout::CeilChunk(whole, parts, j));
      }
      held = std::move(cut);
      continue;
    }
    const int64_t coordinate = layout::CoordinateAlong(mesh, position, factor->axis);
    if (factor->kind == Factor::Kind::kSizes) {
      const auto own = factor->sizes.begin() + coordinate;
      const int64_t offset = std::accumulate(factor->sizes.begin(), own, int64_t{0});
      for (Interval& interval : held) interval = {interval.begin + offset, interval.begin + offset + *own};
      continue;
    }
    const bool reflected = factor->kind == Factor::Kind::kReflected;
    for (size_t i = 0; i < held.size(); ++i) {
      held[i] = layout::CeilChunk(held[i], parts, reflected && i % 2 != 0 ? parts - 1 - coordinate : coordinate);
    }
  }
  std::erase_if(held, [](const Interval& interval) { return interval.length() == 0; });
  layout::JoinRuns(held);
  return held;
}

std::vector<Interval> HeldAt(const DimLayout& dim, const Mesh& mesh, int64_t position) {
  if (const Factor* table = layout::SlotTable(dim)) {
    return table->slots[layout::CoordinateAlong(mesh, position, table->axis)];
  }
  if (!dim.cut_before_flattened()) return CutBy(dim, dim.size, mesh, position);
  layout::FlattenedRuns inside;
  for (const DimLayout& inner : dim.flattened) inside.Append(inner.size, HeldAt(inner, mesh, position));
  return inside.At(CutBy(dim, inside.length(), mesh, position));
}

}  // namespace

std::vector<Interval> Layout::Intervals(int64_t position, int d) const { return HeldAt(dim(d), mesh(), position); }

std::vector<int64_t> Layout::LocalShape(int64_t position) const {
  std::vector<int64_t> shape;
  shape.reserve(dims().size());
  for (int d = 0; d < rank(); ++d) {
    int64_t length = 0;
    for (const Interval& interval : Intervals(position, d)) length += interval.length();
    shape.push_back(length);
  }
  return shape;
}

std::vector<int64_t> Layout::MaxLocalShape() const {
  std::vector<int64_t> shape;
  shape.reserve(dims().size());
  for (const DimLayout& dim : dims()) shape.push_back(layout::LargestShard(dim));
  return shape;
}

int64_t Layout::MaxLocalElements() const {
  // Dimensions use different axes, so some device holds the largest shard of every one of them. The product is at most
  // the number of elements, or of those of the non-empty dimensions, which Create has checked.
  int64_t elements = 1;
  for (const DimLayout& dim : dims()) elements *= layout::LargestShard(dim);
  return elements;
}

bool Layout::operator==(const Layout& other) const {
  if (state_ == other.state_) return true;
  return state_->hash == other.state_->hash && mesh() == other.mesh() && dims() == other.dims() &&
         partial() == other.partial();
}

}  // namespace reshard
