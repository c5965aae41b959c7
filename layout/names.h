// Names of axes, and how foreign text appears inside error messages.
#ifndef RESHARD_LAYOUT_NAMES_H_
#define RESHARD_LAYOUT_NAMES_H_

#include <string>
#include <string_view>

#include "absl/strings/string_view.h"
#include "reshard/layout/mesh.h"

namespace reshard::layout {

inline bool IsNameStart(char c) { return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || c == '_'; }
inline bool IsDigit(char c) { return c >= '0' && c <= '9'; }
inline bool IsNameChar(char c) { return IsNameStart(c) || IsDigit(c) || c == '.'; }

// [A-Za-z_][A-Za-z0-9_.]*
bool IsName(std::string_view text);

// The text for one line of an error message: shortened, and with '?' for what is not visible
// (reshard/layout/characters.h).
std::string Printable(std::string_view text);

// The payload of a status that refuses an unknown axis.
inline constexpr absl::string_view kUnknownAxis = "reshard/unknown-axis";

// "X, Y", for messages about unknown axes; "no axes" when there are none. Shortened.
std::string AxisNames(const Mesh& mesh);

}  // namespace reshard::layout

#endif  // RESHARD_LAYOUT_NAMES_H_
