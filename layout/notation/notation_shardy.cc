// Shardy: #sdy.sharding<@mesh, [{"x"}, {"y":(1)2, ?}p1], replicated={"w"}, unreduced={"z"}>. A mesh symbol stands for
// our mesh, whatever its name; an inline mesh must be equal to it. `?` (a compiler may shard further) and priorities
// say nothing about who holds what and are skipped.
#include <utility>

#include "absl/strings/str_cat.h"
#include "layout/draft.h"
#include "layout/names.h"
#include "layout/notation/foreign.h"
#include "reshard/layout/text.h"
#include "status/macros.h"

namespace reshard::notation {
namespace {

constexpr std::string_view kShardy = "Shardy";

class ShardyReader {
 public:
  ShardyReader(std::string_view text, const Mesh& mesh, const Shape& shape) : in_(text), mesh_(mesh), draft_(shape) {}

  absl::StatusOr<Layout> Read() {
    in_.Take("#sdy.sharding");
    RETURN_IF_ERROR(in_.Expect('<'));
    RETURN_IF_ERROR(ReadMesh());
    RETURN_IF_ERROR(in_.Expect(','));
    RETURN_IF_ERROR(ReadDims());
    bool seen_replicated = false;
    bool seen_unreduced = false;
    while (in_.Take(',')) {
      const size_t column = in_.column();
      const bool replicated = in_.TakeWord("replicated");
      if (!replicated && !in_.TakeWord("unreduced")) return in_.Expected("replicated or unreduced");
      if (std::exchange(replicated ? seen_replicated : seen_unreduced, true)) {
        return in_.Error(column, "this list appears twice");
      }
      std::vector<layout::LayoutDraft::Axis>& list = replicated ? draft_.replicated : draft_.partial;
      RETURN_IF_ERROR(in_.Expect('='));
      RETURN_IF_ERROR(in_.Expect('{'));
      if (in_.Take('}')) continue;
      do {
        layout::LayoutDraft::Axis axis;
        RETURN_IF_ERROR(ReadAxis("a quoted axis", &axis));
        list.push_back(axis);
      } while (in_.Take(','));
      RETURN_IF_ERROR(in_.Expect('}'));
    }
    RETURN_IF_ERROR(in_.Expect('>'));
    RETURN_IF_ERROR(in_.ExpectEnd());
    absl::StatusOr<Layout> layout = draft_.Build(in_, mesh_);
    if (!layout.ok()) return layout;
    RETURN_IF_ERROR(CheckCutInOneGo(in_, *layout, kShardy));
    return layout;
  }

 private:
  // @name, @"name" or an inline mesh.
  absl::Status ReadMesh() {
    if (!in_.Take('@')) return ReadInlineMesh();
    if (in_.Peek() == '"') return in_.Quoted("the mesh").status();
    return in_.Name("the name of the mesh").status();
  }

  // mesh<["x"=2, "y"=4], device_ids=[..]>; also #sdy.mesh<..> and <..>.
  absl::Status ReadInlineMesh() {
    const size_t column = in_.column();
    if (!in_.Take("#sdy.mesh")) in_.TakeWord("mesh");
    if (!in_.Take('<')) return in_.Expected("'@' and the name of the mesh, or mesh<...>");
    RETURN_IF_ERROR(in_.Expect('['));
    std::vector<Mesh::Axis> axes;
    if (!in_.Take(']')) {
      do {
        ASSIGN_OR_RETURN(const std::string_view name, in_.Quoted("a quoted axis"));
        RETURN_IF_ERROR(in_.Expect('='));
        const absl::StatusOr<int64_t> size = in_.Int("the size of the axis");
        if (!size.ok()) return size.status();
        axes.push_back({std::string(name), *size});
      } while (in_.Take(','));
      RETURN_IF_ERROR(in_.Expect(']'));
    }
    std::vector<int64_t> ids;
    if (in_.Take(',')) {
      if (!in_.TakeWord("device_ids")) return in_.Expected("device_ids");
      RETURN_IF_ERROR(in_.Expect('='));
      RETURN_IF_ERROR(in_.Expect('['));
      do {
        const absl::StatusOr<int64_t> id = in_.Int("a device id");
        if (!id.ok()) return id.status();
        ids.push_back(*id);
      } while (in_.Take(','));
      RETURN_IF_ERROR(in_.Expect(']'));
    }
    RETURN_IF_ERROR(in_.Expect('>'));

    const absl::StatusOr<Mesh> mesh =
        ids.empty() ? Mesh::Create(std::move(axes)) : Mesh::Create(std::move(axes), std::move(ids));
    if (!mesh.ok()) return in_.Error(column, std::string(mesh.status().message()));
    if (*mesh == mesh_) return absl::OkStatus();
    return in_.Error(column, absl::StrCat("the sharding is over the mesh ", layout::Printable(ToString(*mesh)),
                                          ", not over ", layout::Printable(ToString(mesh_))));
  }

