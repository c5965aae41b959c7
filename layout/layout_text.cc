// Reads layouts and layout rules: one pass over the text, no recursion.
#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "layout/draft.h"
#include "layout/names.h"
#include "layout/rules.h"
#include "layout/scanner.h"
#include "reshard/layout/text.h"
#include "status/macros.h"

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
  layout::LayoutDraft::Dim draft;
};

class LayoutReader {
 public:
  // `shape` is null for a layout, the tensor's shape for a rule.
  LayoutReader(std::string_view text, const Mesh& mesh, const std::vector<int64_t>* shape, bool any_rank = false)
      : in_(text), mesh_(mesh), shape_(shape), any_rank_(any_rank) {}

  // All that the text says without a shape.
  absl::Status Check() {
    RETURN_IF_ERROR(ReadDims());
    RETURN_IF_ERROR(ReadPartial());
    return in_.ExpectEnd();
  }

  absl::StatusOr<Layout> Read() {
    RETURN_IF_ERROR(Check());
    if (shape_ != nullptr) {
      RETURN_IF_ERROR(FitToShape());
    }
    return Build();
  }

 private:
  absl::Status ReadDims() {
    RETURN_IF_ERROR(in_.Expect('['));
    if (in_.Take(']')) return absl::OkStatus();
    do {
      // Rest dimensions do not count: `[..., *]` of rank kMaxRank has one item more.
      if (dims_.size() > static_cast<size_t>(kMaxRank)) {
        return in_.Error(in_.column(), absl::StrCat("the layout has more than ", kMaxRank, " dimensions"));
      }
      WrittenDim dim;
      RETURN_IF_ERROR(ReadDim(&dim));
      dims_.push_back(std::move(dim));
    } while (in_.Take(','));
    return in_.Expect(']');
  }

