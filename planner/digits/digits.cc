#include "planner/digits/digits.h"

#include <algorithm>
#include <numeric>

#include "layout/axes.h"
#include "planner/digits/cuts.h"

namespace reshard::digits {
namespace {

// Cuts in at `cut` unless that would break the chain of divisors. True when something was cut.
bool CutIn(Cuts& cuts, int64_t cut) { return cuts.end()[-1] % cut == 0 && cuts.Fits(cut) && cuts.Add(cut); }

// Adds the boundaries of a dimension's factors, with every axis factor split at its axis's cuts.
void AddBoundaries(const Layout& layout, int d, const std::vector<Cuts>& cuts, Cuts& boundaries) {
  int64_t lo = 1;
  boundaries.Add(lo);
  for (const Factor& factor : layout.dim(d).factors) {
    const int64_t hi = lo * factor.parts();
    if (factor.has_axis()) {
      const Cuts& of_axis = cuts[factor.axis.axis];
      const int64_t pre = factor.axis.pre;
      for (auto it = of_axis.upper_bound(pre); it != of_axis.end() && *it < pre * factor.axis.size; ++it) {
        boundaries.Add(lo * (*it / pre));
      }
    }
    boundaries.Add(hi);
    lo = hi;
  }
}

// Cuts the axes of `layout`'s factors in dimension d at the boundaries in `marks`. True when something was cut.
bool CutAt(const Layout& layout, int d, const Cuts& marks, std::vector<Cuts>& cuts) {
  bool changed = false;
  int64_t lo = 1;
  for (const Factor& factor : layout.dim(d).factors) {
    const int64_t hi = lo * factor.parts();
    // Explicit sizes and reflected axes are not mixed-radix digits: cutting them would change what they mean.
    if (factor.kind == Factor::Kind::kAxis) {
      for (auto it = marks.upper_bound(lo); it != marks.end(); ++it) {
        const int64_t mark = std::gcd(*it, hi);
        if (mark <= lo || mark >= hi || mark % lo != 0) continue;
        changed |= CutIn(cuts[factor.axis.axis], factor.axis.pre * (mark / lo));
      }
    }
    lo = hi;
  }
  return changed;
}

}  // namespace

absl::InlinedVector<int, 8> Refinement::DigitsOf(const AxisRef& ref) const {
  absl::InlinedVector<int, 8> out;
  for (size_t i = 0; i < digits.size(); ++i) {
    const AxisRef& digit = digits[i].ref;
    if (digit.axis == ref.axis && digit.pre >= ref.pre && digit.pre * digit.size <= ref.pre * ref.size) {
      out.push_back(static_cast<int>(i));
    }
  }
  return out;
}

std::optional<Refinement> Refine(const Layout& from, const Layout& to, const MeshLevels* levels,
                                 const std::vector<AxisRef>& more) {
  if (!from.only_factors() || !to.only_factors()) return std::nullopt;
  const Mesh& mesh = from.mesh();
  std::vector<Cuts> cuts(static_cast<size_t>(mesh.num_axes()));
  for (int a = 0; a < mesh.num_axes(); ++a) cuts[a] = {1, mesh.axis(a).size};

  auto add_reference = [&](const AxisRef& ref) {
    cuts[ref.axis].Add(ref.pre);
    cuts[ref.axis].Add(ref.pre * ref.size);
  };
  for (size_t a = 0; levels != nullptr && a < cuts.size(); ++a) {
    for (const LevelPart& part : (*levels)[a]) add_reference(part.ref);
  }
  for (const AxisRef& ref : more) add_reference(ref);
  for (const Layout* layout : {&from, &to}) {
    for (const DimLayout& dim : layout->dims()) {
      for (const Factor& factor : dim.factors) {
        if (factor.has_axis()) add_reference(factor.axis);
      }
    }
    for (const AxisRef& ref : layout::PartialAxes(*layout)) add_reference(ref);
  }
  for (const Cuts& axis_cuts : cuts) {
    if (!axis_cuts.IsChain()) return std::nullopt;
  }

  // Cutting an axis in one layout moves boundaries in the other, so repeat until nothing is left to cut.
  const int rank = from.rank();
  for (bool changed = true; changed;) {
    changed = false;
    for (int d = 0; d < rank; ++d) {
      if (from.dim(d).factors.empty() || to.dim(d).factors.empty()) continue;
      Cuts marks;
      AddBoundaries(from, d, cuts, marks);
      AddBoundaries(to, d, cuts, marks);
      changed |= CutAt(from, d, marks, cuts);
      changed |= CutAt(to, d, marks, cuts);
    }
  }

  Refinement out;
  for (int a = 0; a < mesh.num_axes(); ++a) {
    const Cuts& axis_cuts = cuts[a];
    for (auto it = axis_cuts.begin(); std::next(it) != axis_cuts.end(); ++it) {
      const int64_t size = *std::next(it) / *it;
      if (size == 1) continue;
      const int64_t rest = mesh.axis(a).size / *std::next(it);
      Digit digit{AxisRef{a, *it, size}, size, mesh.stride(a) * rest, 0};
      for (size_t i = 0; levels != nullptr && i < (*levels)[a].size(); ++i) {
        const LevelPart& part = (*levels)[a][i];
        if (part.ref.pre <= *it && *it < part.ref.pre * part.ref.size) digit.level = part.level;
      }
      out.digits.push_back(digit);
    }
  }
  auto collect = [&](const Layout& layout, std::vector<DimCut>& places, std::vector<int>& partial) {
    for (int d = 0; d < rank; ++d) {
      int64_t lo = 1;
      for (const Factor& factor : layout.dim(d).factors) {
        if (!factor.has_axis()) {
          places.push_back({d, lo, lo * factor.blocks, -1, factor.kind});
          lo *= factor.blocks;
          continue;
        }
        for (int digit : out.DigitsOf(factor.axis)) {
          const int64_t size = out.digits[digit].size;
          places.push_back({d, lo, lo * size, digit, factor.kind});
          lo *= size;
        }
      }
    }
    for (const AxisRef& ref : layout::PartialAxes(layout)) {
      for (int digit : out.DigitsOf(ref)) partial.push_back(digit);
    }
  };
  collect(from, out.from, out.from_partial);
  collect(to, out.to, out.to_partial);
  std::sort(out.from_partial.begin(), out.from_partial.end());
  std::sort(out.to_partial.begin(), out.to_partial.end());
  return out;
}

RowDigits RowDigitsOf(const Refinement& refinement, const std::vector<AxisRef>& refs) {
  RowDigits out;
  for (const AxisRef& ref : refs) {
    for (int digit : refinement.DigitsOf(ref)) out.digits.push_back(digit);
  }
  out.weights.resize(out.digits.size());
  int64_t weight = 1;
  for (size_t i = out.digits.size(); i-- > 0;) {
    out.weights[i] = weight;
    weight *= refinement.digits[out.digits[i]].size;
  }
  return out;
}

std::vector<AxisRef> MergeDigits(const std::vector<Digit>& digits, const std::vector<bool>& chosen) {
  std::vector<AxisRef> out;
  for (size_t i = 0; i < digits.size(); ++i) {
    if (!chosen[i]) continue;
    const AxisRef& ref = digits[i].ref;
    if (!out.empty() && out.back().axis == ref.axis && out.back().pre * out.back().size == ref.pre) {
      out.back().size *= ref.size;
    } else {
      out.push_back(ref);
    }
  }
  return out;
}

}  // namespace reshard::digits
