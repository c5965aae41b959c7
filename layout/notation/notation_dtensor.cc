// DTensor placements, one per mesh axis: S(0)[1]S(0)[0]R. Also S0, Shard(dim=0), Replicate(), Partial(avg), and
// _StridedShard(dim=0, sf=2) / _S(0, 2); separated by nothing, blanks or commas; () or [] around the list, and quotes
// around each.
// RaggedShard(dims=(0, 1), local_units=(2, 3, 0, 5)), and _StridedRaggedShard with a split_factor behind.
// See dtensor_placements.h for what they mean.
#include <algorithm>
#include <numeric>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "layout/axes.h"
#include "layout/cut.h"
#include "layout/draft.h"
#include "layout/names.h"
#include "layout/notation/dtensor_dim.h"
#include "layout/notation/dtensor_placements.h"
#include "layout/notation/foreign.h"
#include "reshard/layout/text.h"
#include "status/macros.h"

namespace reshard::notation {
namespace {

class DTensorReader {
 public:
  DTensorReader(std::string_view text, const Mesh& mesh, const Shape& shape) : in_(text), mesh_(mesh), shape_(shape) {}

  absl::StatusOr<Layout> Read() {
    const bool round = in_.Take('(');
    const bool square = !round && in_.Take('[');
    while (!in_.AtEnd() && in_.Peek() != ')' && in_.Peek() != ']') {
      DTensorPlacement placement;
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
    layout::LayoutDraft draft(shape_);
    if (const auto refused = AddPlacements(placements_, mesh_, &draft)) {
      const size_t column = placements_[refused->axis].column;
      return refused->code == absl::StatusCode::kUnimplemented ? in_.Unsupported(column, refused->reason)
                                                               : in_.Error(column, refused->reason);
    }
    return draft.Build(in_, mesh_);
  }

 private:
  absl::Status ReadPlacement(DTensorPlacement* out) {
    out->column = in_.column();
    const char quote = in_.Peek();
    const bool quoted = (quote == '\'' || quote == '"') && in_.Take(quote);
    RETURN_IF_ERROR(ReadUnquoted(out));
    return quoted ? in_.Expect(quote) : absl::OkStatus();
  }

  absl::Status ReadUnquoted(DTensorPlacement* out) {
    // Longer names first: placements may follow each other without anything between them.
    if (in_.Take("_StridedRaggedShard")) return ReadRagged(/*strided=*/true, out);
    if (in_.Take("RaggedShard")) return ReadRagged(/*strided=*/false, out);
    if (in_.Take("_StridedShard") || in_.Take("_S")) return ReadShard(/*strided=*/true, out);
    if (in_.Take("Shard") || in_.Take("S")) return ReadShard(/*strided=*/false, out);
    if (in_.Take("Replicate") || in_.Take("R")) {
      return in_.Take('(') ? in_.Expect(')') : absl::OkStatus();
    }
    if (in_.Take("Partial") || in_.Take("P")) return ReadPartial(out);
    return in_.Expected("a placement: Shard(dim), Replicate(), Partial(op) or _StridedShard(dim, split_factor)");
  }

  absl::Status ReadShard(bool strided, DTensorPlacement* out) {
    out->kind = DTensorPlacement::Kind::kShard;
    const bool bare = !strided && in_.AtInt();  // S0
    if (!bare) RETURN_IF_ERROR(in_.Expect('('));
    if (!bare && in_.TakeWord("dim")) {
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
    if (!bare) RETURN_IF_ERROR(in_.Expect(')'));
    if (!in_.Take('[')) return absl::OkStatus();
    const absl::StatusOr<int64_t> order = in_.Int("the shard order");
    if (!order.ok()) return order.status();
    out->order = *order;
    return in_.Expect(']');
  }

  // (dims=(0, 1), local_units=(2, 3, 0, 5)), with split_factor=2 behind if strided.
  absl::Status ReadRagged(bool strided, DTensorPlacement* out) {
    out->kind = DTensorPlacement::Kind::kRagged;
    RETURN_IF_ERROR(in_.Expect('('));
    const size_t column = in_.column();
    std::vector<int64_t> dims;
    RETURN_IF_ERROR(ReadTuple("dims", "a dimension of the tensor", &dims));
    for (size_t i = 0; i < dims.size(); ++i) {
      if (dims[i] != static_cast<int64_t>(i) || i >= shape_.size()) {
        return in_.Error(column, absl::StrCat("the dims of a RaggedShard are the first ones of the tensor's ",
                                              shape_.size(), ", in order"));
      }
    }
    out->last_dim = dims.size() - 1;
    RETURN_IF_ERROR(in_.Expect(','));
    const size_t at = in_.column();
    RETURN_IF_ERROR(ReadTuple("local_units", "a number of units", &out->units));
    int64_t sum = 0;
    for (const int64_t units : out->units) {
      if (units > INT64_MAX - sum) return in_.Error(at, "the units do not fit a signed 64-bit integer");
      sum += units;
    }
    if (strided) {
      RETURN_IF_ERROR(in_.Expect(','));
      if (in_.TakeWord("split_factor")) RETURN_IF_ERROR(in_.Expect('='));
      ASSIGN_OR_RETURN(out->split_factor, in_.Int("the split factor"));
    }
    return in_.Expect(')');
  }

  // NAME=(1, 2) or (1, 2), also with one number and a comma behind.
  absl::Status ReadTuple(std::string_view name, std::string_view what, std::vector<int64_t>* out) {
    if (in_.TakeWord(name)) RETURN_IF_ERROR(in_.Expect('='));
    RETURN_IF_ERROR(in_.Expect('('));
    do {
      if (!out->empty() && in_.Peek() == ')') break;
      ASSIGN_OR_RETURN(const int64_t number, in_.Int(what));
      out->push_back(number);
    } while (in_.Take(','));
    return in_.Expect(')');
  }

  absl::Status ReadPartial(DTensorPlacement* out) {
    out->kind = DTensorPlacement::Kind::kPartial;
    if (!in_.Take('(') || in_.Take(')')) return absl::OkStatus();
    if (in_.TakeWord("reduce_op")) {
      RETURN_IF_ERROR(in_.Expect('='));
    }
    const size_t column = in_.column();
    const bool quoted = in_.Peek() == '\'' || in_.Peek() == '"';
    ASSIGN_OR_RETURN(const std::string_view name, quoted ? in_.Quoted("a reduction") : in_.Name("a reduction"));
    const std::optional<ReduceOp> op = name == "product" ? ReduceOp::kProd : FindReduceOp(name);
    if (!op) {
      return in_.Unsupported(column, absl::StrCat("the reduction \"", layout::Printable(name),
                                                  "\" is not one of sum, avg, min, max and product"));
    }
    out->op = *op;
    return in_.Expect(')');
  }

  layout::Scanner in_;
  const Mesh& mesh_;
  const Shape& shape_;
  std::vector<DTensorPlacement> placements_;
};

}  // namespace

absl::StatusOr<Layout> ImportDTensor(std::string_view text, const Mesh& mesh, const Shape& shape) {
  return DTensorReader(text, mesh, shape).Read();
}

namespace {

// The placements of a layout that flattens its first dimensions and cuts them along one axis: a RaggedShard on that
// axis, and on the other axes what the layout would have without it.
absl::StatusOr<std::vector<std::string>> WithRaggedShard(const Layout& layout) {
  const DimLayout& flat = layout.dim(0);
  const std::vector<const Factor*> factors = layout::EffectiveFactors(flat);
  if (factors.size() != 1 || !factors[0]->has_axis() || factors[0]->kind == Factor::Kind::kReflected ||
      factors[0]->kind == Factor::Kind::kSlots) {
    return CannotSay("DTensor", "flattened dimensions that are not cut along exactly one axis");
  }
  const Factor& factor = *factors[0];
  RETURN_IF_ERROR(CheckWhole(layout.mesh(), {factor.axis}, "DTensor"));
  std::vector<DimLayout> dims = flat.flattened;
  dims.insert(dims.end(), layout.dims().begin() + 1, layout.dims().end());
  ASSIGN_OR_RETURN(const Layout others, Layout::Create(layout.mesh(), std::move(dims), layout.partial()));
  if (others.flattens()) return CannotSay("DTensor", "flattened dimensions that are not the first ones");
  ASSIGN_OR_RETURN(std::vector<std::string> placements, DTensorPlacements(others));
  int64_t parts = 1, held = 1;
  std::vector<std::string> numbers;
  for (size_t d = 0; d < flat.flattened.size(); ++d) {
    numbers.push_back(absl::StrCat(d));
    held *= layout::LargestShard(flat.flattened[d]);
    for (const AxisRef& ref : flat.flattened[d].Axes()) parts *= ref.size;
  }
  int64_t unit = 0;
  std::vector<int64_t> units;
  for (int64_t j = 0; j < factor.parts(); ++j) {
    units.push_back(factor.kind == Factor::Kind::kSizes ? factor.sizes[j]
                                                        : layout::CeilChunk({0, held}, factor.parts(), j).length());
    unit = std::gcd(unit, units.back());
  }
  for (int64_t& one : units) one /= std::max<int64_t>(1, unit);
  const auto tuple = [](const auto& list) {
    return absl::StrCat("(", absl::StrJoin(list, ", "), list.size() == 1 ? ",)" : ")");
  };
  placements[factor.axis.axis] =
      absl::StrCat(parts > 1 ? "_Strided" : "", "RaggedShard(dims=", tuple(numbers), ", local_units=", tuple(units),
                   parts > 1 ? absl::StrCat(", split_factor=", parts) : "", ")");
  return placements;
}

}  // namespace

absl::StatusOr<std::string> ExportDTensor(const Layout& layout) {
  const Mesh& mesh = layout.mesh();
  ASSIGN_OR_RETURN(std::vector<std::string> placements,
                   layout.flattens() ? WithRaggedShard(layout) : DTensorPlacements(layout));
  const std::vector<AxisRef> partial = layout::PartialAxes(layout);
  RETURN_IF_ERROR(CheckWhole(mesh, partial, "DTensor"));
  for (const AxisRef& ref : partial) {
    const ReduceOp op = layout.partial()->op;
    placements[ref.axis] = absl::StrCat("P(", op == ReduceOp::kProd ? "product" : Name(op), ")");
  }
  if (placements.empty()) return std::string("()");
  std::string out;
  for (const std::string& placement : placements) out += placement;
  return out;
}

}  // namespace reshard::notation
