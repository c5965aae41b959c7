// reshard/checkpoint/rules.h: patterns against a slow definition, rules, and what is said of wrong ones.
#include "reshard/checkpoint/rules.h"

#include <string>

#include "reshard/layout/text.h"
#include "tests/catch.h"
#include "tests/property.h"

namespace reshard {
namespace {

// The definition, by trying everything. ASCII only.
bool Matches(std::string_view pattern, std::string_view name) {
  if (pattern.empty()) return name.empty();
  if (pattern[0] == '*') return Matches(pattern.substr(1), name) || (!name.empty() && Matches(pattern, name.substr(1)));
  return !name.empty() && (pattern[0] == '?' || pattern[0] == name[0]) && Matches(pattern.substr(1), name.substr(1));
}

void CheckError(const absl::Status& status, std::string_view part) {
  INFO(status);
  CHECK(absl::IsInvalidArgument(status));
  CHECK(std::string(status.message()).find(part) != std::string::npos);
}

TEST_CASE("patterns") {
  CHECK(MatchesPattern("*", ""));
  CHECK(MatchesPattern("", ""));
  CHECK(!MatchesPattern("", "a"));
  CHECK(!MatchesPattern("?", ""));
  CHECK(MatchesPattern("*.wq.weight", "layers.0.wq.weight"));
  CHECK(!MatchesPattern("wq.weight", "layers.0.wq.weight"));
  CHECK(!MatchesPattern("layers.?.w", "layers.10.w"));
  CHECK(MatchesPattern("layers.??.w", "layers.10.w"));
  // All else is itself.
  CHECK(MatchesPattern("a[0-9]\\.{b}", "a[0-9]\\.{b}"));
  CHECK(!MatchesPattern("a.b", "aXb"));
  CHECK(MatchesPattern("*\n*", "x\ny"));
  // One character is one of UTF-8.
  CHECK(MatchesPattern("a?b",
                       "a\xc3\xa9"
                       "b"));
  CHECK(MatchesPattern("?", "\xf0\x9f\x90\x99"));
  CHECK(!MatchesPattern("??", "\xf0\x9f\x90\x99"));
  CHECK(!MatchesPattern("*??", "\xc3\xa9"));
  CHECK(MatchesPattern("*\xc3\xa9", "x\xc3\xa9"));
}

TEST_CASE("patterns: as defined") {
  rc::prop("short texts of few letters", [] {
    const auto text = [](const char* letters, int most) {
      std::string out;
      for (int n = *rc::gen::inRange(0, most); n > 0; --n) out += *rc::gen::elementOf(std::string(letters));
      return out;
    };
    const std::string pattern = text("ab*?", 8), name = text("ab", 10);
    RC_ASSERT(MatchesPattern(pattern, name) == Matches(pattern, name));
  });
}

TEST_CASE("patterns: no blow-up") {
  std::string pattern, name(20000, 'a');
  for (int i = 0; i < 2000; ++i) pattern += "*a";
  CHECK(MatchesPattern(pattern, name));
  CHECK(!MatchesPattern(pattern + "*b", name));
}

TEST_CASE("rules: the first match wins") {
  auto rules = LayoutRules::Parse(
      R"( {"layouts":[["*.wq.weight","[<tp>, *]"],["norm","[...]"],["*","[<dp>, ...]"]], "mesh":"{dp:2,tp:4}"} )");
  REQUIRE(rules.ok());
  CHECK(ToString(rules->mesh()) == "{dp:2,tp:4}");
  CHECK(rules->rules().size() == 3);
  CHECK(rules->Match("a.wq.weight") == &rules->rules()[0]);
  CHECK(rules->Match("") == &rules->rules()[2]);
  CHECK(ToString(*rules->LayoutFor("a.wq.weight", {8, 6})) == "[2<tp>8, 6]");
  CHECK(ToString(*rules->LayoutFor("a.wk.weight", {8, 6})) == "[4<dp>8, 6]");
  CHECK(ToString(*rules->LayoutFor("b", {5})) == "[3<dp>5]");
  CHECK(ToString(*rules->LayoutFor("norm", {})) == "[]");
  CHECK(ToString(*rules->LayoutFor("norm", {3, 4})) == "[3, 4]");

  // Too many dimensions fit no rule, too few only those for many tensors.
  CheckError(rules->LayoutFor("a.wq.weight", {8, 2, 2}).status(),
             "tensor \"a.wq.weight\" of shape [8, 2, 2], rule \"*.wq.weight\"");
  CHECK(ToString(*rules->LayoutFor("a.wq.weight", {8})) == "[2<tp>8]");
  CHECK(ToString(*rules->LayoutFor("a.wq.weight", {})) == "[]");
  CHECK(ToString(*rules->LayoutFor("x", {})) == "[]");
}

TEST_CASE("rules: one that names a tensor is strict") {
  auto rules = LayoutRules::Parse(
      R"({"mesh":"{dp:2}","layouts":[["step","[<dp>]"],["?.s","[<dp>4, ...]"],["?.t","[..., <dp>]"]]})");
  REQUIRE(rules.ok());
  CheckError(rules->LayoutFor("step", {}).status(), "tensor \"step\" of shape [], rule \"step\"");
  CheckError(rules->LayoutFor("a.s", {}).status(), "tensor \"a.s\" of shape [], rule \"?.s\"");
  CHECK(ToString(*rules->LayoutFor("a.t", {})) == "[]");
  CHECK(ToString(*rules->LayoutFor("a.t", {3, 4})) == "[3, 2<dp>4]");
}

TEST_CASE("rules: none matches") {
  auto rules = LayoutRules::Parse(R"({"mesh":"{dp:2}","layouts":[["a*","[<dp>]"]]})");
  REQUIRE(rules.ok());
  CHECK(rules->Match("b") == nullptr);
  CheckError(rules->LayoutFor("b\n", {2}).status(), "no rule matches tensor \"b");
}

TEST_CASE("rules: one for all") {
  auto rules = LayoutRules::ForAll("{x:2}", "[<x>, ...]");
  REQUIRE(rules.ok());
  CHECK(ToString(*rules->LayoutFor("anything", {4, 4})) == "[2<x>4, 4]");
  CheckError(LayoutRules::ForAll("{x:2", "[...]").status(), "mesh: ");
}

TEST_CASE("rules: wrong texts, and where") {
  const auto wrong = [](std::string_view json, std::string_view part) {
    INFO(json);
    CheckError(LayoutRules::Parse(json).status(), part);
  };
  wrong("", "not JSON at byte");
  wrong("[]", "not a JSON object");
  wrong("{}", "no mesh");
  wrong(R"({"mesh":"{x:2}"})", "no layouts");
  wrong(R"({"mesh":"{x:0}","layouts":[]})", "mesh: ");
  wrong(R"({"mesh":{"x":2},"layouts":[]})", "mesh: not a string");
  wrong(R"({"mesh":"{x:2}","layouts":{}})", "layouts: not a list");
  wrong(R"({"mesh":"{x:2}","layout":[]})", "\"layout\" is neither");
  wrong(R"({"mesh":"{x:2}","layouts":["a"]})", "layouts[0]: not a list");
  wrong(R"({"mesh":"{x:2}","layouts":[["a","[*]"],["c"]]})", "layouts[1]: a pattern and a layout are needed");
  wrong(R"({"mesh":"{x:2}","layouts":[["c"],["a","b"]]})", "layouts[0]: a pattern and a layout are needed");
  wrong(R"({"mesh":"{x:2}","layouts":[[],["a","b"]]})", "layouts[0]: a pattern and a layout are needed");
  wrong(R"({"mesh":"{x:2}","layouts":[["a","[*]"],["a","[*]","c"]]})", "layouts[1]: more than");
  wrong(R"({"mesh":"{x:2}","layouts":[["a*","[<q>]"]]})", "unknown axis \"q\"");
  wrong(R"({"mesh":"{x:2}","layouts":[["a",1]]})", "layouts[0]: the layout is not text");
  wrong(R"({"mesh":"{x:2}","layouts":[[null,"b"]]})", "layouts[0]: the pattern is not text");
  wrong(R"({"mesh":"{x:2}","mesh":"{x:2}","layouts":[]})", "\"mesh\" appears twice");
  wrong(R"({"mesh":"{x:2}","layouts":[["a","b"]]} x)", "not JSON at byte");
  wrong("{\"mesh\":\"{x:2}\xff\",\"layouts\":[]}", "not JSON at byte");
  wrong(std::string(100000, '['), "not a JSON object");
  wrong(R"({"mesh":"{x:2}","layouts":[[)" + std::string(100000, '['), "not text");
}

}  // namespace
}  // namespace reshard
