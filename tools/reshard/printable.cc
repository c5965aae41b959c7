#include "tools/reshard/printable.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "reshard/layout/characters.h"

namespace reshard::tool {

std::string Printable(std::string_view text) {
  constexpr int kMost = 200;
  std::string out;
  size_t at = 0;
  for (int count = 0; at < text.size(); ++count) {
    if (count == kMost) return absl::StrCat(out, "... (", text.size(), " bytes)");
    const Character next = FirstCharacter(text.substr(at));
    const bool is_visible = IsVisible(next.code);
    if (!next.is_valid) {
      absl::StrAppendFormat(&out, "\\x%02x", static_cast<unsigned char>(text[at]));
    } else if (next.code == '\\') {
      out += "\\\\";
    } else if (next.code == '\n') {
      out += "\\n";
    } else if (next.code == '\t') {
      out += "\\t";
    } else if (next.code < 0x80 && !is_visible) {
      absl::StrAppendFormat(&out, "\\x%02x", next.code);
    } else if (!is_visible) {
      absl::StrAppendFormat(&out, "\\u{%x}", next.code);
    } else {
      out += text.substr(at, next.bytes);
    }
    at += next.bytes;
  }
  return out;
}

}  // namespace reshard::tool
