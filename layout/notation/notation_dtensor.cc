// DTensor placements, one a mesh axis: S(0)[1]S(0)[0]R. Also Shard(dim=0), Replicate(), Partial(avg), and
// _StridedShard(dim=0, sf=2) / _S(0, 2); separated by nothing, blanks or commas; () or [] around the list.
//
// DTensor splits a tensor dimension once a placement, left to right, or in the shard order [k] where it is given. A
// split works on what a device holds so far: Shard cuts it into as many pieces as the mesh axis has coordinates,
// _StridedShard(split_factor = f) first into f blocks and then every block into such pieces.
#include <algorithm>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "layout/axes.h"
#include "layout/draft.h"
#include "layout/names.h"
#include "layout/notation/dtensor_dim.h"
#include "layout/notation/foreign.h"
#include "reshard/layout/text.h"
#include "status/macros.h"

namespace reshard::notation {
namespace {

struct Placement {
  enum class Kind { kReplicate, kShard, kPartial };
  Kind kind = Kind::kReplicate;
  size_t column = 0;
  size_t dim = 0;                // kShard
  int64_t split_factor = 1;      // kShard: more than 1 for _StridedShard
  bool strided = false;          // kShard
  std::optional<int64_t> order;  // kShard: [k]
  ReduceOp op = ReduceOp::kSum;  // kPartial
};

class DTensorReader {
 public:
  DTensorReader(std::string_view text, const Mesh& mesh, const Shape& shape)
      : in_(text), mesh_(mesh), shape_(shape), draft_(shape) {}

  absl::StatusOr<Layout> Read() {
    const bool round = in_.Take('(');
    const bool square = !round && in_.Take('[');
    while (!in_.AtEnd() && in_.Peek() != ')' && in_.Peek() != ']') {
      Placement placement;
      RETURN_IF_ERROR(ReadPlacement(&placement));
      if (placements_.size() == static_cast<size_t>(mesh_.num_axes())) {
        return in_.Error(placement.column,
                         absl::StrCat("there are more placements than the mesh has axes (", mesh_.num_axes(), ")"));
      }
      placements_.push_back(placement);
      in_.Take(',');
    }
    if (round || square) {
      RETURN_IF_ERROR(in_.Expect(round ? ')' : ']'));
    }
    const size_t end = in_.column();
    RETURN_IF_ERROR(in_.ExpectEnd());
    if (placements_.size() != static_cast<size_t>(mesh_.num_axes())) {
      return in_.Error(end, absl::StrCat("there are ", placements_.size(), " placements but the mesh has ",
                                         mesh_.num_axes(), " axes"));
    }
    for (size_t d = 0; d < shape_.size(); ++d) {
      RETURN_IF_ERROR(Split(d));
    }
    RETURN_IF_ERROR(Reduce());
    return draft_.Build(in_, mesh_);
  }

 private:
  absl::Status ReadPlacement(Placement* out) {
    out->column = in_.column();
    // Longer names first: placements may follow each other without anything between them.
    if (in_.Take("_StridedShard") || in_.Take("_S")) return ReadShard(/*strided=*/true, out);
    if (in_.Take("Shard") || in_.Take("S")) return ReadShard(/*strided=*/false, out);
    if (in_.Take("Replicate") || in_.Take("R")) {
      return in_.Take('(') ? in_.Expect(')') : absl::OkStatus();
    }
    if (in_.Take("Partial") || in_.Take("P")) return ReadPartial(out);
    return in_.Expected("a placement: Shard(dim), Replicate(), Partial(op) or _StridedShard(dim, split_factor)");
  }

  absl::Status ReadShard(bool strided, Placement* out) {
    out->kind = Placement::Kind::kShard;
    out->strided = strided;
    RETURN_IF_ERROR(in_.Expect('('));
    if (in_.TakeWord("dim")) {
      RETURN_IF_ERROR(in_.Expect('='));
    }
    const size_t column = in_.column();
    const bool from_the_end = in_.Take('-');
    ASSIGN_OR_RETURN(const int64_t dim, in_.Int("a dimension of the tensor"));
    const auto rank = static_cast<int64_t>(shape_.size());
    if (from_the_end ? dim < 1 || dim > rank : dim >= rank) {
      return in_.Error(
          column, absl::StrCat("the tensor has ", rank, " dimensions, there is no ", from_the_end ? "-" : "", dim));
    }
    out->dim = static_cast<size_t>(from_the_end ? rank - dim : dim);
    if (strided) {
      RETURN_IF_ERROR(in_.Expect(','));
      if (in_.TakeWord("sf") || in_.TakeWord("split_factor")) {
        RETURN_IF_ERROR(in_.Expect('='));
      }
      const size_t at = in_.column();
      const absl::StatusOr<int64_t> factor = in_.Int("the split factor");
      if (!factor.ok()) return factor.status();
      if (*factor < 1) return in_.Error(at, "a split factor must be at least 1");
      out->split_factor = *factor;
    }
    RETURN_IF_ERROR(in_.Expect(')'));
    if (!in_.Take('[')) return absl::OkStatus();
    const absl::StatusOr<int64_t> order = in_.Int("the shard order");
    if (!order.ok()) return order.status();
    out->order = *order;
    return in_.Expect(']');
  }

