#include "checkpoint/io/show.h"

#include <algorithm>
#include <cstddef>

#include "absl/strings/str_cat.h"

namespace reshard::io {

std::string Shown(std::string_view text) {
  constexpr size_t kMost = 120;
  std::string shown = "\"";
  for (const char c : text.substr(0, kMost)) shown += c < 0x20 || c > 0x7e ? '?' : c;
  shown += text.size() > kMost ? "...\"" : "\"";
  return shown;
}

std::string Shown(absl::Span<const int64_t> numbers) {
  constexpr size_t kMost = 16;
  std::string shown = "[";
  for (size_t i = 0; i < std::min(numbers.size(), kMost); ++i) absl::StrAppend(&shown, i == 0 ? "" : ", ", numbers[i]);
  shown += numbers.size() > kMost ? ", ...]" : "]";
  return shown;
}

}  // namespace reshard::io
