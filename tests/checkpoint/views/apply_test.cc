// What the rules of a recipe make of a checkpoint's names and shapes.
#include "checkpoint/views/apply.h"

#include <map>
#include <string>
#include <vector>

#include "checkpoint/catalog/catalog_builder.h"
#include "checkpoint/formats/safetensors/format.h"
#include "checkpoint/views/scales.h"
#include "tests/catch.h"

namespace reshard {
namespace {

using Shape = std::vector<int64_t>;
using Tensors = std::vector<std::pair<std::string, Shape>>;

Catalog CatalogOf(const Tensors& tensors, DType dtype = DType::kF32) {
  catalog::CatalogBuilder builder(safetensors::kFormat, "");
  for (const auto& [name, shape] : tensors) REQUIRE(builder.AddTensor(name, "x", dtype, shape, false).ok());
  return std::move(builder).BuildUnstored();
}

absl::StatusOr<views::Applied> Applied(const std::string& members, const Catalog& catalog) {
  const absl::StatusOr<Recipe> recipe = Recipe::Parse(R"({"schema": "reshard.recipe/1", )" + members + "}");
  INFO(members);
  REQUIRE(recipe.status().ToString() == "OK");
  return views::Apply(*recipe, catalog);
}

// "name [shape] dtype = text" of each tensor.
std::vector<std::string> Made(const std::string& members, const Catalog& catalog) {
  const absl::StatusOr<views::Applied> applied = Applied(members, catalog);
  REQUIRE(applied.status().ToString() == "OK");
  std::vector<std::string> lines;
  for (size_t t = 0; t < applied->views.size(); ++t) {
    const Catalog::Tensor& tensor = applied->catalog.tensors()[t];
    std::string line = std::string(tensor.name) + " [";
    for (size_t d = 0; d < tensor.shape.size(); ++d) line += (d == 0 ? "" : ",") + std::to_string(tensor.shape[d]);
    line += "] " + std::string(Name(*tensor.dtype));
    const std::string& text = applied->views[t].text;
    lines.push_back(text.empty() ? line : line + " = " + text);
    CHECK(applied->catalog.FindTensor(tensor.name) == &tensor);
  }
  return lines;
}

std::string Refused(const std::string& members, const Catalog& catalog) {
  const absl::Status status = Applied(members, catalog).status();
  CHECK(status.code() == absl::StatusCode::kInvalidArgument);
  return std::string(status.message());
}

bool Has(const std::string& text, const std::string& part) {
  INFO(text);
  CHECK(text.find(part) != std::string::npos);
  return text.find(part) != std::string::npos;
}

Tensors Experts() {
  Tensors tensors = {{"norm", {4}}};
  for (int l = 0; l < 2; ++l) {
    for (int e = 0; e < 11; ++e) {
      tensors.emplace_back("l." + std::to_string(l) + ".e." + std::to_string(e) + ".w", Shape{3, 4});
    }
  }
  return tensors;
}

}  // namespace

TEST_CASE("a rule makes a tensor for all values of its placeholders, in the order of numbers") {
  const Catalog catalog = CatalogOf(Experts());
  CHECK(Made(R"("tensors": [{"to": "l.{l}.w", "from": {"stack": "l.{l}.e.{e}.w", "over": "e"}}], "keep": ["norm"])",
             catalog) == std::vector<std::string>{"norm [4] f32",
                                                  "l.0.w [11,3,4] f32 = stack(l.0.e.{e}.w, dim=0, over={e})",
                                                  "l.1.w [11,3,4] f32 = stack(l.1.e.{e}.w, dim=0, over={e})"});
  // Any text, and nothing kept.
  CHECK(Made(R"("tensors": [{"to": "{p*}.x", "from": {"transpose": "{p*}.e.10.w", "dims": [0, 1]}}], "drop": ["*"])",
             catalog) == std::vector<std::string>{"l.0.x [4,3] f32 = transpose(l.0.e.10.w, dims=[0,1])",
                                                  "l.1.x [4,3] f32 = transpose(l.1.e.10.w, dims=[0,1])"});
  // Renaming is a rule, too.
  CHECK(Made(R"("tensors": [{"to": "n", "from": "norm"}], "drop": ["l.*"])", catalog) ==
        std::vector<std::string>{"n [4] f32"});
}

TEST_CASE("a placeholder that is a part counts the parts") {
  const Catalog catalog = CatalogOf({{"l.0.w", {3, 2}}, {"l.1.w", {3, 2}}});
  CHECK(Made(R"("tensors": [{"to": "l.{l}.e.{e}", "from": {"unstack": "l.{l}.w", "part": "{e}"}}])", catalog) ==
        std::vector<std::string>{
            "l.0.e.0 [2] f32 = unstack(l.0.w, dim=0, part=0)", "l.0.e.1 [2] f32 = unstack(l.0.w, dim=0, part=1)",
            "l.0.e.2 [2] f32 = unstack(l.0.w, dim=0, part=2)", "l.1.e.0 [2] f32 = unstack(l.1.w, dim=0, part=0)",
            "l.1.e.1 [2] f32 = unstack(l.1.w, dim=0, part=1)", "l.1.e.2 [2] f32 = unstack(l.1.w, dim=0, part=2)"});
  CHECK(Made(R"("tensors": [{"to": "x.{i}.{j}", "from":
                {"chunk": {"split": "l.0.w", "sizes": [2, 1], "part": "{i}"}, "dim": 1, "chunks": 2, "part": "{j}"}}],
                "drop": ["*"])",
             catalog)
            .size() == 4);
}