  absl::Status ReadDim(WrittenDim* dim) {
    dim->column = in_.column();
    if (in_.Peek() == '*' || in_.Peek() == '.') return ReadPlaceholder(dim);
    std::optional<Number> first;
    if (in_.AtInt()) {
      RETURN_IF_ERROR(ReadNumber("a size", &first));
    }
    const bool angle = in_.Take('<');
    if (angle || in_.Take('{')) {
      const char close = angle ? '>' : '}';
      RETURN_IF_ERROR(ReadFactors(close, dim));
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
    if (has_rest_) return in_.Error(dim->column, "'...' appears twice");
    has_rest_ = true;
    dim->kind = WrittenDim::Kind::kRest;
    return absl::OkStatus();
  }

  absl::Status ReadNumber(std::string_view what, std::optional<Number>* out) {
    const size_t column = in_.column();
    ASSIGN_OR_RETURN(const int64_t value, in_.Int(what));
    *out = Number{value, column};
    return absl::OkStatus();
  }

  absl::Status ReadFactors(char close, WrittenDim* dim) {
    if (in_.Peek() == close) return in_.Expected("a factor");
    do {
      const size_t column = in_.column();
      if (++num_factors_ > layout::LayoutRules::kMaxFactors) {
        return in_.Error(column,
                         absl::StrCat("the layout has more than ", layout::LayoutRules::kMaxFactors, " factors"));
      }
      Factor factor;
      RETURN_IF_ERROR(ReadFactor(&factor));
      dim->draft.Add(std::move(factor), column);
    } while (in_.Take(','));
    return in_.Expect(close);
  }

  absl::Status ReadFactor(Factor* factor) {
    if (in_.AtInt()) {
      factor->kind = Factor::Kind::kBlocks;
      const absl::StatusOr<int64_t> digit = in_.Int("a digit");
      if (!digit.ok()) return digit.status();
      factor->blocks = *digit;
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
    if (in_.Peek() == '{') return ReadSlots(factor);
    factor->kind = Factor::Kind::kSizes;
    RETURN_IF_ERROR(in_.Expect('['));
    do {
      const absl::StatusOr<int64_t> size = in_.Int("a size");
      if (!size.ok()) return size.status();
      factor->sizes.push_back(*size);
    } while (in_.Take(','));
    return in_.Expect(']');
  }

  // {5,6|0-3||7}: what fills the slots of each coordinate, a range with both its ends.
  absl::Status ReadSlots(Factor* factor) {
    factor->kind = Factor::Kind::kSlots;
    RETURN_IF_ERROR(in_.Expect('{'));
    do {
      std::vector<Interval>& runs = factor->slots.emplace_back();
      if (in_.Peek() == '|' || in_.Peek() == '}') continue;
      do {
        const size_t column = in_.column();
        ASSIGN_OR_RETURN(const int64_t first, in_.Int("an index"));
        int64_t last = first;
        if (in_.Take('-')) {
          ASSIGN_OR_RETURN(last, in_.Int("the last index of the range"));
        }
        if (last < first) return in_.Error(column, absl::StrCat("the range ", first, "-", last, " is empty"));
        if (last == INT64_MAX) return in_.Error(column, absl::StrCat("the index ", last, " is too large"));
        runs.push_back({first, last + 1});
      } while (in_.Take(','));
    } while (in_.Take('|'));
    return in_.Expect('}');
  }

  // NAME or NAME:(pre)size.
  absl::Status ReadAxis(std::string_view what, AxisRef* ref, bool* is_sub) {
    const size_t column = in_.column();
    ASSIGN_OR_RETURN(const std::string_view name, in_.Name(what));
    ASSIGN_OR_RETURN(const AxisRef axis, layout::FindAxis(in_, column, name, mesh_));
    *ref = axis;
    ASSIGN_OR_RETURN(const bool part, layout::ReadPart(in_, ref));
    *is_sub = part;
    return absl::OkStatus();
  }

  absl::Status ReadPartial() {
    if (in_.AtEnd()) return absl::OkStatus();
    const size_t column = in_.column();
    ASSIGN_OR_RETURN(const std::string_view name, in_.Name("the end, or sum, avg, min, max or prod"));
    const std::optional<ReduceOp> op = FindReduceOp(name);
    if (!op) {
      return in_.Error(column, absl::StrCat("unknown reduction \"", layout::Printable(name),
                                            "\"; there are sum, avg, min, max and prod"));
    }
    draft_.op = *op;
    const bool angle = in_.Take('<');
    if (!angle && !in_.Take('{')) return in_.Expected("'<'");
    do {
      const size_t at = in_.column();
      if (++num_factors_ > layout::LayoutRules::kMaxFactors) {
        return in_.Error(at, absl::StrCat("the layout has more than ", layout::LayoutRules::kMaxFactors, " factors"));
      }
      AxisRef ref;
      bool is_sub = false;
      RETURN_IF_ERROR(ReadAxis("an axis", &ref, &is_sub));
      draft_.partial.push_back({ref, at});
    } while (in_.Take(','));
    return in_.Expect(angle ? '>' : '}');
  }

  // Takes dimensions away until there are no more than `rank`, or the next one gives a size.
  void DropTo(size_t rank) {
    const bool from_end = dims_.empty() || dims_.front().kind != WrittenDim::Kind::kRest;
    while (dims_.size() - (has_rest_ ? 1 : 0) > rank) {
      const auto next = from_end ? dims_.end() - 1 : dims_.begin() + 1;
      if (next->size || next->local) return;
      if (next->kind == WrittenDim::Kind::kRest) has_rest_ = false;
      dims_.erase(next);
    }
  }

  // Gives every dimension of a rule its size, and `...` its dimensions.
  absl::Status FitToShape() {
    const size_t rank = shape_->size();
    if (any_rank_) DropTo(rank);
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

  layout::Scanner in_;
  const Mesh mesh_;
  const std::vector<int64_t>* const shape_;
  const bool any_rank_;
  std::vector<WrittenDim> dims_;
  bool has_rest_ = false;
  int num_factors_ = 0;
  layout::LayoutDraft draft_;  // the partial reduction, and at the end the dimensions
};

}  // namespace

absl::StatusOr<Layout> ParseLayout(std::string_view text, const Mesh& mesh) {
  return LayoutReader(text, mesh, nullptr).Read();
}

absl::StatusOr<Layout> ParseLayout(std::string_view text, std::string_view mesh) {
  ASSIGN_OR_RETURN(const Mesh parsed, ParseMesh(mesh));
  return ParseLayout(text, parsed);
}

absl::Status CheckLayoutRule(std::string_view text, const Mesh& mesh) {
  const std::vector<int64_t> any_shape;
  return LayoutReader(text, mesh, &any_shape).Check();
}

absl::StatusOr<Layout> ParseLayoutRule(std::string_view text, const Mesh& mesh, const std::vector<int64_t>& shape) {
  return LayoutReader(text, mesh, &shape).Read();
}

absl::StatusOr<Layout> ParseLayoutRuleForAnyRank(std::string_view text, const Mesh& mesh,
                                                 const std::vector<int64_t>& shape) {
  return LayoutReader(text, mesh, &shape, true).Read();
}

}  // namespace reshard
