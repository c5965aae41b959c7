// Reads layouts and layout rules: one pass over the text. Only flattened dimensions recurse, kMaxFlattened deep.
#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "layout/cut.h"
#include "layout/draft.h"
#include "layout/names.h"
#include "layout/rules.h"
#include "layout/scanner.h"
#include "reshard/layout/checked.h"
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
  // kAny is `*`, kRest is `...`: both only in rules. kGone: the tensor has too few dimensions for it.
  enum class Kind { kSized, kAny, kRest, kGone };
  Kind kind = Kind::kSized;
  size_t column = 0;
  std::optional<Number> local;
  std::optional<Number> size;
  bool flattens = false;
  std::vector<WrittenDim> flattened;
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
    RETURN_IF_ERROR(ReadDimList(dims_, 0));
    return in_.Expect(']');
  }

  absl::Status ReadDimList(std::vector<WrittenDim>& dims, int depth) {
    do {
      // Rest dimensions do not count: `[..., *]` of rank kMaxRank has one item more.
      if (num_dims_++ > kMaxRank) {
        return in_.Error(in_.column(), absl::StrCat("the layout has more than ", kMaxRank, " dimensions"));
      }
      WrittenDim dim;
      RETURN_IF_ERROR(ReadDim(&dim, depth));
      dims.push_back(std::move(dim));
    } while (in_.Take(','));
    return absl::OkStatus();
  }

  absl::Status ReadDim(WrittenDim* dim, int depth) {
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
    } else if (in_.Peek() != '(' && !first) {
      return in_.Expected("a dimension");
    } else if (in_.Peek() != '(' && !in_.AtInt()) {
      dim->size = first;
      return absl::OkStatus();
    }
    dim->local = first;
    if (in_.Peek() == '(') return ReadFlattened(dim, depth);
    if (shape_ != nullptr && !in_.AtInt()) return absl::OkStatus();
    return ReadNumber("the global size of the dimension", &dim->size);
  }

  // (512, <tp>128)
  absl::Status ReadFlattened(WrittenDim* dim, int depth) {
    if (depth == kMaxFlattened) {
      return in_.Error(in_.column(), absl::StrCat("dimensions are flattened more than ", kMaxFlattened, " deep"));
    }
    dim->flattens = true;
    RETURN_IF_ERROR(in_.Expect('('));
    RETURN_IF_ERROR(ReadDimList(dim->flattened, depth + 1));
    return in_.Expect(')');
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
    RETURN_IF_ERROR(in_.Expect(']'));
    if (!in_.Take('*')) return absl::OkStatus();
    // In units of this many elements.
    const size_t column = in_.column();
    ASSIGN_OR_RETURN(const int64_t unit, in_.Int("the elements of a unit"));
    for (int64_t& size : factor->sizes) {
      const std::optional<int64_t> elements = CheckedMul(size, unit);
      if (!elements) return in_.Error(column, "the explicit sizes do not fit a signed 64-bit integer");
      size = *elements;
    }
    return absl::OkStatus();
  }

  // {5,6|0-3||7}: what fills the slots of each coordinate; a range includes both its ends.
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

  // The dimensions that stand for dimensions of the tensor, in order.
  static void Leaves(std::vector<WrittenDim>& dims, std::vector<WrittenDim*>& out) {
    for (WrittenDim& dim : dims) {
      if (dim.flattens) {
        Leaves(dim.flattened, out);
      } else {
        out.push_back(&dim);
      }
    }
  }

  // Takes dimensions away until there are no more than `rank`, or the next one gives a size.
  void DropTo(size_t rank) {
    std::vector<WrittenDim*> leaves;
    Leaves(dims_, leaves);
    const bool from_end = leaves.empty() || leaves.front()->kind != WrittenDim::Kind::kRest;
    while (leaves.size() - (has_rest_ ? 1 : 0) > rank) {
      const auto next = from_end ? leaves.end() - 1 : leaves.begin() + 1;
      if ((*next)->size || (*next)->local) return;
      if ((*next)->kind == WrittenDim::Kind::kRest) has_rest_ = false;
      (*next)->kind = WrittenDim::Kind::kGone;
      leaves.erase(next);
    }
  }

  // Gives the dimensions what the tensor has for each, and drops those of which nothing is left.
  absl::Status Fit(std::vector<WrittenDim>& dims, size_t rest, size_t& next) const {
    std::vector<WrittenDim> fitted;
    fitted.reserve(dims.size() + rest);
    for (WrittenDim& dim : dims) {
      if (dim.flattens) {
        RETURN_IF_ERROR(Fit(dim.flattened, rest, next));
        if (!dim.flattened.empty()) fitted.push_back(std::move(dim));
        continue;
      }
      const bool gone = dim.kind == WrittenDim::Kind::kGone;
      const size_t repeat = gone ? 0 : dim.kind == WrittenDim::Kind::kRest ? rest : 1;
      for (size_t i = 0; i < repeat; ++i, ++next) {
        const int64_t size = (*shape_)[next];
        if (dim.size && dim.size->value != size) {
          return in_.Error(dim.size->column, absl::StrCat("dimension ", next, " of the tensor has ", size,
                                                          " elements, not ", dim.size->value));
        }
        fitted.push_back(dim);
        fitted.back().size = Number{size, dim.column};
      }
    }
    dims = std::move(fitted);
    return absl::OkStatus();
  }

  // Gives every dimension of a rule its size, and `...` its dimensions.
  absl::Status FitToShape() {
    const size_t rank = shape_->size();
    if (any_rank_) DropTo(rank);
    std::vector<WrittenDim*> leaves;
    Leaves(dims_, leaves);
    std::erase_if(leaves, [](const WrittenDim* dim) { return dim->kind == WrittenDim::Kind::kGone; });
    const size_t written = leaves.size() - (has_rest_ ? 1 : 0);
    if (has_rest_ ? written > rank : written != rank) {
      return in_.Error(0, absl::StrCat("the rule has ", has_rest_ ? "at least " : "", written,
                                       written == 1 ? " dimension" : " dimensions", " but the tensor has ", rank));
    }
    size_t next = 0;
    return Fit(dims_, rank - written, next);
  }

  static layout::LayoutDraft::Dim Draft(WrittenDim& dim) {
    dim.draft.size = dim.flattens ? 0 : dim.size->value;
    dim.draft.size_column = dim.flattens ? dim.column : dim.size->column;
    for (WrittenDim& inner : dim.flattened) dim.draft.flattened.push_back(Draft(inner));
    return std::move(dim.draft);
  }

  // Whether the local sizes that the text gives are the largest ones.
  absl::Status CheckLocalSizes(const std::vector<WrittenDim>& written, const std::vector<DimLayout>& dims) const {
    for (size_t d = 0; d < written.size(); ++d) {
      const std::optional<Number>& given = written[d].local;
      const int64_t local = given ? layout::LargestShard(dims[d]) : 0;
      if (given && given->value != local) {
        return in_.Error(given->column,
                         absl::StrCat("the local size is ", local, " (the largest shard), not ", given->value));
      }
      RETURN_IF_ERROR(CheckLocalSizes(written[d].flattened, dims[d].flattened));
    }
    return absl::OkStatus();
  }

  absl::StatusOr<Layout> Build() {
    for (WrittenDim& dim : dims_) draft_.dims.push_back(Draft(dim));
    absl::StatusOr<Layout> layout = draft_.Build(in_, mesh_);
    if (layout.ok()) RETURN_IF_ERROR(CheckLocalSizes(dims_, layout->dims()));
    return layout;
  }

  layout::Scanner in_;
  const Mesh mesh_;
  const std::vector<int64_t>* const shape_;
  const bool any_rank_;
  std::vector<WrittenDim> dims_;
  bool has_rest_ = false;
  int num_dims_ = 0;
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
