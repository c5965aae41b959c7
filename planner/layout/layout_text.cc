// Reads layouts and layout rules: one pass over the text, no recursion.
#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "planner/layout/draft.h"
#include "planner/layout/names.h"
#include "planner/layout/rules.h"
#include "planner/layout/scanner.h"
#include "reshard/layout/text.h"

namespace reshard {
namespace {

struct Number {
  int64_t value = 0;
  size_t column = 0;
};

// One dimension as written. The size within `draft` is filled in at the end.
struct WrittenDim {
  enum class Kind { kSized, kAny, kRest };  // kAny is `*`, kRest is `...`: both only in rules
  Kind kind = Kind::kSized;
  size_t column = 0;
  std::optional<Number> local;
  std::optional<Number> size;
  LayoutDraft::Dim draft;
};

class LayoutReader {
 public:
  // `shape` is null for a layout, the tensor's shape for a rule.
  LayoutReader(std::string_view text, std::shared_ptr<const Mesh> mesh, const std::vector<int64_t>* shape)
      : in_(text), mesh_(std::move(mesh)), shape_(shape) {}

  absl::StatusOr<Layout> Read() {
    if (absl::Status s = ReadDims(); !s.ok()) return s;
    if (absl::Status s = ReadPending(); !s.ok()) return s;
    if (absl::Status s = in_.ExpectEnd(); !s.ok()) return s;
    if (shape_ != nullptr) {
      if (absl::Status s = FitToShape(); !s.ok()) return s;
    }
    return Build();
  }

 private:
  absl::Status ReadDims() {
    if (absl::Status s = in_.Expect('['); !s.ok()) return s;
    if (in_.Take(']')) return absl::OkStatus();
    do {
      // Rest dimensions do not count: `[..., *]` of rank kMaxRank has one item more.
      if (dims_.size() > static_cast<size_t>(kMaxRank)) {
        return in_.Error(in_.column(), absl::StrCat("the layout has more than ", kMaxRank, " dimensions"));
      }
      WrittenDim dim;
      if (absl::Status s = ReadDim(&dim); !s.ok()) return s;
      dims_.push_back(std::move(dim));
    } while (in_.Take(','));
    return in_.Expect(']');
  }

  absl::Status ReadDim(WrittenDim* dim) {
    dim->column = in_.column();
    if (in_.Peek() == '*' || in_.Peek() == '.') return ReadPlaceholder(dim);
    std::optional<Number> first;
    if (in_.AtInt()) {
      if (absl::Status s = ReadNumber("a size", &first); !s.ok()) return s;
    }
    const bool angle = in_.Take('<');
    if (angle || in_.Take('{')) {
      const char close = angle ? '>' : '}';
      if (absl::Status s = ReadFactors(close, dim); !s.ok()) return s;
    } else if (!first) {
      return in_.Expected("a dimension");
    } else if (!in_.AtInt()) {
      dim->size = first;
      return absl::OkStatus();
    }
    dim->local = first;
    if (shape_ != nullptr && !in_.AtInt()) return absl::OkStatus();
    return ReadNumber("the global size of the dimension", &dim->size);
  }

  absl::Status ReadPlaceholder(WrittenDim* dim) {
    if (shape_ == nullptr) {
      return in_.Error(dim->column, "'*' and '...' stand for sizes only in layout rules; a layout gives them");
    }
    if (in_.Take('*')) {
      dim->kind = WrittenDim::Kind::kAny;
      return absl::OkStatus();
    }
    if (!in_.Take("...")) return in_.Expected("'...'");
    if (has_rest_) return in_.Error(dim->column, "'...' is there twice");
    has_rest_ = true;
    dim->kind = WrittenDim::Kind::kRest;
    return absl::OkStatus();
  }

  absl::Status ReadNumber(std::string_view what, std::optional<Number>* out) {
    const size_t column = in_.column();
    const absl::StatusOr<int64_t> value = in_.Int(what);
    if (!value.ok()) return value.status();
    *out = Number{*value, column};
    return absl::OkStatus();
  }

  absl::Status ReadFactors(char close, WrittenDim* dim) {
    if (in_.Take(close)) return absl::OkStatus();
    do {
      const size_t column = in_.column();
      if (++num_factors_ > LayoutRules::kMaxFactors) {
        return in_.Error(column, absl::StrCat("the layout has more than ", LayoutRules::kMaxFactors, " factors"));
      }
      Factor factor;
      if (absl::Status s = ReadFactor(&factor); !s.ok()) return s;
      dim->draft.Add(std::move(factor), column);
    } while (in_.Take(','));
    return in_.Expect(close);
  }

  absl::Status ReadFactor(Factor* factor) {
    if (in_.AtInt()) {
      factor->kind = Factor::Kind::kDigit;
      const absl::StatusOr<int64_t> digit = in_.Int("a digit");
      if (!digit.ok()) return digit.status();
      factor->digit = *digit;
      return absl::OkStatus();
    }
    if (in_.Take('~')) factor->kind = Factor::Kind::kReflected;
    bool is_sub = false;
    if (absl::Status s = ReadAxis(factor->kind == Factor::Kind::kReflected ? "the name of an axis" : "a factor",
                                  &factor->axis, &is_sub);
        !s.ok()) {
      return s;
    }
    factor->written_as_sub = is_sub;
    if (factor->kind == Factor::Kind::kReflected || is_sub || !in_.Take('=')) return absl::OkStatus();
    factor->kind = Factor::Kind::kSizes;
    if (absl::Status s = in_.Expect('['); !s.ok()) return s;
    do {
      const absl::StatusOr<int64_t> size = in_.Int("a size");
      if (!size.ok()) return size.status();
      factor->sizes.push_back(*size);
    } while (in_.Take(','));
    return in_.Expect(']');
  }