  absl::Status ReadPartial(Placement* out) {
    out->kind = Placement::Kind::kPartial;
    if (!in_.Take('(') || in_.Take(')')) return absl::OkStatus();
    if (in_.TakeWord("reduce_op")) {
      RETURN_IF_ERROR(in_.Expect('='));
    }
    const size_t column = in_.column();
    const bool quoted = in_.Peek() == '\'' || in_.Peek() == '"';
    ASSIGN_OR_RETURN(const std::string_view name, quoted ? in_.Quoted("a reduction") : in_.Name("a reduction"));
    if (name == "sum") {
      out->op = ReduceOp::kSum;
    } else if (name == "avg") {
      out->op = ReduceOp::kAvg;
    } else if (name == "min") {
      out->op = ReduceOp::kMin;
    } else if (name == "max") {
      out->op = ReduceOp::kMax;
    } else if (name == "product" || name == "prod") {
      out->op = ReduceOp::kProd;
    } else {
      return in_.Unsupported(column, absl::StrCat("the reduction \"", layout::Printable(name),
                                                  "\" is none of sum, avg, min, max and product"));
    }
    return in_.Expect(')');
  }

  // The splits of tensor dimension d, in the order in which they are applied.
  absl::Status Split(size_t d) {
    std::vector<int> axes;
    size_t ordered = 0;
    for (int axis = 0; axis < mesh_.num_axes(); ++axis) {
      const Placement& placement = At(axis);
      if (placement.kind != Placement::Kind::kShard || placement.dim != d) continue;
      axes.push_back(axis);
      if (placement.order) ++ordered;
    }
    if (ordered > 0) {
      RETURN_IF_ERROR(Order(d, ordered, &axes));
    }
    DTensorDim dim(shape_[d]);
    for (const int axis : axes) {
      const Placement& placement = At(axis);
      if (ordered > 0 && placement.strided) {
        return in_.Unsupported(placement.column, "a shard order and _StridedShard on the same dimension");
      }
      if (const auto broken = dim.Split(axis, mesh_.axis(axis).size, placement.split_factor, placement.column)) {
        return in_.Unsupported(placement.column, *broken);
      }
    }
    dim.MoveTo(&draft_.dims[d]);
    return absl::OkStatus();
  }

  // Sorts by shard order, which must be there for all placements of the dimension and be 0, 1, ....
  absl::Status Order(size_t d, size_t ordered, std::vector<int>* axes) {
    const auto first_without =
        std::find_if(axes->begin(), axes->end(), [&](int axis) { return !At(axis).order.has_value(); });
    if (first_without != axes->end()) {
      return in_.Error(At(*first_without).column, absl::StrCat("the shard order is given for ", ordered, " of the ",
                                                               axes->size(), " placements of dimension ", d));
    }
    std::sort(axes->begin(), axes->end(), [&](int a, int b) { return *At(a).order < *At(b).order; });
    for (size_t k = 0; k < axes->size(); ++k) {
      if (*At((*axes)[k]).order == static_cast<int64_t>(k)) continue;
      return in_.Error(At((*axes)[k]).column,
                       absl::StrCat("the shard orders of dimension ", d, " are not 0 to ", axes->size() - 1));
    }
    return absl::OkStatus();
  }

  absl::Status Reduce() {
    for (int axis = 0; axis < mesh_.num_axes(); ++axis) {
      const Placement& placement = At(axis);
      if (placement.kind != Placement::Kind::kPartial) continue;
      if (draft_.pending.empty()) draft_.op = placement.op;
      if (draft_.op != placement.op) {
        return in_.Unsupported(placement.column, absl::StrCat("pending ", Name(draft_.op), " and pending ",
                                                              Name(placement.op), " in one layout"));
      }
      draft_.pending.push_back({{axis, 1, mesh_.axis(axis).size}, placement.column});
    }
    return absl::OkStatus();
  }

  const Placement& At(int axis) const { return placements_[static_cast<size_t>(axis)]; }

  layout::Scanner in_;
  const Mesh& mesh_;
  const Shape& shape_;
  std::vector<Placement> placements_;
  layout::LayoutDraft draft_;
};

}  // namespace

absl::StatusOr<Layout> ImportDTensor(std::string_view text, const Mesh& mesh, const Shape& shape) {
  return DTensorReader(text, mesh, shape).Read();
}

absl::StatusOr<std::string> ExportDTensor(const Layout& layout) {
  const Mesh& mesh = layout.mesh();
  std::vector<std::string> placements(static_cast<size_t>(mesh.num_axes()), "R");
  for (int d = 0; d < layout.rank(); ++d) {
    RETURN_IF_ERROR(DTensorPlacements(layout, d, &placements));
  }
  const std::vector<AxisRef> pending = layout::PendingAxes(layout);
  RETURN_IF_ERROR(CheckWhole(mesh, pending, "DTensor"));
  for (const AxisRef& ref : pending) {
    const ReduceOp op = layout.pending()->op;
    placements[static_cast<size_t>(ref.axis)] = absl::StrCat("P(", op == ReduceOp::kProd ? "product" : Name(op), ")");
  }
  if (placements.empty()) return std::string("()");
  std::string out;
  for (const std::string& placement : placements) out += placement;
  return out;
}

}  // namespace reshard::notation
