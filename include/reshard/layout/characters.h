// Characters of untrusted text, and which of them a message or a terminal may show.
#ifndef RESHARD_LAYOUT_CHARACTERS_H_
#define RESHARD_LAYOUT_CHARACTERS_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace reshard {

struct Character {
  uint32_t code = 0;
  size_t bytes = 1;       // at least 1
  bool is_valid = false;  // otherwise it is a byte that is not UTF-8
};

// The first character of a non-empty text, decoded as strict UTF-8: surrogates and overlong forms are not valid.
Character FirstCharacter(std::string_view text);

// Whether the character is visible as itself. Not visible: control characters, including line breaks; characters that
// change the direction of writing; characters without width or form.
bool IsVisible(uint32_t code);

// The text on one line, with '?' for each character that is not visible and each byte that is not UTF-8. "..." replaces
// everything after the last character that ends within `most` bytes.
std::string OneLine(std::string_view text, size_t most);

// The same for the whole text, keeping its line breaks.
std::string VisibleLines(std::string_view text);

}  // namespace reshard

#endif  // RESHARD_LAYOUT_CHARACTERS_H_
