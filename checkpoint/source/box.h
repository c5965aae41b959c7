// Boxes of a tensor's elements, and copies between memory that holds them.
#ifndef RESHARD_CHECKPOINT_SOURCE_BOX_H_
#define RESHARD_CHECKPOINT_SOURCE_BOX_H_

#include <cstdint>

#include "absl/container/inlined_vector.h"

namespace reshard::source {

using Indices = absl::InlinedVector<int64_t, 6>;  // one per dimension, as the shapes of views

// The elements at offset + i for 0 <= i < size, in every dimension of a tensor.
struct Box {
  Indices offset;
  Indices size;

  bool operator==(const Box&) const = default;
  // Requires that their number fits 64 bits.
  int64_t Elements() const;
};

// The elements that both have; if there are none, the size is 0 in some dimension.
Box Common(const Box& a, const Box& b);

// Memory that holds a box, dense and row-major.
template <typename Byte>
struct Held {
  const Box& box;
  Byte* bytes;
};

// Copies the elements of `box`, which both sides hold; `element` is 1, 2, 4, 8 or 16 bytes.
void CopyBox(const Box& box, const Held<const char>& from, const Held<char>& to, int64_t element);

}  // namespace reshard::source

#endif  // RESHARD_CHECKPOINT_SOURCE_BOX_H_
