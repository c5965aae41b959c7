// Debian's Abseil has its own string_view, which its functions take and which std::string_view does not convert to.
#ifndef RESHARD_STATUS_VIEW_H_
#define RESHARD_STATUS_VIEW_H_

#include <string_view>

#include "absl/strings/string_view.h"

namespace reshard::status {

// The same characters, for Abseil's functions.
inline absl::string_view View(std::string_view text) { return {text.data(), text.size()}; }

}  // namespace reshard::status

#endif  // RESHARD_STATUS_VIEW_H_
