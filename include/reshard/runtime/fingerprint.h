// Fingerprints of what tensors contain: the same for every mesh, layout and order of tensors, and added up from parts
// without gathering any data. Two jobs that compare theirs know whether they have the same weights.
//
//   ContentFingerprint sum;                          // on every device
//   for (tensors) sum += *FingerprintOf(name, fragment, layout, position);
//   // the sum of all devices' sums, modulo 2^64 each, is the fingerprint of the model
//
// It is evidence against mistakes and flipped bits, not against somebody who chooses the data: see
// docs/design/fingerprint.md for what is found for certain and with which probability.
#ifndef RESHARD_RUNTIME_FINGERPRINT_H_
#define RESHARD_RUNTIME_FINGERPRINT_H_

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "reshard/layout/layout.h"
#include "reshard/runtime/tensor_view.h"

namespace reshard {

// Two sums modulo 2^64, over elements or tensors, that are independent of each other.
struct ContentFingerprint {
  uint64_t low = 0;
  uint64_t high = 0;

  // Of both contents together.
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
// name, whose fragment on this device is `local`; in any strides. Post-condition: the parts of all devices add up to
// a value that depends on name, dtype, global shape and the bits of every element at its logical index, and on nothing
// else. An element that several devices hold is counted by the first of them; the others add nothing, and what they
// hold is not looked at. Names must differ where fingerprints of several tensors are added up.
//
// Reads `local` once, at the speed of memory where runs of consecutive elements are long; takes no memory that grows
// with it. InvalidArgument: values that are partial, a position outside the mesh, a fragment of another shape, a tensor
// of 2^63 bytes or more. Unimplemented: memory that is not the host's.
absl::StatusOr<ContentFingerprint> FingerprintOf(std::string_view name, const ConstTensorView& local,
                                                 const Layout& layout, int64_t position);

}  // namespace reshard

#endif  // RESHARD_RUNTIME_FINGERPRINT_H_
