#include "layout/notation/dtensor_placements.h"

#include <algorithm>
#include <cassert>
#include <utility>

#include "absl/strings/str_cat.h"
#include "layout/names.h"
#include "layout/notation/dtensor_dim.h"
#include "reshard/layout/checked.h"

namespace reshard::notation {
namespace {

using Kind = DTensorPlacement::Kind;

class Splits {
 public:
  Splits(absl::Span<const DTensorPlacement> placements, const Mesh& mesh, layout::LayoutDraft* draft)
      : placements_(placements), mesh_(mesh), draft_(draft), of_dim_(draft->dims.size()) {
    for (int axis = 0; axis < mesh.num_axes(); ++axis) {
      if (At(axis).kind == Kind::kShard) of_dim_[At(axis).dim].push_back(axis);
    }
  }

  std::optional<DTensorRefusal> Add() {
    const bool factors_say = OrderByFactors();
    for (size_t d = 0; d < of_dim_.size(); ++d) {
      const bool ordered = IsOrdered(d);
      if (ordered) {
        if (auto refused = OrderAsGiven(d)) return refused;
      }
      if (factors_say && !ordered) {
        for (const int axis : of_dim_[d]) {
          draft_->dims[d].Add(AxisRef{axis, 1, mesh_.axis(axis).size}, At(axis).column);
        }
      } else if (auto refused = SplitOneByOne(d, ordered)) {
        return refused;
      }
    }
    return std::nullopt;
  }

 private:
  const DTensorPlacement& At(int axis) const { return placements_[axis]; }

  bool IsOrdered(size_t d) const {
    return std::any_of(of_dim_[d].begin(), of_dim_[d].end(), [&](int axis) { return At(axis).order.has_value(); });
  }

  // Sorts the axes of all dimensions without a shard order as their split factors say; false, and nothing is sorted,
  // where one of these says nothing.
  bool OrderByFactors() {
    std::vector<std::vector<int>> all = of_dim_;
    for (size_t d = 0; d < all.size(); ++d) {
      if (IsOrdered(d)) continue;
      std::vector<int> order;
      for (auto axis = of_dim_[d].rbegin(); axis != of_dim_[d].rend(); ++axis) {
        int64_t left = At(*axis).split_factor.value_or(1);
        auto at = order.begin();
        for (; left > 1; ++at) {
          if (at == order.end() || left % mesh_.axis(*at).size != 0) return false;
          left /= mesh_.axis(*at).size;
        }
        order.insert(at, *axis);
      }
      all[d] = std::move(order);
    }
    of_dim_ = std::move(all);
    return true;
  }

  // Sorts by shard order, which must be there for all placements of the dimension and be 0, 1, ....
  std::optional<DTensorRefusal> OrderAsGiven(size_t d) {
    std::vector<int>& axes = of_dim_[d];
    const auto has_order = [&](int axis) { return At(axis).order.has_value(); };
    const auto without = std::find_if_not(axes.begin(), axes.end(), has_order);
    if (without != axes.end()) {
      return DTensorRefusal{
          absl::StatusCode::kInvalidArgument, *without,
          absl::StrCat("the shard order is given for ", std::count_if(axes.begin(), axes.end(), has_order), " of the ",
                       axes.size(), " placements of dimension ", d)};
    }
    std::sort(axes.begin(), axes.end(), [&](int a, int b) { return *At(a).order < *At(b).order; });
    for (size_t k = 0; k < axes.size(); ++k) {
      if (*At(axes[k]).order == static_cast<int64_t>(k)) continue;
      return DTensorRefusal{absl::StatusCode::kInvalidArgument, axes[k],
                            absl::StrCat("the shard orders of dimension ", d, " are not 0 to ", axes.size() - 1)};
    }
    return std::nullopt;
  }

  std::optional<DTensorRefusal> SplitOneByOne(size_t d, bool ordered) {
    DTensorDim dim(draft_->dims[d].size);
    for (const int axis : of_dim_[d]) {
      const DTensorPlacement& placement = At(axis);
      const std::optional<std::string> broken =
          dim.Split(axis, mesh_.axis(axis).size, placement.split_factor.value_or(1), placement.column);
      if (broken) {
        const char* const why = ordered ? "the shard order says that splits are applied one by one"
                                        : "the split factors say no order of the mesh axes, for which each would be "
                                          "the product of the sizes of later ones";
        return DTensorRefusal{
            absl::StatusCode::kUnimplemented, axis,
            absl::StrCat(TextOf(axis), " ", *broken, "; ", why, ". Redistribute the tensor to Shard placements first")};
      }
    }
    dim.MoveTo(&draft_->dims[d]);
    return std::nullopt;
  }

  // "Shard(dim=0) over mesh axis tp".
  std::string TextOf(int axis) const {
    const DTensorPlacement& placement = At(axis);
    const std::string shard = placement.split_factor ? absl::StrCat("_StridedShard(dim=", placement.dim,
                                                                    ", sf=", *placement.split_factor, ")")
                                                     : absl::StrCat("Shard(dim=", placement.dim, ")");
    return absl::StrCat(shard, " over mesh axis ", layout::Printable(mesh_.axis(axis).name));
  }

