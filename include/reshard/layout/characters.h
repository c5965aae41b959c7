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

// The first character of a text that is not empty: as UTF-8 has it, without surrogates and longer forms.
Character FirstCharacter(std::string_view text);

// Whether it is seen as itself. Not so: control characters, among them line breaks; what changes the direction of
// writing; what has no width or no form.
bool IsVisible(uint32_t code);

// The text on one line, with '?' for each character that is not visible and each byte that is not UTF-8. "..." stands
// for what is behind the last character that ends within `most` bytes.
std::string OneLine(std::string_view text, size_t most);

// The same of all the text, with its line breaks.
std::string VisibleLines(std::string_view text);

}  // namespace reshard

#endif  // RESHARD_LAYOUT_CHARACTERS_H_
