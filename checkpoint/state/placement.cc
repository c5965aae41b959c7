#include "checkpoint/state/placement.h"

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "checkpoint/io/show.h"
#include "reshard/layout/text.h"

namespace reshard {

absl::StatusOr<Placement> Placements::Find(std::string_view mesh, std::string_view layout,
                                           const Communicator& communicator) {
  std::shared_ptr<const Mesh>& known = meshes_[std::string(mesh)];
  if (known == nullptr) {
    absl::StatusOr<Mesh> parsed = ParseMesh(mesh);
    if (!parsed.ok()) return parsed.status();
    for (int64_t position = 0; position < parsed->size(); ++position) {
      if (communicator.has_rank(parsed->Device(position))) continue;
      return absl::InvalidArgumentError(absl::StrCat("mesh ", Abseil(mesh), " has device ", parsed->Device(position),
                                                     ", which is none of the ", communicator.world_size(), " ranks"));
    }
    known = std::make_shared<const Mesh>(*std::move(parsed));
  }
  absl::StatusOr<Layout> parsed = ParseLayout(layout, known);
  if (!parsed.ok()) return parsed.status();
  if (parsed->pending()) {
    return absl::InvalidArgumentError(
        absl::StrCat("the layout ", Abseil(layout), " has a pending reduction; reduce it first"));
  }
  return Placement{*std::move(parsed), known->Position(communicator.rank()).value_or(-1)};
}

absl::Status CheckFragment(const Placement& placement, DType dtype, const ConstTensorView& view) {
  if (placement.position < 0) {
    if (view.data == nullptr || NumElements(view.shape) == 0) return absl::OkStatus();
    return absl::InvalidArgumentError("this rank is not in the mesh, but has elements");
  }
  if (view.dtype != dtype) {
    return absl::InvalidArgumentError(absl::StrCat("elements of type ", Abseil(Name(view.dtype)), " instead of ",
                                                   Abseil(Name(dtype)), "; they are not converted"));
  }
  const std::vector<int64_t> local = placement.layout.LocalShape(placement.position);
  if (absl::MakeConstSpan(local) != absl::MakeConstSpan(view.shape)) {
    return absl::InvalidArgumentError(
        absl::StrCat("by its layout this rank's fragment has the shape ", Shown(local), ", not ", Shown(view.shape)));
  }
  if (view.memory != MemoryKind::kHost) return absl::InvalidArgumentError("the fragment is not in host memory");
  if (view.strides.size() != view.shape.size())
    return absl::InvalidArgumentError("a view needs one stride a dimension");
  if (view.data == nullptr && NumElements(view.shape) > 0) return absl::InvalidArgumentError("the fragment is null");
  return absl::OkStatus();
}

Layout AtLeastOneDimension(const Layout& layout) {
  if (layout.rank() > 0) return layout;
  absl::StatusOr<Layout> one = Layout::Create(layout.mesh_ptr(), {DimLayout{1, {}}});
  return one.ok() ? *std::move(one) : layout;  // one element in one dimension breaks no rule
}

}  // namespace reshard