  absl::Span<const DTensorPlacement> placements_;
  const Mesh& mesh_;
  layout::LayoutDraft* draft_;
  std::vector<std::vector<int>> of_dim_;  // the axes that split each dimension, in the order of the splits
};

std::optional<DTensorRefusal> AddPartial(absl::Span<const DTensorPlacement> placements, const Mesh& mesh,
                                         layout::LayoutDraft* draft) {
  for (int axis = 0; axis < mesh.num_axes(); ++axis) {
    const DTensorPlacement& placement = placements[axis];
    if (placement.kind != Kind::kPartial) continue;
    if (draft->partial.empty()) draft->op = placement.op;
    if (draft->op != placement.op) {
      return DTensorRefusal{
          absl::StatusCode::kUnimplemented, axis,
          absl::StrCat("partial ", Name(draft->op), " and partial ", Name(placement.op), " in one layout")};
    }
    draft->partial.push_back({{axis, 1, mesh.axis(axis).size}, placement.column});
  }
  return std::nullopt;
}

DTensorRefusal Contradiction(int axis, std::string reason) {
  return {absl::StatusCode::kInvalidArgument, axis, std::move(reason)};
}

// A RaggedShard flattens the first dimensions and cuts them in units. Strided, it cuts what the other axes have left of
// them.
std::optional<DTensorRefusal> AddRagged(absl::Span<const DTensorPlacement> placements, const Mesh& mesh,
                                        layout::LayoutDraft* draft) {
  const auto is_ragged = [](const DTensorPlacement& placement) { return placement.kind == Kind::kRagged; };
  const auto found = std::find_if(placements.begin(), placements.end(), is_ragged);
  if (found == placements.end()) return std::nullopt;
  const auto axis = static_cast<int>(found - placements.begin());
  if (std::find_if(found + 1, placements.end(), is_ragged) != placements.end()) {
    return DTensorRefusal{absl::StatusCode::kUnimplemented, axis, "more than one RaggedShard in one layout"};
  }
  const int64_t size = mesh.axis(axis).size;
  if (static_cast<int64_t>(found->units.size()) != size) {
    return Contradiction(axis, absl::StrCat("local_units has ", found->units.size(), " numbers, but mesh axis ",
                                            layout::Printable(mesh.axis(axis).name), " has size ", size));
  }
  int64_t held = 1, parts = 1;
  layout::LayoutDraft::Dim flat;
  for (size_t d = 0; d <= found->last_dim; ++d) {
    layout::LayoutDraft::Dim& dim = draft->dims[d];
    int64_t left = dim.size;
    for (const Factor& factor : dim.factors) {
      if (!factor.has_axis() || left % factor.parts() != 0) {
        return DTensorRefusal{absl::StatusCode::kUnimplemented, axis,
                              absl::StrCat("a RaggedShard over dimension ", d, ", which is not sharded evenly")};
      }
      left /= factor.parts();
      parts *= factor.parts();
    }
    const std::optional<int64_t> product = CheckedMul(held, left);
    if (!product) return Contradiction(axis, "the number of elements does not fit a signed 64-bit integer");
    held = *product;
    flat.flattened.push_back(std::move(dim));
  }
  if (parts != found->split_factor.value_or(1)) {
    return Contradiction(axis, absl::StrCat("other mesh axes cut its dimensions into ", parts,
                                            found->split_factor ? absl::StrCat(", not ", *found->split_factor)
                                                                : "; only a strided RaggedShard cuts what they leave"));
  }
  int64_t units = 0;
  for (const int64_t unit : found->units) units += unit;
  if (units == 0 || held % units != 0) {
    return Contradiction(axis, absl::StrCat(held, " elements are not ", units, " equal units"));
  }
  Factor factor = Factor::Along({axis, 1, size});
  factor.kind = Factor::Kind::kSizes;
  for (const int64_t unit : found->units) factor.sizes.push_back(unit * (held / units));
  flat.size_column = found->column;
  flat.Add(std::move(factor), found->column);
  draft->dims.erase(draft->dims.begin(), draft->dims.begin() + static_cast<ptrdiff_t>(found->last_dim) + 1);
  draft->dims.insert(draft->dims.begin(), std::move(flat));
  return std::nullopt;
}

}  // namespace

std::optional<DTensorRefusal> AddPlacements(absl::Span<const DTensorPlacement> placements, const Mesh& mesh,
                                            layout::LayoutDraft* draft) {
  assert(static_cast<int>(placements.size()) == mesh.num_axes());
  if (auto refused = Splits(placements, mesh, draft).Add()) return refused;
  if (auto refused = AddRagged(placements, mesh, draft)) return refused;
  return AddPartial(placements, mesh, draft);
}

absl::StatusOr<Layout> LayoutOfPlacements(absl::Span<const DTensorPlacement> placements, const Mesh& mesh,
                                          const std::vector<int64_t>& shape) {
  layout::LayoutDraft draft(shape);
  if (const auto refused = AddPlacements(placements, mesh, &draft)) return absl::Status(refused->code, refused->reason);
  std::vector<DimLayout> dims;
  dims.reserve(draft.dims.size());
  for (layout::LayoutDraft::Dim& dim : draft.dims) dims.push_back({dim.size, std::move(dim.factors)});
  Partial partial{draft.op, {}};
  for (const layout::LayoutDraft::Axis& axis : draft.partial) partial.axes.push_back(axis.ref);
  return Layout::Create(mesh, std::move(dims), std::move(partial));
}

}  // namespace reshard::notation
