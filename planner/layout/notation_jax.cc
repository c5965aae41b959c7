// JAX: PartitionSpec('y', None, ('x', 'y')), and unreduced={'z'} behind the dimensions. An entry is the axes of one
// dimension, major first; missing entries at the end are None.
#include "absl/strings/str_cat.h"
#include "planner/layout/draft.h"
#include "planner/layout/foreign.h"
#include "planner/layout/names.h"

namespace reshard {
namespace {

constexpr std::string_view kNotation = "JAX";

class Reader {
 public:
  Reader(std::string_view text, const MeshPtr& mesh, const Shape& shape) : in_(text), mesh_(mesh), draft_(shape) {}

  absl::StatusOr<Layout> Read() {
    bool named = false;
    for (const char* name : {"PartitionSpec", "P", "jax.sharding.PartitionSpec", "jax.P"}) {
      named = named || in_.TakeWord(name);
    }
    if (!named) return in_.Expected("PartitionSpec or P");
    if (absl::Status s = in_.Expect('('); !s.ok()) return s;
    size_t entries = 0;
    while (!in_.Take(')')) {
      const size_t column = in_.column();
      if (in_.TakeWord("unreduced")) {
        if (absl::Status s = ReadUnreduced(); !s.ok()) return s;
      } else if (in_.TakeWord("reduced")) {
        return in_.Unsupported(column, "reduced axes have no equivalent in a layout");
      } else if (entries == draft_.dims.size()) {
        return in_.Error(column, absl::StrCat("there are more entries than the tensor has dimensions (", entries, ")"));
      } else {
        if (absl::Status s = ReadEntry(&draft_.dims[entries]); !s.ok()) return s;
        ++entries;
      }
      if (in_.Take(',')) continue;
      if (absl::Status s = in_.Expect(')'); !s.ok()) return s;
      break;
    }
    if (absl::Status s = in_.ExpectEnd(); !s.ok()) return s;
    absl::StatusOr<Layout> layout = draft_.Build(in_, mesh_);
    if (!layout.ok()) return layout;
    if (absl::Status s = CheckCutInOneGo(in_, *layout, kNotation); !s.ok()) return s;
    return layout;
  }

 private:
  // None, 'x' or ('x', 'y').
  absl::Status ReadEntry(LayoutDraft::Dim* dim) {
    const size_t column = in_.column();
    if (in_.TakeWord("None")) return absl::OkStatus();
    for (const char* word : {"UNCONSTRAINED", "P.UNCONSTRAINED", "PartitionSpec.UNCONSTRAINED"}) {
      if (in_.TakeWord(word)) return in_.Unsupported(column, "an unconstrained dimension does not say who holds what");
    }
    if (!in_.Take('(')) return ReadAxis("None, a quoted axis or a tuple of them", dim);
    while (!in_.Take(')')) {
      if (absl::Status s = ReadAxis("a quoted axis", dim); !s.ok()) return s;
      if (in_.Take(',')) continue;
      return in_.Expect(')');
    }
    return absl::OkStatus();
  }

  absl::Status ReadAxis(std::string_view what, LayoutDraft::Dim* dim) {
    const size_t column = in_.column();
    const absl::StatusOr<std::string_view> name = in_.Quoted(what);
    if (!name.ok()) return name.status();
    const absl::StatusOr<AxisRef> axis = FindAxis(in_, column, *name, *mesh_);
    if (!axis.ok()) return axis.status();
    dim->Add(*axis, column);
    return absl::OkStatus();
  }

  // ={'x'}, as a set, frozenset or tuple.
  absl::Status ReadUnreduced() {
    if (absl::Status s = in_.Expect('='); !s.ok()) return s;
    const bool wrapped = in_.TakeWord("frozenset") || in_.TakeWord("set");
    if (wrapped) {
      if (absl::Status s = in_.Expect('('); !s.ok()) return s;
      if (in_.Take(')')) return absl::OkStatus();
    }
    const bool braces = in_.Take('{');
    if (!braces && !in_.Take('(')) return in_.Expected("'{'");
    const char close = braces ? '}' : ')';
    while (!in_.Take(close)) {
      const size_t column = in_.column();
      const absl::StatusOr<std::string_view> name = in_.Quoted("a quoted axis");
      if (!name.ok()) return name.status();
      const absl::StatusOr<AxisRef> axis = FindAxis(in_, column, *name, *mesh_);
      if (!axis.ok()) return axis.status();
      draft_.pending.push_back({*axis, column});
      if (in_.Take(',')) continue;
      if (absl::Status s = in_.Expect(close); !s.ok()) return s;
      break;
    }
    return wrapped ? in_.Expect(')') : absl::OkStatus();
  }

  Scanner in_;
  const MeshPtr& mesh_;
  LayoutDraft draft_;
};

}  // namespace

absl::StatusOr<Layout> ImportJax(std::string_view text, const MeshPtr& mesh, const Shape& shape) {
  return Reader(text, mesh, shape).Read();
}

absl::StatusOr<std::string> ExportJax(const Layout& layout) {
  const auto quoted = [&](const AxisRef& ref) { return absl::StrCat("'", layout.mesh().axis(ref.axis).name, "'"); };
  std::string out = "PartitionSpec(";
  const char* separator = "";
  for (int d = 0; d < layout.rank(); ++d) {
    const absl::StatusOr<std::vector<AxisRef>> axes = OnlyAxes(layout, d, kNotation);
    if (!axes.ok()) return axes.status();
    if (absl::Status s = CheckWhole(layout.mesh(), *axes, kNotation); !s.ok()) return s;
    out += separator;
    separator = ", ";
    if (axes->empty()) {
      out += "None";
    } else if (axes->size() == 1) {
      out += quoted(axes->front());
    } else {
      for (size_t i = 0; i < axes->size(); ++i) absl::StrAppend(&out, i == 0 ? "(" : ", ", quoted((*axes)[i]));
      out += ")";
    }
  }
  const absl::StatusOr<std::vector<AxisRef>> sums = OnlySums(layout, kNotation);
  if (!sums.ok()) return sums.status();
  if (absl::Status s = CheckWhole(layout.mesh(), *sums, kNotation); !s.ok()) return s;
  if (!sums->empty()) {
    absl::StrAppend(&out, separator, "unreduced={");
    for (size_t i = 0; i < sums->size(); ++i) absl::StrAppend(&out, i == 0 ? "" : ", ", quoted((*sums)[i]));
    out += "}";
  }
  return out + ")";
}

}  // namespace reshard
