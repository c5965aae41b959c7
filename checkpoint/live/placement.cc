#include "checkpoint/live/placement.h"

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "checkpoint/io/show.h"
#include "reshard/layout/text.h"
#include "status/macros.h"
#include "status/view.h"

namespace reshard::live {

absl::StatusOr<Placement> Placements::Find(const Layout& layout) {
  const Mesh& mesh = layout.mesh();
  auto known = positions_.find(mesh);
  if (known == positions_.end()) {
    RETURN_IF_ERROR(communicator_.CheckRanksOf(mesh));
    known = positions_.emplace(mesh, mesh.Position(communicator_.rank()).value_or(-1)).first;
  }
  if (layout.partial()) {
    return absl::InvalidArgumentError(
        absl::StrCat("the layout ", ToString(layout), " has partial values; reduce it first"));
  }
  return Placement{layout, known->second};
}

absl::Status CheckFragment(const Placement& placement, DType dtype, const ConstTensorView& view) {
  if (placement.position < 0) {
    if (view.data == nullptr || NumElements(view.shape) == 0) return absl::OkStatus();
    return absl::InvalidArgumentError("this rank is not in the mesh, but has elements");
  }
  if (view.dtype != dtype) {
    return absl::InvalidArgumentError(absl::StrCat("elements of type ", status::View(Name(view.dtype)), " instead of ",
                                                   status::View(Name(dtype)), "; they are not converted"));
  }
  const std::vector<int64_t> local = placement.layout.LocalShape(placement.position);
  if (absl::MakeConstSpan(local) != absl::MakeConstSpan(view.shape)) {
    return absl::InvalidArgumentError(absl::StrCat("by its layout this rank's fragment has the shape ",
                                                   io::Shown(local), ", not ", io::Shown(view.shape)));
  }
  if (view.memory != MemoryKind::kHost) return absl::InvalidArgumentError("the fragment is not in host memory");
  if (view.strides.size() != view.shape.size())
    return absl::InvalidArgumentError("a view needs one stride per dimension");
  if (view.data == nullptr && NumElements(view.shape) > 0) return absl::InvalidArgumentError("the fragment is null");
  return absl::OkStatus();
}

Layout AtLeastOneDimension(const Layout& layout) {
  if (layout.rank() > 0) return layout;
  absl::StatusOr<Layout> one = Layout::Create(layout.mesh(), {DimLayout{1, {}}});
  return one.ok() ? *std::move(one) : layout;  // one element in one dimension breaks no rule
}

}  // namespace reshard::live
