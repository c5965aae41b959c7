#include "reshard/layout/text.h"

#include "tests/layout/gen.h"
#include "tests/property.h"

namespace reshard {
namespace {

using testing::AnyLayout;
using testing::AnyMesh;
using testing::Draw;
using testing::FirstLine;
using testing::LayoutOf;
using testing::MeshOf;
using testing::Message;

std::string Canonical(std::string_view text, std::string_view mesh) { return ToString(LayoutOf(text, mesh)); }

TEST_CASE("printing is canonical") {
  const char* mesh = "{X:4,Y:4,Z:16}";
  CHECK(Canonical("[32<X,Y>512, 128]", mesh) == "[32<X,Y>512, 128]");
  CHECK(Canonical(" [ < X , Y > 512 , 128 ] ", mesh) == "[32<X,Y>512, 128]");
  CHECK(Canonical("[32{X,Y}512,32{Z:(1)4}128]", mesh) == "[32<X,Y>512, 32<Z:(1)4>128]");
  CHECK(Canonical("[32<X>128, 64] sum<Y>", mesh) == "[32<X>128, 64] sum<Y>");
  CHECK(Canonical("[64]avg{Y,Z:(2)2}", mesh) == "[64] avg<Y,Z:(2)2>");
  CHECK(Canonical("[<X:(1)4>8]", mesh) == "[2<X:(1)4>8]");
  CHECK(Canonical("[<2,~X>16]", mesh) == "[4<2,~X>16]");
  CHECK(Canonical("[<X=[1,2,3,4]>10]", mesh) == "[4<X=[1,2,3,4]>10]");
  CHECK(Canonical("[]", mesh) == "[]");
  CHECK(Canonical("[] min<X>", mesh) == "[] min<X>");
  CHECK(Canonical("[<1,1>0]", mesh) == "[0<1,1>0]");
}

TEST_CASE("layouts round-trip through text") {
  rc::prop("any layout", [] {
    const Layout layout = AnyLayout(AnyMesh());
    const std::string text = ToString(layout);
    const absl::StatusOr<Layout> back = ParseLayout(text, layout.mesh());
    RC_ASSERT(back.ok());
    RC_ASSERT(*back == layout);
    RC_ASSERT(ToString(*back) == text);
    // A layout is also a rule for its own shape.
    const absl::StatusOr<Layout> rule = ParseLayoutRule(text, layout.mesh(), layout.shape());
    RC_ASSERT(rule.ok());
    RC_ASSERT(*rule == layout);
  });
}

TEST_CASE("errors show the text and the column") {
  const absl::Status error = ParseLayout("[32<Q>64]", MeshOf("{X:2,Y:2}")).status();
  CHECK(Message(error) == "unknown axis \"Q\" at column 5; the mesh has X, Y\n  [32<Q>64]\n      ^");
  CHECK(Message(ErrorAt("ab", 1, "bad", "do better")) == "bad at column 2; do better\n  ab\n   ^");
  CHECK(Message(ErrorAt("ab\ncd\nef", 4, "bad")) == "bad at column 5\n  cd\n   ^");
  CHECK(Message(ErrorAt("a\tb\x80", 3, "bad")) == "bad at column 4\n  a?b?\n     ^");
  CHECK(Message(ErrorAt("", 7, "bad")) == "bad at column 1\n  \n  ^");
  const std::string longtext = std::string(500, 'a') + "!" + std::string(500, 'b');
  CHECK(Message(ErrorAt(longtext, 500, "bad")) == "bad at column 501\n  ..." + std::string(60, 'a') + "!" +
                                                      std::string(39, 'b') + "...\n  " + std::string(63, ' ') + "^");
}

TEST_CASE("bad layouts are refused with the reason and the column") {
  const auto mesh = MeshOf("{X:2,Y:4}");
  const std::pair<std::string, std::string> cases[] = {
      {"", "expected '[', found the end at column 1"},
      {"[", "expected a dimension, found the end at column 2"},
      {"[4", "expected ']', found the end at column 3"},
      {"[4,]", "expected a dimension, found ']' at column 4"},
      {"[4 x]", "expected ']', found x at column 4"},
      {"[4]]", "expected the end, or sum, avg, min, max or prod, found ']' at column 4"},
      {"[<X]", "expected '>', found ']' at column 4"},
      {"[<X}4]", "expected '>', found '}' at column 4"},
      {"[{X>4]", "expected '}', found '>' at column 4"},
      {"[<X,>4]", "expected a factor, found '>' at column 5"},
      {"[<X>]", "expected the global size of the dimension, found ']' at column 5"},
      {"[2<X>]", "expected the global size of the dimension, found ']' at column 6"},
      {"[<-1>4]", "sizes cannot be negative at column 3"},
      {"[-4]", "sizes cannot be negative at column 2"},
      {"[+4]", "expected a dimension, found '+' at column 2"},
      {"[<X>-4]", "sizes cannot be negative at column 5"},
      {"[<0>4]", "a block count must be at least 1, not 0 at column 3"},
      {"[9223372036854775808]", "the number does not fit a signed 64-bit integer at column 2"},
      {"[9223372036854775807, 2]", "the number of elements does not fit a signed 64-bit integer at column 23"},
      {"[<X>8, <X>8]", "X is used twice at column 9"},
      {"[<X>8] sum<X>", "X is used twice at column 12"},
      {"[<Y:(1)2>8] sum<Y>", "Y overlaps with Y:(1)2, which is used too at column 17"},
      {"[<Y:(3)2>8]", "the part Y:(3)2 does not fit the axis: 3*2 must divide 4 at column 3"},
      {"[<Y:2>8]", "expected '(', found '2' at column 5"},
      {"[<Y:(1)>8]", "expected the size of the sub-axis, found '>' at column 8"},
      {"[<Y:(x)2>8]", "expected the size of the digit before, found x at column 6"},
      {"[<~Y:(1)2>8]", "only a whole axis can be reflected or have explicit sizes or slots, not Y:(1)2 at column 3"},
      {"[<~2>8]", "expected the name of an axis, found '2' at column 4"},
      {"[<X=4>8]", "expected '[', found '4' at column 5"},
      {"[<X=[]>8]", "expected a size, found ']' at column 6"},
      {"[<X=[4,5]>8]",
       "the explicit sizes of axis X add up to 9 but the intervals they cut have 8 elements at column 3"},
      {"[3<X>8]", "the local size is 4 (the largest shard), not 3 at column 2"},
      {"[<>4]", "expected a factor, found '>' at column 3"},
      {"[4{ }8]", "expected a factor, found '}' at column 5"},
      {"[<2000000>8]", "the dimension is cut into more than 1048576 intervals at column 3"},
      {"[*]", "'*' and '...' stand for sizes only in layout rules; a layout gives them at column 2"},
      {"[...]", "'*' and '...' stand for sizes only in layout rules; a layout gives them at column 2"},
      {"[4] sum", "expected '<', found the end at column 8"},
      {"[4] sum<>", "expected an axis, found '>' at column 9"},
      {"[4] add<X>", "unknown reduction \"add\"; there are sum, avg, min, max and prod at column 5"},
      {"[4] sum<X> sum<Y>", "expected the end, found sum at column 12"},
      {std::string("[4\0]", 4), "expected ']', found the byte 0x00; only ASCII text is read at column 3"},
      {"[\xE2\x89\xA4]", "expected a dimension, found the byte 0xE2; only ASCII text is read at column 2"},
  };
  for (const auto& [text, reason] : cases) {
    CAPTURE(text);
    const absl::StatusOr<Layout> layout = ParseLayout(text, mesh);
    REQUIRE_FALSE(layout.ok());
    CHECK(layout.status().code() == absl::StatusCode::kInvalidArgument);
    CHECK(FirstLine(layout.status()) == reason);
  }
  CHECK(FirstLine(ParseLayout("[<X>2]", MeshOf("{}")).status()) ==
        "unknown axis \"X\" at column 3; the mesh has no axes");
}

TEST_CASE("a megabyte of anything is answered, shortly") {
  const auto mesh = MeshOf("{X:2,Y:4}");
  constexpr size_t kMega = 1 << 20;
  std::vector<std::string> texts;
  for (const char c : {'<', '[', '{', '(', '1', 'a', ' ', ',', '~', '-', '\n', '\0', '\xFF'}) {
    texts.emplace_back(kMega, c);
    texts.push_back("[" + std::string(kMega, c));
    texts.push_back("[<" + std::string(kMega, c));
    texts.push_back("{X:" + std::string(kMega, c));
    texts.push_back("{X:2}@[" + std::string(kMega, c));
  }
  for (const std::string item : {"1,", "<X>4,", "4,", "[],", "X:2,"}) {
    std::string many;
    while (many.size() < kMega) many += item;
    texts.push_back("[" + many + "4]");
    texts.push_back("[<" + many + "1>4]");
    texts.push_back("[4] sum<" + many + "X>");
    texts.push_back("{" + many + "Z:1}");
    texts.push_back("{X:2}@[" + many + "1]");
  }
  texts.push_back("[<" + std::string(kMega, 'X') + ">4]");
  for (const std::string& text : texts) {
    CAPTURE(text.substr(0, 20));
    for (const absl::Status& status :
         {ParseMesh(text).status(), ParseLayout(text, mesh).status(), ParseLayoutRule(text, mesh, {4, 4}).status()}) {
      REQUIRE_FALSE(status.ok());
      CHECK(status.message().size() < 600);
      CHECK(FirstLine(status).find(" at column ") != std::string::npos);
    }
  }
}

TEST_CASE("any text gets a layout or a reason") {
  const std::string alphabet = "[]<>{}(),:~=*. @-+XYQ0123456789sum\n\t\xC3";
  rc::prop("texts made of the grammar's characters", [&] {
    const auto mesh = MeshOf("{X:2,Y:4}");
    std::string text;
    const int64_t length = Draw(0, 30);
    for (int64_t i = 0; i < length; ++i) text += alphabet[Draw(0, static_cast<int64_t>(alphabet.size()) - 1)];
    (void)ParseMesh(text);
    (void)ParseLayoutRule(text, mesh, {4, 6});
    const absl::StatusOr<Layout> layout = ParseLayout(text, mesh);
    if (!layout.ok()) RC_ASSERT(FirstLine(layout.status()).find(" at column ") != std::string::npos);
  });
  rc::prop("good texts with one character changed", [&] {
    const Layout layout = AnyLayout(AnyMesh());
    std::string text = ToString(layout);
    text[Draw(0, static_cast<int64_t>(text.size()) - 1)] = alphabet[Draw(0, static_cast<int64_t>(alphabet.size()) - 1)];
    const absl::StatusOr<Layout> back = ParseLayout(text, layout.mesh());
    if (back.ok()) {
      RC_ASSERT(*ParseLayout(ToString(*back), layout.mesh()) == *back);
    } else {
      RC_ASSERT(FirstLine(back.status()).find(" at column ") != std::string::npos);
    }
  });
}

TEST_CASE("layout rules take their sizes from the tensor") {
  const auto mesh = MeshOf("{dp:2,tp:4}");
  const auto fit = [&](std::string_view text, const std::vector<int64_t>& shape) {
    const absl::StatusOr<Layout> layout = ParseLayoutRule(text, mesh, shape);
    return layout.ok() ? ToString(*layout) : FirstLine(layout.status());
  };
  CHECK(fit("[<tp>, *]", {8, 3}) == "[2<tp>8, 3]");
  CHECK(fit("[*, <dp>]", {8, 3}) == "[8, 2<dp>3]");
  CHECK(fit("[<dp>, ...]", {8, 3, 5}) == "[4<dp>8, 3, 5]");
  CHECK(fit("[<dp>, ...]", {8}) == "[4<dp>8]");
  CHECK(fit("[..., <dp>]", {8, 3, 4}) == "[8, 3, 2<dp>4]");
  CHECK(fit("[<tp>, ..., <dp>]", {8, 4}) == "[2<tp>8, 2<dp>4]");
  CHECK(fit("[...]", {}) == "[]");
  CHECK(fit("[...]", {1, 2, 3}) == "[1, 2, 3]");
  CHECK(fit("[]", {}) == "[]");
  CHECK(fit("[<tp>] sum<dp>", {8}) == "[2<tp>8] sum<dp>");
  CHECK(fit("[2<tp>8, 3]", {8, 3}) == "[2<tp>8, 3]");
  CHECK(fit("[2<tp>, 3]", {8, 3}) == "[2<tp>8, 3]");
  CHECK(fit("[2<tp>, 3]", {9, 3}) == "the local size is 3 (the largest shard), not 2 at column 2");
  CHECK(fit("[<tp>8]", {9}) == "dimension 0 of the tensor has 9 elements, not 8 at column 6");
  CHECK(fit("[<tp>]", {8, 3}) == "the rule has 1 dimension but the tensor has 2 at column 1");
  CHECK(fit("[<tp>, ...]", {}) == "the rule has at least 1 dimension but the tensor has 0 at column 1");
  CHECK(fit("[*]", {}) == "the rule has 1 dimension but the tensor has 0 at column 1");
  CHECK(fit("[..., ...]", {1, 2}) == "'...' appears twice at column 7");
  CHECK(fit("[.., *]", {1, 2}) == "expected '...', found '.' at column 2");
  CHECK(fit("[*, *]", {-1, 2}) == "the size -1 is negative at column 2");
  CHECK(fit("[<tp>*]", {8}) == "expected ']', found '*' at column 6");
  CHECK(fit("[...]", std::vector<int64_t>(65, 1)) == "the layout has more than 64 dimensions at column 2");
}

TEST_CASE("layout rules for any rank cut the dimensions that are there") {
  const auto mesh = MeshOf("{dp:2,tp:4}");
  const auto fit = [&](std::string_view text, const std::vector<int64_t>& shape) {
    const absl::StatusOr<Layout> layout = ParseLayoutRuleForAnyRank(text, mesh, shape);
    return layout.ok() ? ToString(*layout) : FirstLine(layout.status());
  };
  CHECK(fit("[<tp>, ...]", {}) == "[]");
  CHECK(fit("[<tp>, *]", {8}) == "[2<tp>8]");
  CHECK(fit("[*, <tp>]", {8}) == "[8]");
  CHECK(fit("[..., <dp>, <tp>]", {8}) == "[2<tp>8]");
  CHECK(fit("[..., <dp>]", {}) == "[]");
  CHECK(fit("[<dp>, ..., <tp>]", {8}) == "[4<dp>8]");
  CHECK(fit("[<tp>] sum<dp>", {}) == "[] sum<dp>");
  // Enough dimensions: the same as for one rank.
  CHECK(fit("[<tp>, *]", {8, 3}) == "[2<tp>8, 3]");
  CHECK(fit("[<tp>, ...]", {8, 3}) == "[2<tp>8, 3]");
  CHECK(fit("[<tp>]", {8, 3}) == "the rule has 1 dimension but the tensor has 2 at column 1");
  // A size that is given is asked for.
  CHECK(fit("[<tp>8, ...]", {}) == "the rule has 1 dimension but the tensor has 0 at column 1");
  CHECK(fit("[*, 2<tp>]", {8}) == "the rule has 2 dimensions but the tensor has 1 at column 1");
}

}  // namespace
}  // namespace reshard
