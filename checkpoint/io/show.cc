#include "checkpoint/io/show.h"

#include <algorithm>
#include <cstddef>

#include "absl/strings/str_cat.h"
#include "reshard/layout/characters.h"

namespace reshard::io {

std::string Shown(std::string_view text) {
  constexpr size_t kMost = 120;
  return absl::StrCat("\"", OneLine(text, kMost), "\"");
}

std::string Shown(absl::Span<const int64_t> numbers) {
  constexpr size_t kMost = 16;
  std::string shown = "[";
  for (size_t i = 0; i < std::min(numbers.size(), kMost); ++i) absl::StrAppend(&shown, i == 0 ? "" : ", ", numbers[i]);
  shown += numbers.size() > kMost ? ", ...]" : "]";
  return shown;
}

}  // namespace reshard::io
