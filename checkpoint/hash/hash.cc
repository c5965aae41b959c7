#include "checkpoint/hash/hash.h"

#include <xxhash.h>

#include "absl/strings/str_cat.h"

namespace reshard::hash {
namespace {

bool HalfFromText(std::string_view text, uint64_t* out) {
  uint64_t value = 0;
  for (const char c : text) {
    const bool digit = c >= '0' && c <= '9';
    if (!digit && !(c >= 'a' && c <= 'f')) return false;
    value = value << 4 | static_cast<uint64_t>(digit ? c - '0' : c - 'a' + 10);
  }
  *out = value;
  return true;
}

}  // namespace

std::string ContentHash::ToText() const {
  return absl::StrCat(absl::Hex(high, absl::kZeroPad16), absl::Hex(low, absl::kZeroPad16));
}

bool ContentHash::FromText(std::string_view text, ContentHash* out) {
  ContentHash hash;
  if (text.size() != 32 || !HalfFromText(text.substr(0, 16), &hash.high) || !HalfFromText(text.substr(16), &hash.low)) {
    return false;
  }
  *out = hash;
  return true;
}

ContentHash ContentHash::Of(std::string_view bytes) {
  const XXH128_hash_t hash = XXH3_128bits(bytes.data(), bytes.size());
  return {hash.low64, hash.high64};
}

struct ContentHasher::State {
  XXH3_state_t* xxh = XXH3_createState();
  ~State() { XXH3_freeState(xxh); }
};

ContentHasher::ContentHasher() : state_(std::make_unique<State>()) { XXH3_128bits_reset(state_->xxh); }
ContentHasher::~ContentHasher() = default;
void ContentHasher::Add(std::string_view bytes) { XXH3_128bits_update(state_->xxh, bytes.data(), bytes.size()); }

ContentHash ContentHasher::Finish() const {
  const XXH128_hash_t hash = XXH3_128bits_digest(state_->xxh);
  return {hash.low64, hash.high64};
}

}  // namespace reshard::hash
