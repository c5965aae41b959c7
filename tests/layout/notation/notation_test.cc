#include "reshard/layout/notation.h"

#include "reshard/layout/shard_map.h"
#include "reshard/layout/text.h"
#include "tests/layout/gen.h"
#include "tests/property.h"

namespace reshard {
namespace {

using testing::AnyLayout;
using testing::AnyMesh;
using testing::Draw;
using testing::LayoutGen;
using testing::LayoutOf;
using testing::MeshOf;
using testing::Message;

constexpr Notation kAll[] = {Notation::kReshard, Notation::kDTensor, Notation::kJax, Notation::kShardy, Notation::kHlo};

TEST_CASE("every notation has a name") {
  for (const Notation notation : kAll) CHECK(ParseNotation(Name(notation)) == notation);
  CHECK_FALSE(ParseNotation("HLO").has_value());
  CHECK_FALSE(ParseNotation("").has_value());
}

TEST_CASE("the own notation reads layouts and layout rules") {
  const auto mesh = MeshOf("{tp:4}");
  CHECK(ToString(*ImportLayout(Notation::kReshard, "[2<tp>8, 3]", mesh, {8, 3})) == "[2<tp>8, 3]");
  CHECK(ToString(*ImportLayout(Notation::kReshard, "[<tp>, *]", mesh, {8, 3})) == "[2<tp>8, 3]");
  CHECK_FALSE(ImportLayout(Notation::kReshard, "[2<tp>8, 3]", mesh, {9, 3}).ok());
  CHECK(*ExportLayout(Notation::kReshard, LayoutOf("[<tp>8]", mesh)) == "[2<tp>8]");
}

TEST_CASE("what people paste is recognized") {
  const auto mesh = MeshOf("{dp:2,tp:4}");
  const std::vector<int64_t> shape = {8, 8};
  const auto read = [&](const char* text) {
    const auto layout = ReadLayout(text, mesh, Notation::kReshard, shape);
    return layout.ok() ? ToString(*layout) : Message(layout.status());
  };
  for (const char* text :
       {"S(0)R", "S0R", "S0, R", "[\"S(0)\", \"R\"]", "['S0','R']", "(Shard(dim=0), Replicate())", "P('dp', None)",
        "PartitionSpec('dp',)",
        "NamedSharding(mesh=Mesh('dp': 2, 'tp': 4), spec=PartitionSpec('dp', None), memory_kind=host)"}) {
    CAPTURE(text);
    CHECK(read(text) == "[4<dp>8, 8]");
    const auto without_shape = ReadLayout(text, mesh, Notation::kReshard, std::nullopt);
    CHECK_THAT(Message(without_shape.status()), Catch::Contains("has no sizes: give the shape"));
  }
  CHECK(read("RR") == "[8, 8]");
  CHECK(read("S1S1") == "[8, 1<dp,tp>8]");
  CHECK(read("[4<dp>8, 8]") == "[4<dp>8, 8]");
  for (const char* text :
       {"S0", "S9R", "'S0\"R", "Q", "[<ep>8, 8]", "NamedSharding(", "NamedSharding(PartitionSpec("}) {
    CAPTURE(text);
    const auto layout = ReadLayout(text, mesh, Notation::kReshard, shape);
    CHECK(layout.status().code() == absl::StatusCode::kInvalidArgument);
    CHECK(NamesUnknownAxis(layout.status()) == (std::string_view(text) == "[<ep>8, 8]"));
  }
}

TEST_CASE("a mesh that is written otherwise is named as it is written here") {
  for (const auto& [text, meant] :
       {std::pair{"DeviceMesh((dp=2, tp=4), device: 'cuda', stride: (4, 1))", "{dp:2,tp:4}"},
        {"dp=4,tp=8", "{dp:4,tp:8}"},
        {"Mesh('dp': 4, 'tp': 8)", "{dp:4,tp:8}"},
        {"(4, 8)", "{d0:4,d1:8}"},
        {"4", "{d0:4}"}}) {
    const auto mesh = ReadMesh(text);
    CHECK_THAT(Message(mesh.status()), Catch::Contains(std::string("; is it ") + meant + "?\n"));
  }
  for (const char* text : {"", "dp", "{X:4", "(1,2,3,4,5,6,7,8,9,10)", "{X:99999999999}", "\x80=4"}) {
    CHECK(ReadMesh(text).status().code() == absl::StatusCode::kInvalidArgument);
  }
  CHECK_THAT(Message(ReadMesh("[<X>512, 128]").status()), Catch::Contains("this is a layout, and its mesh"));
  CHECK(ReadMesh("{X:4}").ok());
}

TEST_CASE("what is exported means the same when it is imported") {
  for (const Notation notation : kAll) {
    for (const bool even : {true, false}) {
      LayoutGen gen;
      gen.even = even;
      rc::prop(std::string(Name(notation)) + (even ? ", even sizes" : ", any sizes"), [&] {
        const Layout layout = AnyLayout(AnyMesh(), gen);
        const absl::StatusOr<std::string> text = ExportLayout(notation, layout);
        if (!text.ok()) {
          RC_ASSERT(text.status().code() == absl::StatusCode::kUnimplemented);
          RC_ASSERT(notation != Notation::kReshard);
          return;
        }
        const absl::StatusOr<Layout> back = ImportLayout(notation, *text, layout.mesh(), layout.shape());
        RC_ASSERT(back.ok());
        RC_ASSERT(*Equivalent(*back, layout));
      });
    }
  }
}

TEST_CASE("what a notation can say is not refused") {
  // Even sizes and whole axes: everybody can say it. Parts of axes: Shardy and HLO.
  LayoutGen gen;
  gen.even = true;
  gen.digits = gen.reflected = gen.sizes = gen.partial = false;
  for (const Notation notation : kAll) {
    gen.sub_axes = notation == Notation::kShardy || notation == Notation::kHlo;
    rc::prop(Name(notation), [&] { RC_ASSERT(ExportLayout(notation, AnyLayout(AnyMesh(), gen)).ok()); });
  }
  gen.sub_axes = false;
  gen.digits = true;
  rc::prop("dtensor, with digits",
           [&] { RC_ASSERT(ExportLayout(Notation::kDTensor, AnyLayout(AnyMesh(), gen)).ok()); });
  gen.digits = false;
  gen.even = false;
  rc::prop("dtensor, uneven without digits",
           [&] { RC_ASSERT(ExportLayout(Notation::kDTensor, AnyLayout(AnyMesh(), gen)).ok()); });
}

TEST_CASE("any text gets a layout or a reason, in every notation") {
  const std::string alphabet = "[](){}<>=,:;'\"@#?.-_ 0123SRPTdimsfXYabpNone\n\xC3";
  const std::vector<std::string> good = {"S(0)[1]S(0)[0]",
                                         "(_StridedShard(dim=0, sf=2), Shard(dim=1))",
                                         "PartitionSpec('X', ('Y',), unreduced={'Y'})",
                                         "#sdy.sharding<@mesh, [{\"X\"}, {\"Y\":(1)2, ?}p1], unreduced={\"Y\":(2)2}>",
                                         "{devices=[2,1,4]<=[4,2]T(1,0) last_tile_dim_replicate}",
                                         "{devices=[2,4]0,1,2,3,4,5,6,7}"};
  for (const Notation notation : kAll) {
    rc::prop(std::string(Name(notation)) + ", random and damaged texts", [&] {
      const auto mesh = MeshOf("{X:2,Y:4}");
      std::string text;
      if (Draw(0, 1) == 0) {
        const int64_t length = Draw(0, 25);
        for (int64_t i = 0; i < length; ++i) {
          text += alphabet[Draw(0, static_cast<int64_t>(alphabet.size()) - 1)];
        }
      } else {
        text = good[Draw(0, static_cast<int64_t>(good.size()) - 1)];
        const int64_t changes = Draw(0, 2);
        for (int64_t i = 0; i < changes; ++i) {
          text[Draw(0, static_cast<int64_t>(text.size()) - 1)] =
              alphabet[Draw(0, static_cast<int64_t>(alphabet.size()) - 1)];
        }
      }
      const absl::StatusOr<Layout> layout = ImportLayout(notation, text, mesh, {8, 6});
      if (layout.ok()) return;
      RC_ASSERT(layout.status().code() == absl::StatusCode::kInvalidArgument ||
                layout.status().code() == absl::StatusCode::kUnimplemented);
      RC_ASSERT(Message(layout.status()).find(" at column ") != std::string::npos);
    });
  }
}

TEST_CASE("a megabyte of anything is answered, in every notation") {
  const auto mesh = MeshOf("{X:2,Y:4}");
  constexpr size_t kMega = 1 << 20;
  const auto repeat = [&](std::string_view head, std::string_view item, std::string_view tail) {
    std::string text(head);
    while (text.size() < kMega) text += item;
    return text += tail;
  };
  std::vector<std::string> texts;
  for (const char c : {'<', '[', '{', '(', '1', '"', '\'', ' ', '-', 'S', 'R', '\0', '\xFF'}) {
    texts.emplace_back(kMega, c);
  }
  texts.push_back(repeat("", "S(0)", ""));
  texts.push_back(repeat("P(", "'X',", ")"));
  texts.push_back(repeat("P((", "'X',", "))"));
  texts.push_back(repeat("P(unreduced={", "'X',", "})"));
  texts.push_back(repeat("P(", "(),", ")"));
  texts.push_back(repeat("P('", "X", "')"));
  texts.push_back(repeat("<@m, [", "{},", "{}]>"));
  texts.push_back(repeat("<@m, [{", "\"X\":(1)1,", "\"X\"}, {}]>"));
  texts.push_back(repeat("<@m, [{}, {}]", ", replicated={}", ">"));
  texts.push_back(repeat("<mesh<[", "\"X\"=1,", "\"X\"=1]>, []>"));
  texts.push_back(repeat("{devices=[", "1,", "8]<=[8]}"));
  texts.push_back(repeat("{devices=[8,1]<=[", "1,", "7]}"));
  texts.push_back(repeat("{devices=[8,1]<=[8]T(", "0,", "0)}"));
  texts.push_back(repeat("{devices=[8,1]", "0,", "0}"));
  texts.push_back(repeat("{devices=[8,1]<=[8] last_tile_dims={", "replicated,", "manual}}"));
  for (const std::string& text : texts) {
    CAPTURE(text.substr(0, 40));
    for (const Notation notation : kAll) {
      const absl::StatusOr<Layout> layout = ImportLayout(notation, text, mesh, {8, 8});
      CHECK_FALSE(layout.ok());
      CHECK(layout.status().message().size() < 600);
    }
  }
}

TEST_CASE("a shape that no tensor has is refused") {
  for (const Notation notation : kAll) {
    CHECK_FALSE(ImportLayout(notation, "()", MeshOf("{}"), std::vector<int64_t>(65, 1)).ok());
  }
  CHECK_FALSE(ImportLayout(Notation::kDTensor, "()", MeshOf("{}"), {-1}).ok());
  CHECK_FALSE(ImportLayout(Notation::kJax, "P()", MeshOf("{}"), {INT64_MAX, 2}).ok());
}

}  // namespace
}  // namespace reshard