TEST_CASE("a part of what goes over a placeholder is that part of each") {
  const Catalog catalog = CatalogOf({{"a.0", {3, 4}}, {"a.1", {3, 4}}});
  const auto shown = [&](const std::string& from) {
    return Made(R"("tensors": [{"to": "x.{e}", "from": )" + from + "}]", catalog);
  };
  CHECK(shown(R"({"stack": {"chunk": "a.{l}", "chunks": 3, "part": "{e}"}, "over": "l"})") ==
        std::vector<std::string>{"x.0 [2,1,4] f32 = stack(chunk(a.{l}, dim=0, chunks=3, part=0), dim=0, over={l})",
                                 "x.1 [2,1,4] f32 = stack(chunk(a.{l}, dim=0, chunks=3, part=1), dim=0, over={l})",
                                 "x.2 [2,1,4] f32 = stack(chunk(a.{l}, dim=0, chunks=3, part=2), dim=0, over={l})"});
  CHECK(shown(R"({"concatenate": {"split": "a.{l}", "dim": 1, "sizes": [1, 3], "part": "{e}"}, "over": "l"})") ==
        std::vector<std::string>{
            "x.0 [6,1] f32 = concatenate(split(a.{l}, dim=1, sizes=[1,3], part=0), dim=0, over={l})",
            "x.1 [6,3] f32 = concatenate(split(a.{l}, dim=1, sizes=[1,3], part=1), dim=0, over={l})"});
  // The number of parts is that of the tensors over which it goes.
  CHECK(shown(R"({"stack": {"unstack": "a.{l}", "dim": 1, "part": "{e}"}, "over": "l"})").size() == 4);
  const char* const unstacked = R"("tensors": [{"to": "x.{e}", "from":
      {"stack": {"slice": {"unstack": "a.{l}", "part": "{e}"}, "end": 1}, "over": "l"}}])";
  Has(Refused(unstacked, CatalogOf({{"a.0", {3, 4}}, {"a.1", {2, 4}}})), "{e} counts 3 parts of one tensor, and 2 of");
  Has(Refused(unstacked, CatalogOf({{"a.0", {2, 4}}, {"a.1", {3, 4}}})), "{e} counts 2 parts of one tensor, and 3 of");
  Has(Refused(unstacked, CatalogOf({{"a.1", {3, 4}}})), "there is no tensor \"a.0\"");
}

