// How text from a file appears in messages.
#ifndef RESHARD_CHECKPOINT_IO_SHOW_H_
#define RESHARD_CHECKPOINT_IO_SHOW_H_

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace reshard::io {

// "text" in quotes: one line of visible characters whatever is in it ('?' stands for the rest, layout/characters.h),
// shortened with "..." after 120 bytes.
std::string Shown(std::string_view text);

// "[2, 3]"; shortened after 16 numbers.
std::string Shown(absl::Span<const int64_t> numbers);

}  // namespace reshard::io

#endif  // RESHARD_CHECKPOINT_IO_SHOW_H_
