#include "checkpoint/views/read_view.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "checkpoint/recipe/cast.h"
#include "checkpoint/views/scaled.h"
#include "checkpoint/views/strided_box.h"
#include "reshard/runtime/strided_copy.h"
#include "reshard/runtime/tensor_view.h"
#include "status/macros.h"

namespace reshard::views {
namespace {

// Longer runs are not read if less than one of this many bytes is wanted.
constexpr int64_t kMostWaste = 4;

// Casts one after the other, a few elements at a time, so that nothing is longer than both ends.
void CastAll(DType from, const Casts& casts, const char* in, int64_t count, char* out) {
  constexpr int64_t kAtOnce = 1024, kLongestElement = 16;
  alignas(kLongestElement) char parts[2][kAtOnce * kLongestElement];
  for (int64_t done = 0; done < count; done += kAtOnce) {
    const int64_t now = std::min(kAtOnce, count - done);
    const char* part = in + done * SizeOf(from);
    DType is = from;
    for (size_t c = 0; c < casts.size(); ++c) {
      char* const next = c + 1 == casts.size() ? out + done * SizeOf(casts.back()) : parts[c % 2];
      recipe::Cast(is, casts[c], part, static_cast<size_t>(now), next);
      part = next;
      is = casts[c];
    }
  }
}

// One read of ReadView.
class Reading {
 public:
  Reading(TensorReader read, absl::Span<char> out)
      : read_(read), out_(out), most_(std::max(static_cast<int64_t>(out.size()), kLeastRead)) {}

  absl::Status Leaf(const Node& leaf, StridedBox box, const Casts& casts) {
    const DType last = casts.empty() ? leaf.dtype : casts.back();
    if (leaf.kind == Node::Kind::kConstant) {
      std::string element(static_cast<size_t>(SizeOf(last)), '\0');
      if (casts.empty()) {
        element = leaf.element;
      } else {
        CastAll(leaf.dtype, casts, leaf.element.data(), 1, element.data());
      }
      // The same element again and again: no step of the loops takes it elsewhere.
      Place(box, std::vector<int64_t>(box.loops.size(), 0), last, element.data());
      return absl::OkStatus();
    }
    std::vector<int64_t> size(box.at.size());
    for (size_t d = 0; d < size.size(); ++d) size[d] = box.Last(d) - box.at[d] + 1;
    const int64_t wanted = box.Elements();
    const int64_t elements = NumElements(size);
    const bool is_tensor = leaf.kind == Node::Kind::kTensor;
    if (is_tensor && casts.empty() && wanted == elements && IsDense(box)) {
      return read_(leaf.tensor, box.at, size, Bytes(box.to, wanted, last));
    }
    int64_t longer = std::max(SizeOf(leaf.dtype), SizeOf(last));
    for (const Node& input : leaf.inputs) longer = std::max(longer, SizeOf(input.dtype));
    const bool wastes = elements / kMostWaste > wanted && elements * longer > kLeastRead;
    // One element is never too long.
    if ((elements * longer > most_ || wastes) && !box.loops.empty()) return Halves(leaf, std::move(box), casts);
    const char* from = nullptr;
    if (is_tensor) {
      hull_.resize(elements * SizeOf(leaf.dtype));
      RETURN_IF_ERROR(read_(leaf.tensor, box.at, size, absl::MakeSpan(hull_)));
      from = hull_.data();
      if (!casts.empty()) {
        cast_.resize(elements * SizeOf(last));
        CastAll(leaf.dtype, casts, hull_.data(), elements, cast_.data());
        from = cast_.data();
      }
    } else {
      RETURN_IF_ERROR(Dequantized(leaf, box.at, size, casts));
      from = cast_.data();
    }
    std::vector<int64_t> strides(size.size(), 1);
    for (size_t d = size.size(); d-- > 1;) strides[d - 1] = strides[d] * size[d];
    std::vector<int64_t> steps;
    for (const StridedBox::Loop& loop : box.loops) steps.push_back(loop.step * strides[loop.dim]);
    Place(box, steps, last, from);
    return absl::OkStatus();
  }

