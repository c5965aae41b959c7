// What a rank is about to do, in a form that ranks can compare: they exchange fingerprints and, only if these differ,
// the fields behind them.
#ifndef RESHARD_RUNTIME_SIGNATURE_H_
#define RESHARD_RUNTIME_SIGNATURE_H_

#include <cstdint>
#include <string>
#include <vector>

namespace reshard {

// A 128-bit hash of a problem: equal on all ranks that compiled the same plan, on every machine.
struct Fingerprint {
  uint64_t high = 0;  // upper 64 bits
  uint64_t low = 0;   // lower 64 bits
  bool operator==(const Fingerprint&) const = default;
};

// Named fields and their fingerprint.
struct Signature {
  // One property of the problem.
  struct Field {
    std::string name;   // as in error messages: "target"
    std::string value;  // as text: "[8, <X>8]"
    bool operator==(const Field&) const = default;
  };

  // The first one that differs between ranks is the one that an error reports.
  std::vector<Field> fields;
  Fingerprint fingerprint;  // of all fields

  Signature() = default;
  // Post-condition: signatures with equal fields have equal fingerprints, and others almost certainly do not.
  explicit Signature(std::vector<Field> named_fields);
};

}  // namespace reshard

#endif  // RESHARD_RUNTIME_SIGNATURE_H_
