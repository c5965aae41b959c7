// The element types of safetensors.
#ifndef RESHARD_CHECKPOINT_FORMATS_SAFETENSORS_DTYPES_H_
#define RESHARD_CHECKPOINT_FORMATS_SAFETENSORS_DTYPES_H_

#include <cstdint>
#include <optional>
#include <string_view>

#include "absl/types/span.h"
#include "reshard/layout/dtype.h"

namespace reshard::safetensors {

struct SafetensorsDType {
  std::string_view name;       // "F32"
  int64_t bits = 0;            // of one element
  std::optional<DType> dtype;  // none: F6, of which no whole number fills a byte or two

  // How many elements of the format are one of `dtype`: 2 for F4, along the last dimension, as in PyTorch; else 1.
  int64_t packed() const { return dtype ? 8 * SizeOf(*dtype) / bits : 1; }
};

// All that the format has, in the order in which the safetensors package lays tensors out: largest alignment first.
absl::Span<const SafetensorsDType> SafetensorsDTypes();

// Null when the format has none of that name.
const SafetensorsDType* FindSafetensorsDType(std::string_view name);
// Null for what safetensors cannot hold: c128.
const SafetensorsDType* FindSafetensorsDType(DType dtype);

// Whether the format may come to have one of that name: capital letters, digits and underscores.
bool LooksLikeDType(std::string_view name);

// Bits of all elements of a tensor with sizes that are not negative; nothing when they do not fit an int64. A shape
// with a 0 has none, but its other sizes have to fit too: strides are products of them.
std::optional<int64_t> BitsOf(absl::Span<const int64_t> shape, const SafetensorsDType& dtype);

}  // namespace reshard::safetensors

#endif  // RESHARD_CHECKPOINT_FORMATS_SAFETENSORS_DTYPES_H_