TEST_CASE("all operations of a part have as many parts, and the inner ones are counted first") {
  const Catalog catalog = CatalogOf({{"a", {5, 2}}, {"b", {4, 2}}});
  Has(Refused(R"("tensors": [{"to": "x.{e}", "from":
               {"concatenate": [{"unstack": "b", "part": "{e}"}, {"unstack": "a", "part": "{e}"}]}}])",
              catalog),
      "{e} counts 4 parts of one tensor, and 5 of another one");
  // The second part of `a` has three rows.
  CHECK(Made(R"("tensors": [{"to": "x.{j}.{i}", "from":
                {"unstack": {"split": "a", "sizes": [2, 3], "part": "{i}"}, "part": "{j}"}}], "keep": ["b"])",
             catalog)
            .size() == 6);
  Has(Refused(R"("tensors": [{"to": "x.{e}", "from": {"chunk": "a", "chunks": 0, "part": "{e}"}}], "keep": ["*"])",
              catalog),
      "there are no 0 chunks");
  Has(Refused(R"("tensors": [{"to": "x", "from": {"stack": ["b", {"unflatten": "a", "sizes": [1, 5]}]}}])", catalog),
      "inputs of different rank");
}

TEST_CASE("a number with zeros in front does not match, and that is said") {
  const Catalog catalog = CatalogOf({{"layers.00.w", {2}}, {"layers.01.w", {2}}});
  const std::string why = "; \"layers.00.w\" does not match: a number has no zeros in front";
  Has(Refused(R"("tensors": [{"to": "x.{l}", "from": "layers.{l}.w"}])", catalog),
      "there is no tensor \"layers.{l}.w\"" + why);
  Has(Refused(R"("tensors": [{"to": "x", "from": {"stack": "layers.{l}.w", "over": "l"}}])", catalog),
      "there is no tensor \"layers.{l}.w\"" + why);
  Has(Refused(R"("tensors": [{"to": "x.{l}", "from": "layers.{l}.w", "optional": true}])", catalog), why);
}

TEST_CASE("scales stay as they are unless a pattern means them, and what is not scaled is known") {
  catalog::CatalogBuilder builder(safetensors::kFormat, "");
  const auto add = [&](const char* name, DType dtype, const Shape& shape) {
    REQUIRE(builder.AddTensor(name, "x", dtype, shape, false).ok());
  };
  for (const char* name : {"a.weight", "b.weight"}) {
    add(name, DType::kF8E4M3FN, {130, 4});
    add((std::string(name) + "_scale_inv").c_str(), DType::kF32, {2, 1});
  }
  add("a.input_scale", DType::kF32, {});
  add("c_scale", DType::kF32, {2});
  const Catalog catalog = std::move(builder).BuildUnstored();
  CHECK(Made(R"("dtype": [["*", "bf16"]])", catalog) ==
        std::vector<std::string>{"a.weight [130,4] f8e4m3fn", "a.weight_scale_inv [2,1] f32",
                                 "b.weight [130,4] f8e4m3fn", "b.weight_scale_inv [2,1] f32", "a.input_scale [] f32",
                                 "c_scale [2] bf16 = cast(c_scale, dtype=bf16)"});
  CHECK(Made(R"("dtype": [["a.weight_scale_inv", "f64"], ["*scale_inv", "f16"]])", catalog)[1] ==
        "a.weight_scale_inv [2,1] f64 = cast(a.weight_scale_inv, dtype=f64)");
  const auto unscaled = [&](const std::string& members) {
    const Recipe recipe = *Recipe::Parse(R"({"schema": "reshard.recipe/1", )" + members + "}");
    const views::Applied applied = *views::Apply(recipe, catalog);
    return views::FindUnscaled(applied.views, applied.catalog, catalog, recipe);
  };
  const views::Unscaled all = unscaled(R"("dtype": [["*", "bf16"]])");
  CHECK(all.kept == std::vector<int64_t>{0, 2});
  CHECK(all.cast.empty());
  const views::Unscaled some = unscaled(R"("tensors": [
      {"to": "a.weight", "from": {"cast": "a.weight", "dtype": "f32"}},
      {"to": "b.weight", "from": {"dequantize": "b.weight", "scales": "b.weight_scale_inv"}}], "keep": ["*"],
      "dtype": [["*", "f16"]])");
  CHECK(some.kept.empty());
  CHECK(some.cast == std::vector<int64_t>{0});
}

