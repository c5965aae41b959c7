#include "runtime/host/reduce.h"

#include <algorithm>
#include <cassert>
#include <cstddef>
#include <vector>

#include "absl/strings/str_cat.h"
#include "runtime/host/reduce_kernels.h"
#include "runtime/host/stream_rows.h"
#include "status/view.h"

namespace reshard::host {
namespace {

// Dimensions of size 1 are dropped, and a dimension that continues the one inside it on every side is merged into it.
struct Collapsed {
  Dims shape;
  Dims out_strides;
  std::vector<Dims> in_strides;  // one per contribution
};

Collapsed Collapse(absl::Span<const int64_t> box, absl::Span<const Contribution> contributions,
                   absl::Span<const int64_t> out_strides) {
  Collapsed c;
  c.in_strides.resize(contributions.size());
  // Built innermost first, turned around at the end.
  for (size_t d = box.size(); d-- > 0;) {
    if (box[d] == 1) continue;
    bool continues = !c.shape.empty() && out_strides[d] == c.shape.back() * c.out_strides.back();
    for (size_t k = 0; continues && k < contributions.size(); ++k) {
      continues = contributions[k].strides[d] == c.shape.back() * c.in_strides[k].back();
    }
    if (continues) {
      c.shape.back() *= box[d];
      continue;
    }
    c.shape.push_back(box[d]);
    c.out_strides.push_back(out_strides[d]);
    for (size_t k = 0; k < contributions.size(); ++k) c.in_strides[k].push_back(contributions[k].strides[d]);
  }
  if (c.shape.empty()) {
    c.shape.push_back(1);
    c.out_strides.push_back(1);
    for (Dims& strides : c.in_strides) strides.push_back(1);
  }
  const auto turn = [](Dims& dims) { std::reverse(dims.begin(), dims.end()); };
  turn(c.shape);
  turn(c.out_strides);
  for (Dims& strides : c.in_strides) turn(strides);
  return c;
}

}  // namespace

absl::Status CheckReduction(ReduceOp op, DType dtype) {
  const std::string what = absl::StrCat(Name(op), " of ", status::View(Name(dtype)));
  if (!IsComputable(dtype)) {
    return absl::InvalidArgumentError(absl::StrCat(what, ": elements of this type are moved, not computed with"));
  }
  switch (dtype) {
    case DType::kC64:
    case DType::kC128:
      if (op == ReduceOp::kMin || op == ReduceOp::kMax) {
        return absl::InvalidArgumentError(absl::StrCat(what, ": complex numbers have no order"));
      }
      return absl::OkStatus();
    case DType::kBool:
      if (op == ReduceOp::kAvg) return absl::InvalidArgumentError(absl::StrCat(what, ": bools have no average"));
      return absl::OkStatus();
    default:
      return absl::OkStatus();
  }
}

void ReduceBox(ReduceOp op, DType dtype, absl::Span<const int64_t> box, absl::Span<const Contribution> contributions,
               void* out, absl::Span<const int64_t> out_strides, CopyMode mode) {
  if (NumElements(box) == 0) return;
  assert(!contributions.empty() && CheckReduction(op, dtype).ok());
  const ReduceRowFn reduce_row = ReduceRowKernel(op, dtype);
  const int64_t size = SizeOf(dtype);
  const Collapsed c = Collapse(box, contributions, out_strides);
  const size_t inner = c.shape.size() - 1;
  // Waiting for what was streamed costs more than a short row.
  constexpr int64_t kShortestStreamed = 4096;
  if (c.shape[inner] * size < kShortestStreamed) mode = CopyMode::kCached;

  std::vector<const char*> in(contributions.size());
  std::vector<int64_t> in_steps(contributions.size());
  for (size_t k = 0; k < in.size(); ++k) {
    in[k] = static_cast<const char*>(contributions[k].data);
    in_steps[k] = c.in_strides[k][inner] * size;
  }
  char* to = static_cast<char*>(out);
  Dims index(inner, 0);
  while (true) {
    reduce_row(in.data(), in_steps.data(), in.size(), to, c.out_strides[inner] * size, c.shape[inner], mode);
    // The next row: the odometer over all dimensions but the inner one.
    size_t d = inner;
    while (d-- > 0) {
      const bool carry = ++index[d] == c.shape[d];
      const int64_t steps = carry ? 1 - c.shape[d] : 1;
      if (carry) index[d] = 0;
      for (size_t k = 0; k < in.size(); ++k) in[k] += steps * c.in_strides[k][d] * size;
      to += steps * c.out_strides[d] * size;
      if (!carry) break;
    }
    if (d == static_cast<size_t>(-1)) break;
  }
  if (mode == CopyMode::kStreaming) FinishStreaming();
}

void ForEachBox(absl::Span<const int64_t> shape, int64_t begin, int64_t end, VisitBox visit) {
  if (begin >= end) return;
  if (shape.empty()) return visit({}, {});
  Dims inner(shape.size(), 1);  // elements behind one index of the dimension
  for (size_t d = shape.size() - 1; d-- > 0;) inner[d] = inner[d + 1] * shape[d + 1];
  Dims offset(shape.size());
  Dims sizes(shape.size());
  while (begin < end) {
    // The largest box that starts here: whole inner dimensions as long as `begin` is aligned to them and they fit.
    size_t d = shape.size() - 1;
    while (d > 0 && begin % inner[d - 1] == 0 && end - begin >= inner[d - 1]) --d;
    int64_t rest = begin;
    for (size_t e = 0; e < shape.size(); ++e) {
      offset[e] = rest / inner[e];
      rest %= inner[e];
      sizes[e] = e < d ? 1 : shape[e];
    }
    sizes[d] = std::min(shape[d] - offset[d], (end - begin) / inner[d]);
    visit(offset, sizes);
    begin += sizes[d] * inner[d];
  }
}

void ForEachMappedBox(const Region& region, absl::Span<const int64_t> shape, int64_t begin, int64_t end,
                      VisitMappedBox visit) {
  const size_t rank = shape.size();
  std::vector<std::vector<IndexRun>> cuts(rank);  // the runs of each dimension inside the box
  absl::InlinedVector<size_t, 6> at(rank);        // the cut being visited
  Dims from(rank);
  Dims to(rank);
  Dims sizes(rank);
  ForEachBox(shape, begin, end, [&](absl::Span<const int64_t> offset, absl::Span<const int64_t> box) {
    for (size_t d = 0; d < rank; ++d) {
      const int64_t low = offset[d];
      const int64_t high = low + box[d];
      cuts[d].clear();
      auto run = std::partition_point(region[d].begin(), region[d].end(),
                                      [&](const IndexRun& r) { return r.to + r.length <= low; });
      for (; run != region[d].end() && run->to < high; ++run) {
        const int64_t skipped = std::max(low - run->to, int64_t{0});
        const int64_t length = std::min(high, run->to + run->length) - run->to - skipped;
        cuts[d].push_back({run->from + skipped, run->to + skipped, length});
      }
      if (cuts[d].empty()) return;
      at[d] = 0;
    }
    while (true) {
      for (size_t d = 0; d < rank; ++d) {
        const IndexRun& cut = cuts[d][at[d]];
        from[d] = cut.from;
        to[d] = cut.to;
        sizes[d] = cut.length;
      }
      visit(from, to, sizes);
      size_t d = rank;
      while (d > 0 && ++at[d - 1] == cuts[d - 1].size()) at[--d] = 0;
      if (d == 0) return;
    }
  });
}

void ReduceRange(ReduceOp op, const Region& region, absl::Span<const RankValues> values, const TensorView& out,
                 int64_t begin, int64_t end, CopyMode mode) {
  const Dims dense = DenseStrides(out.shape);
  std::vector<Contribution> contributions(values.size());
  ForEachMappedBox(region, out.shape, begin, end,
                   [&](absl::Span<const int64_t> from, absl::Span<const int64_t> to, absl::Span<const int64_t> sizes) {
                     const int64_t in_message = OffsetBytes(to, dense, out.dtype);
                     for (size_t k = 0; k < values.size(); ++k) {
                       const RankValues& of = values[k];
                       const bool message = of.strides.empty() && !out.shape.empty();
                       const int64_t at = message ? in_message - of.skipped : OffsetBytes(from, of.strides, out.dtype);
                       contributions[k] = {static_cast<const char*>(of.data) + at, message ? dense : of.strides};
                     }
                     ReduceBox(op, out.dtype, sizes, contributions,
                               static_cast<char*>(out.data) + OffsetBytes(to, out.strides, out.dtype), out.strides,
                               mode);
                   });
}

}  // namespace reshard::host
