// The hash of contents: XXH3 with 128 bits.
#ifndef RESHARD_CHECKPOINT_HASH_HASH_H_
#define RESHARD_CHECKPOINT_HASH_HASH_H_

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

namespace reshard::hash {

struct ContentHash {
  uint64_t low = 0;
  uint64_t high = 0;
  bool operator==(const ContentHash&) const = default;

  // 32 hexadecimal digits, high first.
  std::string ToText() const;
  // Accepts only such a text; otherwise returns false, and leaves `out` unchanged.
  static bool FromText(std::string_view text, ContentHash* out);
  static ContentHash Of(std::string_view bytes);
};

// The hash of bytes that come one after the other.
class ContentHasher {
 public:
  ContentHasher();
  ~ContentHasher();
  ContentHasher(const ContentHasher&) = delete;
  ContentHasher& operator=(const ContentHasher&) = delete;

  void Add(std::string_view bytes);
  ContentHash Finish() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace reshard::hash

#endif  // RESHARD_CHECKPOINT_HASH_HASH_H_
