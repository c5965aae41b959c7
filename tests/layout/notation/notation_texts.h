// What one notation makes of texts and layouts, as texts: for tests that say what they expect.
#ifndef RESHARD_TESTS_LAYOUT_NOTATION_NOTATION_TEXTS_H_
#define RESHARD_TESTS_LAYOUT_NOTATION_NOTATION_TEXTS_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "reshard/layout/notation.h"

namespace reshard::testing {

// The layout in our notation. When there is none, the first line of the reason, after "unsupported: " when the text is
// good and we have no such layout.
std::string Imported(Notation notation, std::string_view text, std::string_view mesh,
                     const std::vector<int64_t>& shape);

// `layout` in the notation, or "unsupported: " and the reason.
std::string Exported(Notation notation, std::string_view layout, std::string_view mesh);

}  // namespace reshard::testing

#endif  // RESHARD_TESTS_LAYOUT_NOTATION_NOTATION_TEXTS_H_
