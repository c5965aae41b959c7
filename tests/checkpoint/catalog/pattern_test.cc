// Patterns: what each * stands for, against a definition that tries everything.
#include "reshard/checkpoint/pattern.h"

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tests/catch.h"
#include "tests/property.h"

namespace reshard {
namespace {

using Captured = std::vector<std::string_view>;

// The first answer in the order of the lengths that the * have, the first one first. Names and patterns in ASCII.
std::optional<Captured> Slowly(std::string_view pattern, std::string_view name) {
  if (pattern.empty()) return name.empty() ? std::optional(Captured()) : std::nullopt;
  if (pattern[0] != '*') {
    if (name.empty() || (pattern[0] != '?' && pattern[0] != name[0])) return std::nullopt;
    return Slowly(pattern.substr(1), name.substr(1));
  }
  for (size_t length = 0; length <= name.size(); ++length) {
    std::optional<Captured> rest = Slowly(pattern.substr(1), name.substr(length));
    if (!rest) continue;
    rest->insert(rest->begin(), name.substr(0, length));
    return rest;
  }
  return std::nullopt;
}

}  // namespace

TEST_CASE("captures are what each * stands for") {
  CHECK(Captures("model.layers.*.wq.*", "model.layers.12.wq.weight") == Captured{"12", "weight"});
  CHECK(Captures("*", "") == Captured{""});
  CHECK(Captures("a", "a") == Captured{});
  CHECK(Captures("a*b*", "axbxb") == Captured{"x", "xb"});
  CHECK(Captures("**", "ab") == Captured{"", "ab"});
  CHECK(Captures("*.?", "a.b.c") == Captured{"a.b"});
  CHECK(Captures("*\xc3\xa9", "x\xc3\xa9") == Captured{"x"});
  CHECK_FALSE(Captures("a*c", "ab"));
}

TEST_CASE("captures are the shortest, the first one first") {
  rc::prop("short patterns and names of few letters", [] {
    const auto text = [](const char* letters, int64_t count) {
      std::string out;
      for (int i = *rc::gen::inRange(0, 8); i > 0; --i) out += letters[*rc::gen::inRange<int64_t>(0, count)];
      return out;
    };
    const std::string pattern = text("ab*?", 4), name = text("ab", 2);
    RC_ASSERT(Captures(pattern, name) == Slowly(pattern, name));
    RC_ASSERT(MatchesPattern(pattern, name) == Slowly(pattern, name).has_value());
  });
}

}  // namespace reshard
