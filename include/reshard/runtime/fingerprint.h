// Fingerprints of what tensors contain: the same for every mesh, layout and order of tensors, and added up from parts
// without gathering any data. Two jobs that compare theirs know whether they have the same weights.
//
//   ContentFingerprint sum;                          // on every device
//   for (tensors) sum += *FingerprintOf(name, fragment, layout, position);
//   // the sum of all devices' sums, modulo 2^64 each, is the fingerprint of the model
//
// It guards against mistakes and flipped bits, not against an adversary who chooses the data: see
// docs/design/fingerprint.md for what it detects with certainty, and with what probability it detects the rest.
#ifndef RESHARD_RUNTIME_FINGERPRINT_H_
#define RESHARD_RUNTIME_FINGERPRINT_H_

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "reshard/layout/layout.h"
#include "reshard/runtime/tensor_view.h"

namespace reshard {

// Two independent sums modulo 2^64, over elements or tensors.
struct ContentFingerprint {
  uint64_t low = 0;
  uint64_t high = 0;

  // Becomes the fingerprint of both contents together.
  ContentFingerprint& operator+=(const ContentFingerprint& other) {
    low += other.low;
    high += other.high;
    return *this;
  }
  bool operator==(const ContentFingerprint&) const = default;
};

// 32 hexadecimal digits, `high` first.
std::string ToString(const ContentFingerprint& fingerprint);

// The part that the device at `position` of the layout's mesh contributes to the fingerprint of the tensor of that
// name; `local` is this device's fragment of it, with any strides. Post-condition: the parts of all devices add up to
// a value that depends on name, dtype, global shape and the bits of every element at its logical index, and on nothing
// else. If several devices hold an element, only the first of them counts it; the others add nothing, and their copies
// are ignored. Tensors whose fingerprints are added up must have different names.
//
// Reads `local` once, at memory speed if runs of consecutive elements are long; the memory that it needs does not grow
// with `local`. InvalidArgument: values that are partial, a position outside the mesh, a fragment of another shape, a
// tensor of 2^63 bytes or more. Unimplemented: memory that is not the host's.
absl::StatusOr<ContentFingerprint> FingerprintOf(std::string_view name, const ConstTensorView& local,
                                                 const Layout& layout, int64_t position);

}  // namespace reshard

#endif  // RESHARD_RUNTIME_FINGERPRINT_H_
