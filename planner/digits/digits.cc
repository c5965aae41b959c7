#include "planner/digits/digits.h"

#include <algorithm>
#include <numeric>
#include <set>

#include "layout/axes.h"

namespace reshard::digits {
namespace {

// Cuts of one axis: products of leading digits, from 1 to the axis size.
using Cuts = std::set<int64_t>;

bool IsChain(const Cuts& cuts) {
  int64_t previous = 1;
  for (int64_t cut : cuts) {
    if (cut % previous != 0) return false;
    previous = cut;
  }
  return true;
}

// Adds a cut unless it would break the chain of divisors.
bool AddCut(Cuts& cuts, int64_t cut) {
  auto next = cuts.lower_bound(cut);
  if (next != cuts.end() && *next == cut) return false;
  if (next == cuts.end() || *next % cut != 0) return false;
  if (next != cuts.begin() && cut % *std::prev(next) != 0) return false;
  cuts.insert(next, cut);
  return true;
}

// Boundaries of a dimension's factors under the current cuts, with every axis factor split at its axis's cuts.
std::vector<DimCut> PlacesOf(const Layout& layout, int d, const std::vector<Cuts>& cuts) {
  std::vector<DimCut> places;
  int64_t lo = 1;
  for (const Factor& factor : layout.dim(d).factors) {
    if (!factor.has_axis()) {
      places.push_back({d, lo, lo * factor.blocks, -1, factor.kind});
      lo *= factor.blocks;
      continue;
    }
    int64_t pre = factor.axis.pre;
    const Cuts& axis_cuts = cuts[factor.axis.axis];
    for (auto it = axis_cuts.upper_bound(pre); it != axis_cuts.end() && *it <= factor.axis.pre * factor.axis.size;
         ++it) {
      const int64_t size = *it / pre;
      // `digit` holds the axis for now; see Refine.
      places.push_back({d, lo, lo * size, factor.axis.axis, factor.kind});
      lo *= size;
      pre = *it;
    }
  }
  return places;
}

// Cuts the axes of `layout`'s factors in dimension d at the boundaries in `marks`. True when something was cut.
bool CutAt(const Layout& layout, int d, const std::set<int64_t>& marks, std::vector<Cuts>& cuts) {
  bool changed = false;
  int64_t lo = 1;
  for (const Factor& factor : layout.dim(d).factors) {
    const int64_t hi = lo * factor.parts();
    // Explicit sizes and reflected axes are not mixed-radix digits: cutting them would change what they mean.
    if (factor.kind == Factor::Kind::kAxis) {
      for (auto it = marks.upper_bound(lo); it != marks.end(); ++it) {
        const int64_t mark = std::gcd(*it, hi);
        if (mark <= lo || mark >= hi || mark % lo != 0) continue;
        changed |= AddCut(cuts[factor.axis.axis], factor.axis.pre * (mark / lo));
      }
    }
    lo = hi;
  }
  return changed;
}

std::set<int64_t> Marks(const std::vector<DimCut>& a, const std::vector<DimCut>& b) {
  std::set<int64_t> marks;
  for (const auto* places : {&a, &b}) {
    for (const DimCut& place : *places) {
      marks.insert(place.lo);
      marks.insert(place.hi);
    }
  }
  return marks;
}

}  // namespace

std::vector<int> Refinement::DigitsOf(const AxisRef& ref) const {
  std::vector<int> out;
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
    cuts[ref.axis].insert(ref.pre);
    cuts[ref.axis].insert(ref.pre * ref.size);
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
    if (!IsChain(axis_cuts)) return std::nullopt;
  }

  // Cutting an axis in one layout moves boundaries in the other, so repeat until nothing is left to cut.
  const int rank = from.rank();
  for (bool changed = true; changed;) {
    changed = false;
    for (int d = 0; d < rank; ++d) {
      if (from.dim(d).factors.empty() || to.dim(d).factors.empty()) continue;
      const auto marks = Marks(PlacesOf(from, d, cuts), PlacesOf(to, d, cuts));
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
