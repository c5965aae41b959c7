#include "checkpoint/live/shared_targets.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <tuple>
#include <utility>

#include "absl/functional/function_ref.h"
#include "reshard/runtime/strided_copy.h"

namespace reshard::live {
namespace {

// The dimensions by falling stride, which is the order in memory.
std::vector<size_t> MemoryOrder(const ConstTensorView& view) {
  std::vector<size_t> order(view.shape.size());
  for (size_t d = 0; d < order.size(); ++d) order[d] = d;
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return std::abs(view.strides[a]) > std::abs(view.strides[b]); });
  return order;
}

bool HasGaps(const ConstTensorView& view) {
  const auto [first, end] = ByteSpan(view);
  return end - first != NumElements(view.shape) * SizeOf(view.dtype);
}

bool HasAddress(const ConstTensorView& view, const char* address) {
  int64_t rest = address - ByteSpan(view).first;
  if (rest < 0) return false;
  for (const size_t d : MemoryOrder(view)) {
    if (view.shape[d] == 1) continue;
    const int64_t step = std::abs(view.strides[d]) * SizeOf(view.dtype);
    rest -= std::min(rest / step, view.shape[d] - 1) * step;
  }
  return rest < SizeOf(view.dtype);
}

// Calls `visit` with byte offsets in either view and a number of bytes, for runs that are contiguous in both, until it
// returns false. The views have the same shape.
void VisitRuns(const ConstTensorView& a, const ConstTensorView& b,
               absl::FunctionRef<bool(int64_t, int64_t, int64_t)> visit) {
  std::vector<int64_t> shape, a_strides, b_strides;
  for (const size_t d : MemoryOrder(a)) {
    shape.push_back(a.shape[d]);
    a_strides.push_back(a.strides[d]);
    b_strides.push_back(b.strides[d]);
  }
  bool goes_on = true;
  StridedCopy(WholeRegion(shape), SizeOf(a.dtype), a_strides, b_strides).VisitBoxes([&](const CopyBox& box) {
    std::vector<int64_t> at(box.loops.size(), 0);
    int64_t from = box.from, to = box.to;
    while (goes_on) {
      goes_on = visit(from, to, box.run);
      size_t level = box.loops.size();
      while (level-- > 0) {
        const CopyBox::Loop& loop = box.loops[level];
        from += loop.from_step;
        to += loop.to_step;
        if (++at[level] < loop.count) break;
        from -= loop.count * loop.from_step;
        to -= loop.count * loop.to_step;
        at[level] = 0;
      }
      if (level == static_cast<size_t>(-1)) return;
    }
  });
}

}  // namespace

SharedTargets::SharedTargets(std::vector<TensorView> targets)
    : targets_(std::move(targets)), sets_(targets_.size(), -1), first_(targets_.size(), false) {
  std::vector<size_t> by_address;
  for (size_t i = 0; i < targets_.size(); ++i) {
    if (NumElements(targets_[i].shape) > 0) by_address.push_back(i);
  }
  const auto begin_of = [&](size_t i) { return ByteSpan(targets_[i]).first; };
  std::sort(by_address.begin(), by_address.end(),
            [&](size_t a, size_t b) { return std::less<>()(begin_of(a), begin_of(b)); });
  for (size_t k = 0; k < by_address.size();) {
    Set set;
    std::tie(set.first, set.end) = ByteSpan(targets_[by_address[k]]);
    size_t next = k + 1;
    for (; next < by_address.size() && std::less<>()(begin_of(by_address[next]), set.end); ++next) {
      set.end = std::max(set.end, ByteSpan(targets_[by_address[next]]).second, std::less<>());
    }
    if (next - k > 1) {
      for (size_t m = k; m < next; ++m) sets_[by_address[m]] = static_cast<int64_t>(list_.size());
      first_[*std::min_element(by_address.begin() + static_cast<std::ptrdiff_t>(k),
                               by_address.begin() + static_cast<std::ptrdiff_t>(next))] = true;
      list_.push_back(std::move(set));
    }
    k = next;
  }
}

int64_t SharedTargets::StagedBytes(size_t i) const {
  return NumElements(targets_[i].shape) * SizeOf(targets_[i].dtype);
}

TensorView SharedTargets::StagedIn(size_t i, char* memory) const {
  TensorView staged = targets_[i];
  staged.data = memory;
  const std::vector<size_t> order = MemoryOrder(staged);
  int64_t stride = 1;
  for (size_t k = order.size(); k-- > 0;) {
    staged.strides[order[k]] = stride;
    stride *= staged.shape[order[k]];
  }
  return staged;
}

std::optional<size_t> SharedTargets::Settle(size_t i, const ConstTensorView& loaded) {
  if (sets_[i] < 0) return std::nullopt;
  Set& set = list_[sets_[i]];
  const char* different = nullptr;
  if (staged(i)) {
    const auto span = ByteSpan(targets_[i]);
    // Usually it is the memory of another target, or a part of it.
    const bool is_within = std::any_of(set.settled.begin(), set.settled.end(), [&](size_t other) {
      const auto [other_first, other_end] = ByteSpan(targets_[other]);
      return other_first <= span.first && span.second <= other_end && !HasGaps(targets_[other]);
    });
    different = is_within ? FirstDifference(i, loaded) : FirstDifferenceOrWrite(i, loaded, set);
  }
  if (different == nullptr) {
    set.settled.push_back(i);
    return std::nullopt;
  }
  return *std::find_if(set.settled.begin(), set.settled.end(),
                       [&](size_t other) { return HasAddress(targets_[other], different); });
}

// Where the target differs from what was loaded for it; null if it does not.
const char* SharedTargets::FirstDifference(size_t i, const ConstTensorView& loaded) const {
  const char* different = nullptr;
  const auto* const here = static_cast<const char*>(targets_[i].data);
  const auto* const there = static_cast<const char*>(loaded.data);
  VisitRuns(targets_[i], loaded, [&](int64_t at, int64_t from, int64_t bytes) {
    if (std::memcmp(here + at, there + from, static_cast<size_t>(bytes)) == 0) return true;
    different = std::mismatch(here + at, here + at + bytes, there + from).first;
    return false;
  });
  return different;
}

// As FirstDifference where the set has been written; elsewhere copies what was loaded.
const char* SharedTargets::FirstDifferenceOrWrite(size_t i, const ConstTensorView& loaded, Set& set) {
  if (set.written.empty()) {
    set.written.resize(set.end - set.first);
    for (const size_t other : set.settled) MarkWritten(other, set);
  }
  const char* different = nullptr;
  auto* const here = static_cast<char*>(targets_[i].data);
  const auto* const there = static_cast<const char*>(loaded.data);
  VisitRuns(targets_[i], loaded, [&](int64_t at, int64_t from, int64_t bytes) {
    const std::ptrdiff_t in_set = here + at - set.first;
    for (int64_t k = 0; k < bytes; ++k) {
      char& byte = here[at + k];
      auto written = set.written[in_set + k];
      if (written && byte != there[from + k]) {
        different = &byte;
        return false;
      }
      byte = there[from + k];
      written = true;
    }
    return true;
  });
  return different;
}

void SharedTargets::MarkWritten(size_t i, Set& set) const {
  const std::ptrdiff_t begin = static_cast<const char*>(targets_[i].data) - set.first;
  VisitRuns(targets_[i], targets_[i], [&](int64_t at, int64_t, int64_t bytes) {
    const auto from = set.written.begin() + begin + at;
    std::fill(from, from + bytes, true);
    return true;
  });
}

}  // namespace reshard::live