  // NAME or NAME:(pre)size.
  absl::Status ReadAxis(std::string_view what, AxisRef* ref, bool* is_sub) {
    const size_t column = in_.column();
    const absl::StatusOr<std::string_view> name = in_.Name(what);
    if (!name.ok()) return name.status();
    const absl::StatusOr<AxisRef> axis = FindAxis(in_, column, *name, *mesh_);
    if (!axis.ok()) return axis.status();
    *ref = *axis;
    const absl::StatusOr<bool> part = ReadPart(in_, ref);
    if (!part.ok()) return part.status();
    *is_sub = *part;
    return absl::OkStatus();
  }

  absl::Status ReadPending() {
    if (in_.AtEnd()) return absl::OkStatus();
    const size_t column = in_.column();
    const absl::StatusOr<std::string_view> name = in_.Name("the end, or sum, avg, min, max or prod");
    if (!name.ok()) return name.status();
    const ReduceOp ops[] = {ReduceOp::kSum, ReduceOp::kAvg, ReduceOp::kMin, ReduceOp::kMax, ReduceOp::kProd};
    const auto* const op = std::find_if(std::begin(ops), std::end(ops), [&](ReduceOp o) { return Name(o) == *name; });
    if (op == std::end(ops)) {
      return in_.Error(
          column, absl::StrCat("unknown reduction \"", Printable(*name), "\"; there are sum, avg, min, max and prod"));
    }
    draft_.op = *op;
    const bool angle = in_.Take('<');
    if (!angle && !in_.Take('{')) return in_.Expected("'<'");
    do {
      const size_t at = in_.column();
      if (++num_factors_ > LayoutRules::kMaxFactors) {
        return in_.Error(at, absl::StrCat("the layout has more than ", LayoutRules::kMaxFactors, " factors"));
      }
      AxisRef ref;
      bool is_sub = false;
      if (absl::Status s = ReadAxis("an axis", &ref, &is_sub); !s.ok()) return s;
      draft_.pending.push_back({ref, at});
    } while (in_.Take(','));
    return in_.Expect(angle ? '>' : '}');
  }

  // Gives every dimension of a rule its size, and `...` its dimensions.
  absl::Status FitToShape() {
    const size_t rank = shape_->size();
    const size_t written = dims_.size() - (has_rest_ ? 1 : 0);
    if (has_rest_ ? written > rank : written != rank) {
      return in_.Error(0, absl::StrCat("the rule has ", has_rest_ ? "at least " : "", written,
                                       written == 1 ? " dimension" : " dimensions", " but the tensor has ", rank));
    }
    std::vector<WrittenDim> fitted;
    fitted.reserve(rank);
    for (WrittenDim& dim : dims_) {
      const size_t repeat = dim.kind == WrittenDim::Kind::kRest ? rank - written : 1;
      for (size_t i = 0; i < repeat; ++i) {
        const int64_t size = (*shape_)[fitted.size()];
        if (dim.size && dim.size->value != size) {
          return in_.Error(dim.size->column, absl::StrCat("dimension ", fitted.size(), " of the tensor has ", size,
                                                          " elements, not ", dim.size->value));
        }
        fitted.push_back(dim);
        fitted.back().size = Number{size, dim.column};
      }
    }
    dims_ = std::move(fitted);
    return absl::OkStatus();
  }

  absl::StatusOr<Layout> Build() {
    for (WrittenDim& dim : dims_) {
      dim.draft.size = dim.size->value;
      dim.draft.size_column = dim.size->column;
      draft_.dims.push_back(std::move(dim.draft));
    }
    absl::StatusOr<Layout> layout = draft_.Build(in_, mesh_);
    if (!layout.ok()) return layout;
    const std::vector<int64_t> local = layout->MaxLocalShape();
    for (size_t d = 0; d < dims_.size(); ++d) {
      const std::optional<Number>& given = dims_[d].local;
      if (given && given->value != local[d]) {
        return in_.Error(given->column,
                         absl::StrCat("the local size is ", local[d], " (the largest shard), not ", given->value));
      }
    }
    return layout;
  }

  Scanner in_;
  const std::shared_ptr<const Mesh> mesh_;
  const std::vector<int64_t>* const shape_;
  std::vector<WrittenDim> dims_;
  bool has_rest_ = false;
  int num_factors_ = 0;
  LayoutDraft draft_;  // the pending reduction, and at the end the dimensions
};

}  // namespace

absl::StatusOr<Layout> ParseLayout(std::string_view text, std::shared_ptr<const Mesh> mesh) {
  if (mesh == nullptr) return absl::InvalidArgumentError("a layout needs a mesh");
  return LayoutReader(text, std::move(mesh), nullptr).Read();
}

absl::StatusOr<Layout> ParseLayoutRule(std::string_view text, std::shared_ptr<const Mesh> mesh,
                                       const std::vector<int64_t>& shape) {
  if (mesh == nullptr) return absl::InvalidArgumentError("a layout needs a mesh");
  return LayoutReader(text, std::move(mesh), &shape).Read();
}

}  // namespace reshard
