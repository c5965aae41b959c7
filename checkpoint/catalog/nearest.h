// Suggests the name that a mistyped name or an unmatched pattern was probably meant to be.
#ifndef RESHARD_CHECKPOINT_CATALOG_NEAREST_H_
#define RESHARD_CHECKPOINT_CATALOG_NEAREST_H_

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace reshard::catalog {

// The name that is nearest part by part, between dots, after the parts of wrappers have been taken off both: a part
// more or less costs less than a part that differs, and all numbers, such as that of the layer, are the same. The first
// of several. Nothing where none is near, and for names of more than 256 bytes.
std::optional<std::string> NearestName(std::string_view name, const std::vector<std::string>& names);

// The name that the pattern (reshard/checkpoint/pattern.h) would match with the fewest characters changed. The first of
// several. Nothing where that is more than half of its characters, and for patterns of more than 256 bytes.
std::optional<std::string> NearestToPattern(std::string_view pattern, const std::vector<std::string>& names);

}  // namespace reshard::catalog

#endif  // RESHARD_CHECKPOINT_CATALOG_NEAREST_H_
