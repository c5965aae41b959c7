#include "layout/notation/foreign.h"

#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "layout/axes.h"
#include "layout/cut.h"
#include "layout/names.h"
#include "reshard/layout/checked.h"
#include "reshard/layout/text.h"
#include "status/macros.h"

namespace reshard::notation {
namespace {

// True when cutting n elements over these sizes one by one gives the same shards as cutting them in one go.
bool SameInOneGo(int64_t n, const std::vector<int64_t>& sizes) {
  int64_t shards = 1;
  for (const int64_t size : sizes) shards *= size;
  if (n % shards == 0) return true;
  for (int64_t k = 0; k < shards; ++k) {
    Interval one_by_one{0, n};
    int64_t left = shards;
    for (const int64_t size : sizes) {
      left /= size;
      one_by_one = layout::CeilChunk(one_by_one, size, k / left % size);
    }
    const Interval in_one_go = layout::CeilChunk({0, n}, shards, k);
    if (one_by_one.length() == 0 && in_one_go.length() == 0) continue;
    if (one_by_one != in_one_go) return false;
  }
  return true;
}

// True when the explicit sizes are those that the plain axis would give.
bool UsualSizes(const Factor& factor) {
  int64_t length = 0;
  for (const int64_t size : factor.sizes) length += size;
  for (int64_t j = 0; j < factor.axis.size; ++j) {
    if (layout::CeilChunk({0, length}, factor.axis.size, j).length() != factor.sizes[j]) return false;
  }
  return true;
}

}  // namespace

absl::Status CheckCutInOneGo(const layout::Scanner& in, const Layout& layout, std::string_view notation) {
  for (int d = 0; d < layout.rank(); ++d) {
    const DimLayout& dim = layout.dim(d);
    std::vector<int64_t> sizes;
    for (const Factor& factor : dim.factors) sizes.push_back(factor.parts());
    if (SameInOneGo(dim.size, sizes)) continue;
    return in.Unsupported(0,
                          absl::StrCat("dimension ", d, " of ", dim.size,
                                       " elements is uneven over several axes: ", std::string(notation),
                                       " cuts over all of them in one go, a layout axis by axis, with other shards"));
  }
  return absl::OkStatus();
}

absl::Status CannotSay(std::string_view notation, std::string_view what) {
  return absl::UnimplementedError(absl::StrCat(std::string(notation), " cannot say ", std::string(what)));
}

absl::StatusOr<std::vector<Factor>> PlainFactors(const Layout& layout, int d, std::string_view notation) {
  std::vector<Factor> plain;
  bool behind_digit = false;
  for (const Factor* factor : layout::EffectiveFactors(layout.dim(d))) {
    if (factor->kind == Factor::Kind::kBlocks) {
      behind_digit = true;
      plain.push_back(*factor);
      continue;
    }
    // Without digits there is one interval, number 0, and nothing is reflected.
    if (factor->kind == Factor::Kind::kReflected && behind_digit) return CannotSay(notation, "reflected axes");
    if (factor->kind == Factor::Kind::kSlots) return CannotSay(notation, "slot tables");
    if (factor->kind == Factor::Kind::kSizes && !UsualSizes(*factor)) return CannotSay(notation, "explicit sizes");
    AxisRef ref = factor->axis;
    if (!plain.empty() && plain.back().has_axis()) {
      const std::vector<AxisRef> joined = layout::JoinParts({plain.back().axis, ref});
      if (joined.size() == 1) {
        ref = joined[0];
        plain.pop_back();
      }
    }
    Factor axis;
    axis.axis = ref;
    plain.push_back(std::move(axis));
  }
  return plain;
}

absl::StatusOr<std::vector<AxisRef>> OnlyAxes(const Layout& layout, int d, std::string_view notation) {
  ASSIGN_OR_RETURN(const std::vector<Factor> factors, PlainFactors(layout, d, notation));
  std::vector<AxisRef> refs;
  for (const Factor& factor : factors) {
    if (!factor.has_axis()) return CannotSay(notation, "that a device holds several blocks of a dimension");
    refs.push_back(factor.axis);
  }
  return refs;
}

absl::StatusOr<std::vector<AxisRef>> OnlySums(const Layout& layout, std::string_view notation) {
  std::vector<AxisRef> refs = layout::PartialAxes(layout);
  if (!refs.empty() && layout.partial()->op != ReduceOp::kSum) {
    return CannotSay(notation, absl::StrCat("partial ", Name(layout.partial()->op), ", only partial sums"));
  }
  return refs;
}

absl::Status CheckWhole(const Mesh& mesh, const std::vector<AxisRef>& refs, std::string_view notation) {
  for (const AxisRef& ref : refs) {
    if (ref.size != mesh.axis(ref.axis).size) {
      return CannotSay(notation, absl::StrCat("a part of an axis (", layout::Printable(ToString(mesh, ref)), ")"));
    }
  }
  return absl::OkStatus();
}

}  // namespace reshard::notation
