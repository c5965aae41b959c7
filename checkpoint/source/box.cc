#include "checkpoint/source/box.h"

#include <algorithm>
#include <cstddef>

#include "reshard/runtime/strided_copy.h"

namespace reshard::source {
namespace {

struct Strides {
  Indices steps;      // in elements
  int64_t first = 0;  // where the element at `of` is
};

Strides StridesIn(const Box& whole, const Box& of) {
  Strides strides{Indices(whole.size.size(), 1)};
  for (size_t d = whole.size.size(); d-- > 1;) strides.steps[d - 1] = strides.steps[d] * whole.size[d];
  for (size_t d = 0; d < whole.size.size(); ++d) strides.first += (of.offset[d] - whole.offset[d]) * strides.steps[d];
  return strides;
}

}  // namespace

int64_t Box::Elements() const {
  int64_t elements = 1;
  for (const int64_t n : size) elements *= n;
  return elements;
}

Box Common(const Box& a, const Box& b) {
  Box common;
  for (size_t d = 0; d < a.offset.size(); ++d) {
    const int64_t begin = std::max(a.offset[d], b.offset[d]);
    const int64_t end = std::min(a.offset[d] + a.size[d], b.offset[d] + b.size[d]);
    common.offset.push_back(begin);
    common.size.push_back(std::max<int64_t>(end - begin, 0));
  }
  return common;
}

void CopyBox(const Box& box, const Held<const char>& from, const Held<char>& to, int64_t element) {
  const Strides read = StridesIn(from.box, box), written = StridesIn(to.box, box);
  StridedCopy(WholeRegion(box.size), element, read.steps, written.steps)
      .Run(from.bytes + read.first * element, to.bytes + written.first * element);
}

}  // namespace reshard::source
