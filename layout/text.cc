#include "reshard/layout/text.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "layout/cut.h"
#include "layout/names.h"
#include "layout/scanner.h"
#include "status/macros.h"
#include "status/view.h"

namespace reshard {
namespace {

void AppendFactor(const Mesh& mesh, const Factor& factor, std::string* out) {
  switch (factor.kind) {
    case Factor::Kind::kBlocks:
      absl::StrAppend(out, factor.blocks);
      return;
    case Factor::Kind::kReflected:
      absl::StrAppend(out, "~", mesh.axis(factor.axis.axis).name);
      return;
    case Factor::Kind::kSizes:
      absl::StrAppend(out, mesh.axis(factor.axis.axis).name, "=[", absl::StrJoin(factor.sizes, ","), "]");
      return;
    case Factor::Kind::kSlots:
      absl::StrAppend(out, mesh.axis(factor.axis.axis).name, "={");
      for (size_t j = 0; j < factor.slots.size(); ++j) {
        if (j > 0) out->push_back('|');
        absl::StrAppend(out, layout::SlotsText(factor.slots[j]));
      }
      out->push_back('}');
      return;
    case Factor::Kind::kAxis:
      absl::StrAppend(out, ToString(mesh, factor.axis));
      if (factor.written_as_sub) absl::StrAppend(out, ":(", factor.axis.pre, ")", factor.axis.size);
  }
}

}  // namespace

absl::Status ErrorAt(std::string_view text, size_t column, std::string_view reason, std::string_view advice) {
  constexpr size_t kBefore = 60;
  constexpr size_t kAfter = 40;
  column = std::min(column, text.size());
  // The line around the column, then the part of it that is near enough.
  const size_t newline_before = column == 0 ? std::string_view::npos : text.rfind('\n', column - 1);
  const size_t line_begin = newline_before == std::string_view::npos ? 0 : newline_before + 1;
  const size_t line_end = std::min(text.find('\n', column), text.size());
  const bool cut_before = column - line_begin > kBefore;
  const bool cut_after = line_end - column > kAfter;
  const size_t begin = cut_before ? column - kBefore : line_begin;
  const size_t end = cut_after ? column + kAfter : line_end;

  std::string shown = cut_before ? "..." : "";
  const size_t caret = shown.size() + (column - begin);
  for (const char c : text.substr(begin, end - begin)) shown += c < ' ' || c > '~' ? '?' : c;
  if (cut_after) shown += "...";
  return absl::InvalidArgumentError(absl::StrCat(status::View(reason), " at column ", column + 1,
                                                 advice.empty() ? "" : "; ", status::View(advice), "\n  ", shown,
                                                 "\n  ", std::string(caret, ' '), "^"));
}

bool NamesUnknownAxis(const absl::Status& status) { return status.GetPayload(layout::kUnknownAxis).has_value(); }

absl::StatusOr<Mesh> ParseMesh(std::string_view text) {
  layout::Scanner in(text);
  const size_t begin = in.column();
  RETURN_IF_ERROR(in.Expect('{'));
  std::vector<Mesh::Axis> axes;
  if (!in.Take('}')) {
    do {
      const absl::StatusOr<std::string_view> name = in.Name("the name of an axis");
      if (!name.ok()) return name.status();
      if (!in.Take('=')) RETURN_IF_ERROR(in.Expect(':'));
      const size_t at = in.column();
      const absl::StatusOr<int64_t> size = in.Int("the size of the axis");
      if (!size.ok()) return size.status();
      if (*size < 1) return in.Error(at, "the size of an axis must be at least 1");
      axes.push_back({std::string(*name), *size});
    } while (in.Take(','));
    RETURN_IF_ERROR(in.Expect('}'));
  }

  // Errors of the mesh as a whole are shown at its beginning.
  const auto located = [&](absl::StatusOr<Mesh> mesh, size_t column) -> absl::StatusOr<Mesh> {
    if (mesh.ok()) return mesh;
    return in.Error(column, std::string_view(mesh.status().message().data(), mesh.status().message().size()));
  };
  if (!in.Take('@')) {
    RETURN_IF_ERROR(in.ExpectEnd());
    return located(Mesh::Create(std::move(axes)), begin);
  }
  const size_t ids_at = in.column();
  if (!in.Take('[')) {
    const absl::StatusOr<int64_t> first = in.Int("the first device id, or '['");
    if (!first.ok()) return first.status();
    RETURN_IF_ERROR(in.ExpectEnd());
    if (absl::StatusOr<Mesh> here = Mesh::Create(axes); !here.ok()) return located(std::move(here), begin);
    return located(Mesh::Create(std::move(axes), *first), ids_at);
  }
  std::vector<int64_t> ids;
  do {
    const absl::StatusOr<int64_t> id = in.Int("a device id");
    if (!id.ok()) return id.status();
    ids.push_back(*id);
  } while (in.Take(','));
  RETURN_IF_ERROR(in.Expect(']'));
  RETURN_IF_ERROR(in.ExpectEnd());
  if (absl::StatusOr<Mesh> here = Mesh::Create(axes); !here.ok()) return located(std::move(here), begin);
  return located(Mesh::Create(std::move(axes), std::move(ids)), ids_at);
}

std::string ToString(const Mesh& mesh) {
  std::string out = "{";
  for (int i = 0; i < mesh.num_axes(); ++i) {
    absl::StrAppend(&out, i == 0 ? "" : ",", mesh.axis(i).name, ":", mesh.axis(i).size);
  }
  out += "}";
  if (!mesh.contiguous()) {
    absl::StrAppend(&out, "@[", absl::StrJoin(mesh.device_ids(), ","), "]");
  } else if (mesh.first_device() != 0) {
    absl::StrAppend(&out, "@", mesh.first_device());
  }
  return out;
}

std::string ToString(const Mesh& mesh, const AxisRef& ref) {
  const Mesh::Axis& axis = mesh.axis(ref.axis);
  if (ref.pre == 1 && ref.size == axis.size) return axis.name;
  return absl::StrCat(axis.name, ":(", ref.pre, ")", ref.size);
}

namespace {

void AppendDim(const Mesh& mesh, const DimLayout& dim, std::string* out) {
  if (!dim.factors.empty()) {
    absl::StrAppend(out, layout::LargestShard(dim), "<");
    for (size_t k = 0; k < dim.factors.size(); ++k) {
      if (k > 0) out->push_back(',');
      AppendFactor(mesh, dim.factors[k], out);
    }
    out->push_back('>');
  }
  if (dim.flattened.empty()) {
    absl::StrAppend(out, dim.size);
    return;
  }
  for (size_t i = 0; i < dim.flattened.size(); ++i) {
    absl::StrAppend(out, i == 0 ? "(" : ", ");
    AppendDim(mesh, dim.flattened[i], out);
  }
  out->push_back(')');
}

}  // namespace

std::string ToString(const Layout& layout) {
  std::string out = "[";
  for (int d = 0; d < layout.rank(); ++d) {
    if (d > 0) out += ", ";
    AppendDim(layout.mesh(), layout.dim(d), &out);
  }
  out += "]";
  if (layout.partial()) {
    absl::StrAppend(&out, " ", Name(layout.partial()->op), "<");
    for (size_t i = 0; i < layout.partial()->axes.size(); ++i) {
      absl::StrAppend(&out, i == 0 ? "" : ",", ToString(layout.mesh(), layout.partial()->axes[i]));
    }
    out += ">";
  }
  return out;
}

}  // namespace reshard
