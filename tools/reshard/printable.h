// Makes text from a file safe to print on a terminal.
#ifndef RESHARD_TOOLS_RESHARD_PRINTABLE_H_
#define RESHARD_TOOLS_RESHARD_PRINTABLE_H_

#include <string>
#include <string_view>

namespace reshard::tool {

// Keeps valid UTF-8. Control characters, characters that change the writing direction or have no width, backslashes,
// and bytes that are not UTF-8 become \n, \t, \\, \xNN or \u{NNNN}. Text beyond 200 characters becomes "... (N bytes)".
std::string Printable(std::string_view text);

}  // namespace reshard::tool

#endif  // RESHARD_TOOLS_RESHARD_PRINTABLE_H_
