// What a rank is about to do, in words that all ranks can compare: ranks exchange fingerprints, and only where these
// differ the fields behind them.
#ifndef RESHARD_RUNTIME_SIGNATURE_H_
#define RESHARD_RUNTIME_SIGNATURE_H_

#include <cstdint>
#include <string>
#include <vector>

namespace reshard {

// 128 bits that tell problems apart: equal on all ranks that compiled the same plan, on every machine.
struct Fingerprint {
  uint64_t high = 0;
  uint64_t low = 0;
  bool operator==(const Fingerprint&) const = default;
};

struct Signature {
  // "target", "[8, <X>8]". The order is the order in which a disagreement is looked for.
  struct Field {
    std::string name;
    std::string value;
    bool operator==(const Field&) const = default;
  };

  std::vector<Field> fields;
  Fingerprint fingerprint;

  Signature() = default;
  // Post-condition: signatures with equal fields have equal fingerprints, others almost surely do not.
  explicit Signature(std::vector<Field> named_fields);
};

}  // namespace reshard

#endif  // RESHARD_RUNTIME_SIGNATURE_H_