  absl::Status ReadDims() {
    const size_t column = in_.column();
    RETURN_IF_ERROR(in_.Expect('['));
    size_t dims = 0;
    if (!in_.Take(']')) {
      do {
        const bool fits = dims < draft_.dims.size();
        layout::LayoutDraft::Dim beyond;
        RETURN_IF_ERROR(ReadDim(fits ? &draft_.dims[dims] : &beyond));
        ++dims;
      } while (in_.Take(','));
      RETURN_IF_ERROR(in_.Expect(']'));
    }
    if (dims == draft_.dims.size()) return absl::OkStatus();
    return in_.Error(column, absl::StrCat("the sharding has ", dims, dims == 1 ? " dimension" : " dimensions",
                                          " but the tensor has ", draft_.dims.size()));
  }

  absl::Status ReadDim(layout::LayoutDraft::Dim* dim) {
    RETURN_IF_ERROR(in_.Expect('{'));
    if (!in_.Take('}')) {
      do {
        if (in_.Take('?')) break;
        layout::LayoutDraft::Axis axis;
        RETURN_IF_ERROR(ReadAxis("a quoted axis or '?'", &axis));
        dim->Add(axis.ref, axis.column);
      } while (in_.Take(','));
      RETURN_IF_ERROR(in_.Expect('}'));
    }
    return in_.Take('p') ? in_.Int("a priority").status() : absl::OkStatus();
  }

  // "x" or "x":(pre)size.
  absl::Status ReadAxis(std::string_view what, layout::LayoutDraft::Axis* axis) {
    axis->column = in_.column();
    ASSIGN_OR_RETURN(const std::string_view name, in_.Quoted(what));
    ASSIGN_OR_RETURN(const AxisRef ref, layout::FindAxis(in_, axis->column, name, mesh_));
    axis->ref = ref;
    return layout::ReadPart(in_, &axis->ref).status();
  }

  layout::Scanner in_;
  const Mesh& mesh_;
  layout::LayoutDraft draft_;
};

}  // namespace

absl::StatusOr<Layout> ImportShardy(std::string_view text, const Mesh& mesh, const Shape& shape) {
  return ShardyReader(text, mesh, shape).Read();
}

absl::StatusOr<std::string> ExportShardy(const Layout& layout) {
  const auto list = [&](const std::vector<AxisRef>& refs) {
    std::string out = "{";
    for (size_t i = 0; i < refs.size(); ++i) {
      const Mesh::Axis& axis = layout.mesh().axis(refs[i].axis);
      absl::StrAppend(&out, i == 0 ? "\"" : ", \"", axis.name, "\"");
      if (refs[i].size != axis.size) absl::StrAppend(&out, ":(", refs[i].pre, ")", refs[i].size);
    }
    return out + "}";
  };
  std::string out = "#sdy.sharding<@mesh, [";
  for (int d = 0; d < layout.rank(); ++d) {
    ASSIGN_OR_RETURN(const std::vector<AxisRef> axes, OnlyAxes(layout, d, kShardy));
    absl::StrAppend(&out, d == 0 ? "" : ", ", list(axes));
  }
  out += "]";
  ASSIGN_OR_RETURN(const std::vector<AxisRef> sums, OnlySums(layout, kShardy));
  if (!sums.empty()) absl::StrAppend(&out, ", unreduced=", list(sums));
  return out + ">";
}

}  // namespace reshard::notation