TEST_CASE("what there are scales for is dequantized") {
  catalog::CatalogBuilder builder(safetensors::kFormat, "");
  REQUIRE(builder.AddTensor("a.weight", "x", DType::kF8E4M3FN, Shape{130, 4}, false).ok());
  REQUIRE(builder.AddTensor("a.weight_scale_inv", "x", DType::kF32, Shape{2, 1}, false).ok());
  REQUIRE(builder.AddTensor("norm.weight", "x", DType::kF32, Shape{4}, false).ok());
  const Catalog catalog = std::move(builder).BuildUnstored();
  const std::string rule = R"("tensors": [{"to": "{p*}.weight",
      "from": {"dequantize": "{p*}.weight", "scales": "{p*}.weight_scale_inv"}}], "keep": ["*"])";
  CHECK(Made(rule, catalog) ==
        std::vector<std::string>{
            "a.weight [130,4] bf16 = dequantize(a.weight, scales=a.weight_scale_inv, block=[128,128], dtype=bf16)",
            "norm.weight [4] f32"});
  const absl::StatusOr<views::Applied> applied = Applied(rule, catalog);
  REQUIRE(applied.ok());
  CHECK(views::FindPartlyUsed(applied->views, catalog).empty());
}

TEST_CASE("messages about names of any length and kind are short, and of visible characters") {
  const std::string longest(5000, 'x'), arabic = "\xd9\x85\xd8\xb1", bidi = "\xe2\x80\xae";
  const Catalog catalog = CatalogOf({{"Gr\xc3\xb6\xc3\x9f"
                                      "e.w",
                                      {2}},
                                     {arabic + bidi, {2}},
                                     {longest, {2}}});
  Has(Refused(R"("tensors": [{"to": "x", "from": "y"}])", catalog), "there is no tensor \"y\"");
  Has(Refused(R"("tensors": [{"to": "x", "from": {"slice": "Gr\u00f6\u00dfe.w", "end": 9}}])", catalog),
      "slice(Gr\xc3\xb6\xc3\x9f"
      "e.w, dim=0, end=9): ");
  const std::string other =
      Refused(R"("tensors": [{"to": "x", "from": "Gr\u00f6\u00dfe.w"}], "keep": ["x*"])", catalog);
  Has(other, "such as \"" + arabic + "?\"");
  for (const std::string& rule : {R"({"slice": ")" + longest + R"(", "end": 9})",
                                  R"({"stack": ["Gr\u00f6\u00dfe.w", ")" + longest + R"("], "dim": 7})",
                                  R"({"stack": ")" + longest + R"({i}", "over": "i"})"}) {
    CHECK(Refused(R"("tensors": [{"to": "x", "from": )" + rule + "}]", catalog).size() < 2000);
  }
}

TEST_CASE("what nobody asked for is not lost, and what is requested twice not made") {
  const Catalog catalog = CatalogOf({{"a", {2}}, {"b", {2}}, {"c", {2}}});
  Has(Refused(R"("tensors": [{"to": "x", "from": "a"}])", catalog),
      "2 tensors are used by no rule, such as \"b\"; say in \"keep\" or \"drop\"");
  Has(Refused(R"("tensors": [{"to": "x", "from": "a"}], "keep": ["b"])", catalog),
      "a tensor is used by no rule, such as \"c\"");
  Has(Refused(R"("tensors": [{"to": "b", "from": "a"}], "keep": ["*"])", catalog),
      "both tensor \"a\" and tensor \"b\" would be called \"b\"");
  Has(Refused(R"("tensors": [{"to": "x", "from": "a"}, {"to": "x", "from": {"slice": "b", "end": 1}}], "keep": ["*"])",
              catalog),
      "both tensor \"a\" and slice(b, dim=0, end=1) would be called \"x\"");
  Has(Refused(R"("tensors": [{"to": "x", "from": "d"}], "keep": ["*"])", catalog),
      "to make \"x\": there is no tensor \"d\"");
  CHECK(Made(R"("tensors": [{"to": "x", "from": "d", "optional": true}], "keep": ["*"])", catalog).size() == 3);
  Has(Refused(R"("drop": ["*"])", catalog), "nothing is left");
  CHECK(Made(R"("drop": ["b"])", catalog) == std::vector<std::string>{"a [2] f32", "c [2] f32"});
}