 private:
  // Leaves a box of a kDequantize node, after the casts, in cast_.
  absl::Status Dequantized(const Node& node, const std::vector<int64_t>& at, const std::vector<int64_t>& size,
                           const Casts& casts) {
    const Node &values = node.inputs[0], &scales = node.inputs[1];
    const int64_t elements = NumElements(size);
    hull_.resize(elements * SizeOf(values.dtype));
    RETURN_IF_ERROR(ReadView(values, at, size, read_, absl::MakeSpan(hull_)));
    const ScaleBox box = ScalesOf(node, at, size);
    scales_.resize(NumElements(box.size) * SizeOf(scales.dtype));
    RETURN_IF_ERROR(ReadView(scales, box.offset, box.size, read_, absl::MakeSpan(scales_)));
    Casts all{node.dtype};
    all.insert(all.end(), casts.begin(), casts.end());
    const int64_t element = SizeOf(all.back());
    cast_.resize(elements * element);
    VisitScaled(node, at, size, hull_.data(), scales_.data(), [&](absl::Span<const float> run, int64_t first) {
      CastAll(DType::kF32, all, reinterpret_cast<const char*>(run.data()), static_cast<int64_t>(run.size()),
              cast_.data() + first * element);
    });
    return absl::OkStatus();
  }

  absl::Span<char> Bytes(int64_t element, int64_t count, DType dtype) const {
    return out_.subspan(static_cast<size_t>(element * SizeOf(dtype)), static_cast<size_t>(count * SizeOf(dtype)));
  }

  // Whether a box without gaps goes to elements side by side in its own row-major order.
  static bool IsDense(const StridedBox& box) {
    int64_t next = 1;
    std::vector<const StridedBox::Loop*> loops;
    for (const StridedBox::Loop& loop : box.loops) loops.push_back(&loop);
    std::sort(loops.begin(), loops.end(),
              [](const auto* a, const auto* b) { return a->dim != b->dim ? a->dim > b->dim : a->step < b->step; });
    for (const StridedBox::Loop* loop : loops) {
      if (loop->to != next) return false;
      next *= loop->count;
    }
    return true;
  }

  // Cuts the loop that goes farthest: the longest step of the first dimension.
  absl::Status Halves(const Node& leaf, StridedBox box, const Casts& casts) {
    size_t cut = 0;
    for (size_t l = 1; l < box.loops.size(); ++l) {
      const StridedBox::Loop &a = box.loops[l], &b = box.loops[cut];
      if (a.dim != b.dim ? a.dim < b.dim : a.step > b.step) cut = l;
    }
    const int64_t count = box.loops[cut].count, first = count / 2;
    StridedBox half = box;
    half.Narrow(cut, 0, first);
    RETURN_IF_ERROR(Leaf(leaf, std::move(half), casts));
    box.Narrow(cut, first, count - first);
    return Leaf(leaf, std::move(box), casts);
  }

  // `steps` are how far a step of each loop is in `from`, in elements.
  void Place(const StridedBox& box, const std::vector<int64_t>& steps, DType dtype, const char* from) {
    // The loop that writes side by side is the innermost one.
    std::vector<size_t> order(box.loops.size());
    std::iota(order.begin(), order.end(), size_t{0});
    std::sort(order.begin(), order.end(), [&](size_t a, size_t b) { return box.loops[a].to > box.loops[b].to; });
    std::vector<int64_t> counts, from_strides, to_strides;
    for (const size_t l : order) {
      counts.push_back(box.loops[l].count);
      from_strides.push_back(steps[l]);
      to_strides.push_back(box.loops[l].to);
    }
    StridedCopy(WholeRegion(counts), SizeOf(dtype), from_strides, to_strides)
        .Run(from, out_.data() + box.to * SizeOf(dtype));
  }

  const TensorReader read_;
  const absl::Span<char> out_;
  const int64_t most_;
  std::string hull_, cast_, scales_;
};

}  // namespace

int64_t ReadBuffers(const Node& view) {
  constexpr int64_t kOfOne = 2;
  int64_t most = kOfOne;
  for (const Node& input : view.inputs) most = std::max(most, ReadBuffers(input));
  return view.kind == Node::Kind::kDequantize ? most + kOfOne + 1 : most;
}

absl::Status ReadView(const Node& view, absl::Span<const int64_t> offset, absl::Span<const int64_t> size,
                      TensorReader read, absl::Span<char> out) {
  if (NumElements(size) == 0) return absl::OkStatus();
  Reading reading(read, out);
  return VisitLeaves(
      view, StridedBox::Of(offset, size),
      [&](const Node& leaf, const StridedBox& box, const Casts& casts) { return reading.Leaf(leaf, box, casts); });
}

}  // namespace reshard::views
