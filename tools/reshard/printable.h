// Text out of a file, made safe for a terminal.
#ifndef RESHARD_TOOLS_RESHARD_PRINTABLE_H_
#define RESHARD_TOOLS_RESHARD_PRINTABLE_H_

#include <string>
#include <string_view>

namespace reshard::tool {

// Valid UTF-8 stays; control characters, characters that change the direction of writing or have no width, a backslash,
// and bytes that are no UTF-8 become \n, \t, \\, \xNN or \u{NNNN}. After 200 characters: "... (N bytes)".
std::string Printable(std::string_view text);

}  // namespace reshard::tool

#endif  // RESHARD_TOOLS_RESHARD_PRINTABLE_H_
