#include "reshard/checkpoint/pattern.h"

#include <cstddef>

namespace reshard {
namespace {

// Where the character after the one at `at` begins. A byte that belongs to none counts as one.
size_t NextCharacter(std::string_view text, size_t at) {
  ++at;
  while (at < text.size() && (static_cast<unsigned char>(text[at]) & 0xc0) == 0x80) ++at;
  return at;
}

// Calls star(begin) where a `*` is met, and grown(end) where the last one met stands for more than before.
template <typename Star, typename Grown>
bool Match(std::string_view pattern, std::string_view name, const Star& star, const Grown& grown) {
  size_t p = 0, n = 0;
  // The last `*` met, and what it has taken of the name so far. Only the last one is ever tried with more: an earlier
  // one that takes more leaves less of the name to what follows it.
  std::optional<size_t> last;
  size_t taken = 0;
  while (n < name.size()) {
    if (p < pattern.size() && pattern[p] == '*') {
      last = p++;
      taken = n;
      star(n);
    } else if (p < pattern.size() && pattern[p] == '?') {
      ++p;
      n = NextCharacter(name, n);
    } else if (p < pattern.size() && pattern[p] == name[n]) {
      ++p;
      ++n;
    } else if (last) {
      p = *last + 1;
      n = taken = NextCharacter(name, taken);
      grown(n);
    } else {
      return false;
    }
  }
  for (; p < pattern.size() && pattern[p] == '*'; ++p) star(n);
  return p == pattern.size();
}

}  // namespace

bool MatchesPattern(std::string_view pattern, std::string_view name) {
  const auto ignore = [](size_t) {};
  return Match(pattern, name, ignore, ignore);
}

bool NamesOne(std::string_view pattern) { return pattern.find_first_of("*?") == std::string_view::npos; }

std::optional<std::vector<std::string_view>> Captures(std::string_view pattern, std::string_view name) {
  std::vector<std::string_view> found;
  size_t begin = 0;
  const auto star = [&](size_t at) {
    begin = at;
    found.push_back(name.substr(at, 0));
  };
  const auto grown = [&](size_t end) { found.back() = name.substr(begin, end - begin); };
  if (!Match(pattern, name, star, grown)) return std::nullopt;
  return found;
}

}  // namespace reshard
