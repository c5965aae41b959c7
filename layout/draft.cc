#include "layout/draft.h"

#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "layout/names.h"
#include "layout/rules.h"
#include "status/macros.h"

namespace reshard::layout {

void LayoutDraft::Dim::Add(Factor factor, size_t column) {
  factors.push_back(std::move(factor));
  factor_columns.push_back(column);
}

void LayoutDraft::Dim::Add(const AxisRef& axis, size_t column) {
  Factor factor;
  factor.axis = axis;
  Add(std::move(factor), column);
}

LayoutDraft::LayoutDraft(const std::vector<int64_t>& shape) {
  dims.reserve(shape.size());
  for (const int64_t size : shape) dims.push_back({size, 0, {}, {}, {}});
}

namespace {

// Moves the dimension into `out` once the rules have seen it. The depth is limited by the rules.
absl::Status BuildDim(const Scanner& in, LayoutDraft::Dim& dim, LayoutRules& rules, DimLayout& out) {
  LayoutRules::Broken broken = dim.flattened.empty() ? rules.BeginDim(dim.size) : rules.BeginFlattened();
  if (broken) return in.Error(dim.size_column, *broken);
  for (LayoutDraft::Dim& inner : dim.flattened) {
    RETURN_IF_ERROR(BuildDim(in, inner, rules, out.flattened.emplace_back()));
  }
  if (!dim.flattened.empty()) broken = rules.EndFlattened();
  if (broken) return in.Error(dim.size_column, *broken);
  out.size = rules.size();
  for (size_t k = 0; k < dim.factors.size(); ++k) {
    broken = rules.AddFactor(dim.factors[k]);
    if (broken) return in.Error(dim.factor_columns[k], *broken);
  }
  out.factors = std::move(dim.factors);
  rules.EndDim();
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<Layout> LayoutDraft::Build(const Scanner& in, const Mesh& mesh) {
  LayoutRules rules(mesh);
  std::vector<DimLayout> built;
  built.reserve(dims.size());
  for (Dim& dim : dims) RETURN_IF_ERROR(BuildDim(in, dim, rules, built.emplace_back()));
  Partial reduction{op, {}};
  for (const Axis& axis : partial) {
    if (LayoutRules::Broken broken = rules.AddPartial(axis.ref)) return in.Error(axis.column, *broken);
    reduction.axes.push_back(axis.ref);
  }
  for (const Axis& axis : replicated) {
    if (LayoutRules::Broken broken = rules.AddPartial(axis.ref)) return in.Error(axis.column, *broken);
  }
  *this = LayoutDraft();
  return Layout::Create(mesh, std::move(built), std::move(reduction));
}

absl::StatusOr<AxisRef> FindAxis(const Scanner& in, size_t column, std::string_view name, const Mesh& mesh) {
  const std::optional<int> axis = mesh.FindAxis(name);
  if (!axis) {
    absl::Status unknown = in.Error(column, absl::StrCat("unknown axis \"", Printable(name), "\""),
                                    absl::StrCat("the mesh has ", AxisNames(mesh)));
    unknown.SetPayload(kUnknownAxis, absl::Cord());
    return unknown;
  }
  return AxisRef{*axis, 1, mesh.axis(*axis).size};
}

absl::StatusOr<bool> ReadPart(Scanner& in, AxisRef* axis) {
  if (!in.Take(':')) return false;
  RETURN_IF_ERROR(in.Expect('('));
  ASSIGN_OR_RETURN(const int64_t pre, in.Int("the size of the digit before"));
  RETURN_IF_ERROR(in.Expect(')'));
  const absl::StatusOr<int64_t> size = in.Int("the size of the sub-axis");
  if (!size.ok()) return size.status();
  axis->pre = pre;
  axis->size = *size;
  return true;
}

}  // namespace reshard::layout
