#include "planner/candidates/as_if_even.h"

#include <algorithm>
#include <numeric>
#include <utility>
#include <vector>

#include "reshard/layout/checked.h"

namespace reshard::candidates {
namespace {

bool OnlyAxesAndBlocks(const Layout& layout) {
  if (layout.partial() || !layout.only_factors()) return false;
  return std::all_of(layout.dims().begin(), layout.dims().end(), [](const DimLayout& dim) {
    return std::all_of(dim.factors.begin(), dim.factors.end(), [](const Factor& factor) {
      return factor.kind == Factor::Kind::kAxis || factor.kind == Factor::Kind::kBlocks;
    });
  });
}

// Chunks into which the factors cut a dimension; nullopt where they are too many.
std::optional<int64_t> ChunksOf(const DimLayout& dim) {
  std::optional<int64_t> parts = 1;
  for (const Factor& factor : dim.factors) {
    if (parts) parts = CheckedMul(*parts, factor.parts());
  }
  return parts;
}

std::optional<Layout> WithSizes(const Layout& layout, const std::vector<int64_t>& sizes) {
  std::vector<DimLayout> dims = layout.dims();
  for (size_t d = 0; d < dims.size(); ++d) dims[d].size = sizes[d];
  auto out = Layout::Create(layout.mesh(), std::move(dims));
  if (!out.ok()) return std::nullopt;
  return *std::move(out);
}

// Whether `dim` has this part of an axis, with `lo` chunks cut before it.
bool CutsAt(const DimLayout& dim, const AxisRef& ref, int64_t lo) {
  int64_t parts = 1;
  for (const Factor& factor : dim.factors) {
    if (factor.has_axis() && factor.axis.axis == ref.axis && factor.axis.pre <= ref.pre) {
      const bool inside = ref.pre * ref.size <= factor.axis.pre * factor.axis.size;
      if (inside && ref.pre % factor.axis.pre == 0) return lo == parts * (ref.pre / factor.axis.pre);
    }
    parts *= factor.parts();
  }
  return false;
}

}  // namespace

std::optional<AsIfEven> AsIfEven::Of(const Layout& from, const Layout& to) {
  if (!(from.mesh() == to.mesh()) || !OnlyAxesAndBlocks(from) || !OnlyAxesAndBlocks(to)) return std::nullopt;
  std::vector<int64_t> sizes;
  std::optional<int64_t> elements = 1;
  for (size_t d = 0; d < from.dims().size(); ++d) {
    const auto a = ChunksOf(from.dims()[d]), b = ChunksOf(to.dims()[d]);
    if (!a || !b) return std::nullopt;
    const auto size = CheckedMul(*a / std::gcd(*a, *b), *b);
    if (size) elements = elements ? CheckedMul(*elements, *size) : elements;
    if (!size || !elements) return std::nullopt;
    sizes.push_back(*size);
  }
  auto even_from = WithSizes(from, sizes), even_to = WithSizes(to, sizes);
  if (!even_from || !even_to) return std::nullopt;
  AsIfEven out;
  out.from_ = from;
  out.even_from_ = *std::move(even_from);
  out.even_to_ = *std::move(even_to);
  return out;
}

std::optional<Layout> AsIfEven::AtRealSizes(const Layout& between) const {
  std::vector<DimLayout> dims = between.dims();
  for (size_t d = 0; d < dims.size(); ++d) {
    dims[d].size = from_.dims()[d].size;
    bool as_before = false;
    int64_t parts = 1;
    for (const Factor& factor : dims[d].factors) {
      as_before |= factor.has_axis() && CutsAt(from_.dims()[d], factor.axis, parts);
      parts *= factor.parts();
    }
    auto& factors = dims[d].factors;
    if (as_before) continue;
    const auto blocks = [](const Factor& factor) { return !factor.has_axis(); };
    factors.erase(std::remove_if(factors.begin(), factors.end(), blocks), factors.end());
  }
  auto out = Layout::Create(between.mesh(), std::move(dims));
  if (!out.ok()) return std::nullopt;
  return *std::move(out);
}

}  // namespace reshard::candidates
