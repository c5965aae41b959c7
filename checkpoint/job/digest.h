// A hash of numbers and texts that follow each other, so that none can be taken for the end of another.
#ifndef RESHARD_CHECKPOINT_JOB_DIGEST_H_
#define RESHARD_CHECKPOINT_JOB_DIGEST_H_

#include <cstdint>
#include <string_view>

#include "absl/types/span.h"
#include "checkpoint/job/hash.h"

namespace reshard {

class Digest {
 public:
  void Add(int64_t value) { hasher_.Add({reinterpret_cast<const char*>(&value), sizeof(value)}); }
  void Add(absl::Span<const int64_t> values) {
    for (const int64_t value : values) Add(value);
  }
  void Add(std::string_view text) {
    Add(static_cast<int64_t>(text.size()));
    hasher_.Add(text);
  }
  ContentHash Hash() const { return hasher_.Finish(); }

 private:
  ContentHasher hasher_;
};

}  // namespace reshard

#endif  // RESHARD_CHECKPOINT_JOB_DIGEST_H_
