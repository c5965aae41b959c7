#include "tools/reshard/printable.h"

#include <cstdint>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace reshard::tool {
namespace {

struct Decoded {
  uint32_t character = 0;
  size_t bytes = 0;  // 0: not UTF-8
};

// The first character of `text`, which is not empty.
Decoded Decode(std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  if (byte(0) < 0x80) return {byte(0), 1};
  const size_t bytes = byte(0) >= 0xf0 ? 4 : byte(0) >= 0xe0 ? 3 : 2;
  constexpr uint32_t kLeast[] = {0, 0, 0x80, 0x800, 0x10000};
  if (byte(0) < 0xc0 || byte(0) > 0xf7 || text.size() < bytes) return {};
  uint32_t character = byte(0) & (0xffu >> (bytes + 1));
  for (size_t i = 1; i < bytes; ++i) {
    if ((byte(i) & 0xc0) != 0x80) return {};
    character = character << 6 | (byte(i) & 0x3f);
  }
  const bool surrogate = character >= 0xd800 && character < 0xe000;
  if (character < kLeast[bytes] || character > 0x10ffff || surrogate) return {};
  return {character, bytes};
}

bool Invisible(uint32_t c) {
  return c < 0x20 || (c >= 0x7f && c < 0xa0) || c == 0xad || c == 0x061c || (c >= 0x200b && c <= 0x200f) ||
         (c >= 0x2028 && c <= 0x202e) || (c >= 0x2060 && c <= 0x206f) || c == 0xfeff || c >= 0xe0000;
}

}  // namespace

std::string Printable(std::string_view text) {
  constexpr int kMost = 200;
  std::string out;
  size_t at = 0;
  for (int count = 0; at < text.size(); ++count) {
    if (count == kMost) return absl::StrCat(out, "... (", text.size(), " bytes)");
    const Decoded next = Decode(text.substr(at));
    if (next.bytes == 0) {
      absl::StrAppendFormat(&out, "\\x%02x", static_cast<unsigned char>(text[at]));
    } else if (next.character == '\\') {
      out += "\\\\";
    } else if (next.character == '\n') {
      out += "\\n";
    } else if (next.character == '\t') {
      out += "\\t";
    } else if (next.character < 0x80 && Invisible(next.character)) {
      absl::StrAppendFormat(&out, "\\x%02x", next.character);
    } else if (Invisible(next.character)) {
      absl::StrAppendFormat(&out, "\\u{%x}", next.character);
    } else {
      out += text.substr(at, next.bytes);
    }
    at += next.bytes == 0 ? 1 : next.bytes;
  }
  return out;
}

}  // namespace reshard::tool