TEST_CASE("what goes over a placeholder is 0, 1, 2, ..., all of them there") {
  Tensors tensors = Experts();
  tensors.erase(tensors.begin() + 3);  // l.0.e.2.w
  const char* const recipe =
      R"("tensors": [{"to": "l.{l}.w", "from": {"stack": "l.{l}.e.{e}.w", "over": "e"}}], "keep": ["*"])";
  Has(Refused(recipe, CatalogOf(tensors)), "to make \"l.{l}.w\": there is no tensor \"l.0.e.2.w\", but one for e = 10");
  // Of another tensor of the same expression.
  Has(Refused(R"("tensors": [{"to": "w", "from":
               {"stack": {"concatenate": ["l.0.e.{e}.w", "l.1.e.{e}.w"]}, "over": "e"}}], "keep": ["*"])",
              CatalogOf({{"l.0.e.0.w", {2}}, {"l.0.e.1.w", {2}}, {"l.1.e.0.w", {2}}})),
      "there is no tensor \"l.1.e.1.w\"");
}

TEST_CASE("a few rules do not ask for any number of tensors") {
  Tensors tensors;
  for (int i = 0; i < 200; ++i) tensors.emplace_back("a." + std::to_string(i), Shape{0, 65536});
  const Catalog catalog = CatalogOf(tensors);
  Has(Refused(
          R"("tensors": [{"to": "x", "from": {"stack": {"stack": {"stack": {"concatenate": ["a.{i}", "a.{j}", "a.{k}"]},
                 "over": "k"}, "over": "j"}, "over": "i"}}], "keep": ["*"])",
          catalog),
      "use tensors more than 1048576 times");
  Has(Refused(R"("tensors": [{"to": "x.{i}.{j}", "from": {"unstack": {"chunk": "a.0", "chunks": 65536, "part": "{j}"},
                 "dim": 1, "part": "{i}"}}], "keep": ["*"])",
              catalog),
      "use tensors more than 1048576 times");
  Has(Refused(
          R"("tensors": [{"to": "x.{j}", "from": {"chunk": "a.0", "chunks": 65537, "part": "{j}"}}], "keep": ["*"])",
          catalog),
      "65537 parts are more than 65536");
}

TEST_CASE("floats are cast as the first pattern that matches says, others are left alone") {
  const Catalog floats = CatalogOf({{"a.norm", {2}}, {"a.w", {2, 2}}});
  CHECK(Made(R"("dtype": [["*norm", "f64"], ["*", "bf16"]])", floats) ==
        std::vector<std::string>{"a.norm [2] f64 = cast(a.norm, dtype=f64)", "a.w [2,2] bf16 = cast(a.w, dtype=bf16)"});
  CHECK(Made(R"("dtype": [["*norm", "f32"]])", floats) == std::vector<std::string>{"a.norm [2] f32", "a.w [2,2] f32"});
  CHECK(Made(R"("tensors": [{"to": "t", "from": {"transpose": "a.w", "dims": [0, 1]}}], "keep": ["*"],
                "dtype": [["t", "f16"]])",
             floats) ==
        std::vector<std::string>{"a.norm [2] f32", "t [2,2] f16 = cast(transpose(a.w, dims=[0,1]), dtype=f16)"});
  const Catalog integers = CatalogOf({{"a", {2}}}, DType::kI64);
  CHECK(Made(R"("dtype": [["*", "bf16"]])", integers) == std::vector<std::string>{"a [2] i64"});
  Has(Refused(R"("dtype": [["a", "bf16"]])", integers), "elements of type i64, and only floats are cast");
  Has(Refused(R"("dtype": [["a.w", "i32"]])", floats), "\"a.w\": f32 elements cannot be cast to i32");
}

}  // namespace reshard
