// Patterns of names: `*` matches any text, even none, `?` one UTF-8 character, and everything else itself.
#ifndef RESHARD_CHECKPOINT_PATTERN_H_
#define RESHARD_CHECKPOINT_PATTERN_H_

#include <algorithm>
#include <iterator>
#include <optional>
#include <string_view>
#include <vector>

namespace reshard {

// True if the pattern matches the whole name. Takes time O(pattern length * name length) at most.
bool MatchesPattern(std::string_view pattern, std::string_view name);

// Whether any of the patterns, which are strings of any type, matches.
template <typename Patterns>
bool MatchesAny(const Patterns& patterns, std::string_view name) {
  return std::any_of(std::begin(patterns), std::end(patterns),
                     [&](std::string_view pattern) { return MatchesPattern(pattern, name); });
}

// Whether it has neither `*` nor `?`, and so matches nothing but itself.
bool NamesOne(std::string_view pattern);

// What each `*` stands for, in order, or nullopt if the pattern does not match. Each stands for as little as possible,
// the first one first. Views into `name`.
std::optional<std::vector<std::string_view>> Captures(std::string_view pattern, std::string_view name);

}  // namespace reshard

#endif  // RESHARD_CHECKPOINT_PATTERN_H_
