// Untrusted JSON: what is read as it is, what is refused and how, and that a walk and a tree say the same.
#include "json/document.h"

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "json/walk.h"
#include "tests/catch.h"

namespace reshard::json {
namespace {

TEST_CASE("a document has the values of its text") {
  const auto document = Document::Parse(
      R"( {"a":{"shape":[2,-3,2.5,18446744073709551615]},"text":"x\u00e9","yes":true,"no":null,"none":[]} )");
  REQUIRE(document.ok());
  const Value root = document->root();
  REQUIRE(root.is_object());
  CHECK(root.Keys() == std::vector<std::string>{"a", "no", "none", "text", "yes"});
  const Value shape = *root.Find("a")->Find("shape");
  REQUIRE(shape.is_array());
  REQUIRE(shape.size() == 4);
  CHECK(shape.at(0).Count() == 2);
  CHECK(shape.at(0).Integer() == 2);
  CHECK(shape.at(1).Count() == std::nullopt);
  CHECK(shape.at(1).Integer() == -3);
  CHECK(shape.at(2).Integer() == std::nullopt);
  CHECK(shape.at(2).Number() == 2.5);
  CHECK(shape.at(3).Count() == std::nullopt);
  CHECK(shape.at(3).Integer() == std::nullopt);
  CHECK(shape.Written() == "[2,-3,2.5,18446744073709551615]");
  CHECK(root.Find("text")->Text() == "x\u00e9");
  CHECK(root.Find("yes")->Bool() == true);
  CHECK(root.Find("yes")->Text() == std::nullopt);
  CHECK(root.Find("no")->is_null());
  CHECK(root.Find("none")->size() == 0);
  CHECK_FALSE(root.Find("b").has_value());
  CHECK_FALSE(shape.Find("a").has_value());
}

TEST_CASE("a walk visits every value once, with its path, in the order of the text") {
  std::vector<std::string> visited;
  const absl::Status walked =
      Walk(R"({"b":[true,{"c":1}],"a":"t"})", 8, [&](absl::Span<const PathStep> path, const WalkedValue& value) {
        visited.push_back(absl::StrCat(absl::StrJoin(path, "/",
                                                     [](std::string* out, const PathStep& step) {
                                                       absl::StrAppend(
                                                           out, step.index < 0 ? step.key : absl::StrCat(step.index));
                                                     }),
                                       " ", static_cast<int>(value.kind)));
        return absl::OkStatus();
      });
  REQUIRE(walked.ok());
  const auto kind = [](WalkedValue::Kind k) { return absl::StrCat(" ", static_cast<int>(k)); };
  using Kind = WalkedValue::Kind;
  CHECK(visited == std::vector<std::string>{kind(Kind::kObject), "b" + kind(Kind::kArray), "b/0" + kind(Kind::kBool),
                                            "b/1" + kind(Kind::kObject), "b/1/c" + kind(Kind::kInteger),
                                            "a" + kind(Kind::kString)});
}

TEST_CASE("a visitor's error ends the walk and is its error") {
  int visits = 0;
  const absl::Status walked = Walk("[1,2,3]", 8, [&](absl::Span<const PathStep>, const WalkedValue&) {
    return ++visits == 2 ? absl::NotFoundError("enough") : absl::OkStatus();
  });
  CHECK(walked == absl::NotFoundError("enough"));
  CHECK(visits == 2);
}

TEST_CASE("what is no JSON is refused with the byte, and so is what programs read in two ways") {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"", "not JSON at byte 1"},
      {"{", "not JSON at byte 2"},
      {"[1,]", "not JSON at byte 4"},
      {"[1] 2", "not JSON at byte 5"},
      {"nul", "not JSON at byte"},
      {"\"\xff\"", "not JSON at byte 2"},
      {std::string("[1]\0[2]", 7), "not JSON at byte 4: a NUL byte"},
      {R"({"a":1,"b":2,"a":3})", "the key \"a\" appears twice"},
      {R"({"a":{"x":1,"x":1}})", "the key \"x\" appears twice"},
  };
  for (const auto& [text, reason] : cases) {
    CAPTURE(text);
    const auto document = Document::Parse(text);
    CHECK(absl::IsInvalidArgument(document.status()));
    CHECK(std::string(document.status().message()).find(reason) == 0);
  }
  CHECK(Document::Parse(R"([{"a":1},{"a":1}])").ok());
}

TEST_CASE("what is nested deeper than allowed is refused, however deep") {
  const auto nested = [](size_t levels) { return std::string(levels, '[') + std::string(levels, ']'); };
  CHECK(Document::Parse(nested(Document::kDepth)).ok());
  CHECK(absl::IsInvalidArgument(Document::Parse(nested(Document::kDepth + 1)).status()));
  CHECK(absl::IsInvalidArgument(Document::Parse(nested(10'000'000)).status()));
  const auto ignore = [](absl::Span<const PathStep>, const WalkedValue&) { return absl::OkStatus(); };
  CHECK(absl::IsResourceExhausted(Walk(nested(5), 4, ignore)));
  CHECK(Document::Parse(nested(3), 3).ok());
  CHECK_FALSE(Document::Parse(nested(4), 3).ok());
}

TEST_CASE("messages show little of what they are about") {
  const auto document = Document::Parse(absl::StrCat(R"(["short",")", std::string(1000, 'x'), R"(",[)",
                                                     absl::StrJoin(std::vector<int>(17, 1), ","), "]]"));
  REQUIRE(document.ok());
  CHECK(document->root().at(0).Shown() == "\"short\"");
  CHECK(document->root().at(1).Shown().size() == 83);
  CHECK(document->root().at(2).Shown() == "a list of 17");
}

}  // namespace
}  // namespace reshard::json
