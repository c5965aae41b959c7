#include "layout/notation/dtensor_dim.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "layout/notation/foreign.h"
#include "status/macros.h"

namespace reshard::notation {

template <typename Take>
std::optional<size_t> DTensorDim::Walk(size_t at, int64_t product, size_t column, Take take) {
  for (; product > 1; ++at) {
    while (at < digits_.size() && !digits_[at].kept()) ++at;
    if (at == digits_.size()) digits_.push_back({product, -1, 1, column});
    const int64_t size = digits_[at].size;
    if (size > product && size % product == 0) {
      digits_[at].size = product;
      digits_.insert(digits_.begin() + static_cast<std::ptrdiff_t>(at) + 1, {size / product, -1, 1, column});
    } else if (product % size != 0) {
      return std::nullopt;
    }
    product /= digits_[at].size;
    take(digits_[at]);
  }
  return at;
}

std::optional<std::string> DTensorDim::Split(int axis, int64_t parts, int64_t split_factor, size_t column) {
  const bool several_blocks = std::any_of(digits_.begin(), digits_.end(), [](const Digit& d) { return d.kept(); });
  if (parts == 1) {
    // Splits nothing; shown where that does no harm.
    if (!several_blocks) digits_.push_back({1, axis, 1, column});
    return std::nullopt;
  }
  int64_t pre = 1;
  const std::optional<size_t> behind_blocks = Walk(0, split_factor, column, [](Digit&) {});
  const bool done = behind_blocks && Walk(*behind_blocks, parts, column, [&](Digit& digit) {
                      digit.axis = axis;
                      digit.pre = pre;
                      digit.column = column;
                      pre *= digit.size;
                    });
  if (!done) return "does not fit the blocks that the strided splits before it leave";
  if (several_blocks) {
    int64_t rest = size_;
    for (const Digit& digit : digits_) {
      if (rest % digit.size != 0) {
        return absl::StrCat(
            "comes after a strided split, which is exact only where everything divides evenly, and not ", size_,
            " elements");
      }
      rest /= digit.size;
    }
  }
  return std::nullopt;
}

void DTensorDim::MoveTo(layout::LayoutDraft::Dim* dim) {
  // Digits are torn apart only where everything divides evenly, so that neighbors may be joined again.
  std::vector<Digit> joined;
  for (const Digit& digit : digits_) {
    Digit* last = joined.empty() ? nullptr : &joined.back();
    if (last != nullptr && last->axis == digit.axis && (digit.kept() || last->pre * last->size == digit.pre)) {
      last->size *= digit.size;
    } else {
      joined.push_back(digit);
    }
  }
  for (const Digit& digit : joined) {
    Factor factor;
    if (digit.kept()) {
      factor.kind = Factor::Kind::kBlocks;
      factor.blocks = digit.size;
    } else {
      factor.axis = {digit.axis, digit.pre, digit.size};
    }
    dim->Add(std::move(factor), digit.column);
  }
  digits_.clear();
}

namespace {

// The factors of one dimension, all of which are whole axes, by shard order.
void PlaceByOrder(const std::vector<Factor>& factors, int d, std::vector<std::string>* placements) {
  for (size_t k = 0; k < factors.size(); ++k) {
    std::string& placement = (*placements)[factors[k].axis.axis];
    placement = absl::StrCat("S(", d, ")");
    if (factors.size() > 1) absl::StrAppend(&placement, "[", k, "]");
  }
}

// The mesh axes split left to right. What an axis finds in front of its place and not yet split off is its split
// factor; all parts of the axis must be next to each other in what is left then.
absl::Status PlaceByFactors(const Mesh& mesh, const std::vector<Factor>& factors, int d,
                            std::vector<std::string>* placements) {
  for (int axis = 0; axis < mesh.num_axes(); ++axis) {
    int64_t split_factor = 1;
    int64_t taken = 1;
    bool between = false;
    for (const Factor& factor : factors) {
      if (factor.has_axis() && factor.axis.axis < axis) continue;
      if (factor.has_axis() && factor.axis.axis == axis) {
        if (between || factor.axis.pre != taken) return CannotSay("DTensor", "this order of the parts of an axis");
        taken *= factor.axis.size;
      } else if (taken == 1) {
        split_factor *= factor.parts();
      } else {
        between = true;
      }
    }
    if (taken == 1) continue;
    if (taken != mesh.axis(axis).size) return CannotSay("DTensor", "a part of an axis");
    (*placements)[axis] =
        split_factor == 1 ? absl::StrCat("S(", d, ")") : absl::StrCat("_S(", d, ", ", split_factor, ")");
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::vector<std::string>> DTensorPlacements(const Layout& layout) {
  const Mesh& mesh = layout.mesh();
  std::vector<std::string> placements(static_cast<size_t>(mesh.num_axes()), "R");
  std::vector<std::vector<Factor>> dims;
  bool whole_axes = true;
  for (int d = 0; d < layout.rank(); ++d) {
    ASSIGN_OR_RETURN(std::vector<Factor> factors, PlainFactors(layout, d, "DTensor"));
    whole_axes = whole_axes && std::all_of(factors.begin(), factors.end(), [&](const Factor& f) {
                   return f.has_axis() && f.axis.size == mesh.axis(f.axis.axis).size;
                 });
    dims.push_back(std::move(factors));
  }
  for (int d = 0; d < layout.rank(); ++d) {
    const std::vector<Factor>& factors = dims[d];
    if (whole_axes) {
      PlaceByOrder(factors, d, &placements);
    } else {
      RETURN_IF_ERROR(PlaceByFactors(mesh, factors, d, &placements));
    }
  }
  return placements;
}

}  // namespace reshard::notation
