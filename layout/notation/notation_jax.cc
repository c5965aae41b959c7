// JAX: PartitionSpec('y', None, ('x', 'y')), and unreduced={'z'} behind the dimensions. An entry is the axes of one
// dimension, major first; missing entries at the end are None.
#include "absl/strings/str_cat.h"
#include "layout/draft.h"
#include "layout/names.h"
#include "layout/notation/foreign.h"
#include "status/macros.h"

namespace reshard::notation {
namespace {

constexpr std::string_view kJax = "JAX";

class JaxReader {
 public:
  JaxReader(std::string_view text, const Mesh& mesh, const Shape& shape) : in_(text), mesh_(mesh), draft_(shape) {}

  absl::StatusOr<Layout> Read() {
    bool named = false;
    for (const char* name : {"PartitionSpec", "P", "jax.sharding.PartitionSpec", "jax.P"}) {
      named = named || in_.TakeWord(name);
    }
    if (!named) return in_.Expected("PartitionSpec or P");
    RETURN_IF_ERROR(in_.Expect('('));
    size_t entries = 0;
    while (!in_.Take(')')) {
      const size_t column = in_.column();
      if (in_.TakeWord("unreduced")) {
        RETURN_IF_ERROR(ReadUnreduced());
      } else if (in_.TakeWord("reduced")) {
        return in_.Unsupported(column, "reduced axes have no equivalent in a layout");
      } else if (entries == draft_.dims.size()) {
        return in_.Error(column, absl::StrCat("there are more entries than the tensor has dimensions (", entries, ")"));
      } else {
        RETURN_IF_ERROR(ReadEntry(&draft_.dims[entries]));
        ++entries;
      }
      if (in_.Take(',')) continue;
      RETURN_IF_ERROR(in_.Expect(')'));
      break;
    }
    RETURN_IF_ERROR(in_.ExpectEnd());
    absl::StatusOr<Layout> layout = draft_.Build(in_, mesh_);
    if (!layout.ok()) return layout;
    RETURN_IF_ERROR(CheckCutInOneGo(in_, *layout, kJax));
    return layout;
  }

 private:
  // None, 'x' or ('x', 'y').
  absl::Status ReadEntry(layout::LayoutDraft::Dim* dim) {
    const size_t column = in_.column();
    if (in_.TakeWord("None")) return absl::OkStatus();
    for (const char* word : {"UNCONSTRAINED", "P.UNCONSTRAINED", "PartitionSpec.UNCONSTRAINED"}) {
      if (in_.TakeWord(word)) return in_.Unsupported(column, "an unconstrained dimension does not say who holds what");
    }
    if (!in_.Take('(')) return ReadAxis("None, a quoted axis or a tuple of them", dim);
    while (!in_.Take(')')) {
      RETURN_IF_ERROR(ReadAxis("a quoted axis", dim));
      if (in_.Take(',')) continue;
      return in_.Expect(')');
    }
    return absl::OkStatus();
  }

  absl::Status ReadAxis(std::string_view what, layout::LayoutDraft::Dim* dim) {
    const size_t column = in_.column();
    ASSIGN_OR_RETURN(const std::string_view name, in_.Quoted(what));
    ASSIGN_OR_RETURN(const AxisRef axis, layout::FindAxis(in_, column, name, mesh_));
    dim->Add(axis, column);
    return absl::OkStatus();
  }

  // ={'x'}, as a set, frozenset or tuple.
  absl::Status ReadUnreduced() {
    RETURN_IF_ERROR(in_.Expect('='));
    const bool wrapped = in_.TakeWord("frozenset") || in_.TakeWord("set");
    if (wrapped) {
      RETURN_IF_ERROR(in_.Expect('('));
      if (in_.Take(')')) return absl::OkStatus();
    }
    const bool braces = in_.Take('{');
    if (!braces && !in_.Take('(')) return in_.Expected("'{'");
    const char close = braces ? '}' : ')';
    while (!in_.Take(close)) {
      const size_t column = in_.column();
      ASSIGN_OR_RETURN(const std::string_view name, in_.Quoted("a quoted axis"));
      ASSIGN_OR_RETURN(const AxisRef axis, layout::FindAxis(in_, column, name, mesh_));
      draft_.partial.push_back({axis, column});
      if (in_.Take(',')) continue;
      RETURN_IF_ERROR(in_.Expect(close));
      break;
    }
    return wrapped ? in_.Expect(')') : absl::OkStatus();
  }

  layout::Scanner in_;
  const Mesh& mesh_;
  layout::LayoutDraft draft_;
};

}  // namespace

absl::StatusOr<Layout> ImportJax(std::string_view text, const Mesh& mesh, const Shape& shape) {
  return JaxReader(text, mesh, shape).Read();
}

absl::StatusOr<std::string> ExportJax(const Layout& layout) {
  const auto quoted = [&](const AxisRef& ref) { return absl::StrCat("'", layout.mesh().axis(ref.axis).name, "'"); };
  std::string out = "PartitionSpec(";
  const char* separator = "";
  for (int d = 0; d < layout.rank(); ++d) {
    ASSIGN_OR_RETURN(const std::vector<AxisRef> axes, OnlyAxes(layout, d, kJax));
    RETURN_IF_ERROR(CheckWhole(layout.mesh(), axes, kJax));
    out += separator;
    separator = ", ";
    if (axes.empty()) {
      out += "None";
    } else if (axes.size() == 1) {
      out += quoted(axes.front());
    } else {
      for (size_t i = 0; i < axes.size(); ++i) absl::StrAppend(&out, i == 0 ? "(" : ", ", quoted(axes[i]));
      out += ")";
    }
  }
  ASSIGN_OR_RETURN(const std::vector<AxisRef> sums, OnlySums(layout, kJax));
  RETURN_IF_ERROR(CheckWhole(layout.mesh(), sums, kJax));
  if (!sums.empty()) {
    absl::StrAppend(&out, separator, "unreduced={");
    for (size_t i = 0; i < sums.size(); ++i) absl::StrAppend(&out, i == 0 ? "" : ", ", quoted(sums[i]));
    out += "}";
  }
  return out + ")";
}

}  // namespace reshard::notation
