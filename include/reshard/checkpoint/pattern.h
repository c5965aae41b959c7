// Patterns of names: `*` is any text, even none, `?` one UTF-8 character, and everything else itself.
#ifndef RESHARD_CHECKPOINT_PATTERN_H_
#define RESHARD_CHECKPOINT_PATTERN_H_

#include <optional>
#include <string_view>
#include <vector>

namespace reshard {

// True if the pattern matches the whole name. Takes time O(pattern length * name length) at most.
bool MatchesPattern(std::string_view pattern, std::string_view name);

// What each `*` stands for, in their order, or nullopt where the pattern does not match. Each stands for as little as
// possible, the first one first. Views into `name`.
std::optional<std::vector<std::string_view>> Captures(std::string_view pattern, std::string_view name);

}  // namespace reshard

#endif  // RESHARD_CHECKPOINT_PATTERN_H_
