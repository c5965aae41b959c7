// Recipes: what their text means, what it refuses, and the way back.
#include "reshard/checkpoint/recipe.h"

#include <string>
#include <vector>

#include "checkpoint/recipe/name_pattern.h"
#include "tests/catch.h"

namespace reshard {
namespace {

using Op = Expression::Op;

std::string With(const std::string& members) { return R"({"schema": "reshard.recipe/1", )" + members + "}"; }
std::string Rule(const std::string& to, const std::string& from) {
  return With(R"("tensors": [{"to": ")" + to + R"(", "from": )" + from + "}]");
}

// What is said of a recipe that is refused.
std::string Refused(const std::string& text) {
  const absl::StatusOr<Recipe> recipe = Recipe::Parse(text);
  INFO(text);
  CHECK(recipe.status().code() == absl::StatusCode::kInvalidArgument);
  return std::string(recipe.status().message());
}

Recipe Parsed(const std::string& text) {
  absl::StatusOr<Recipe> recipe = Recipe::Parse(text);
  INFO(text);
  REQUIRE(recipe.status().ToString() == "OK");
  return *std::move(recipe);
}

bool Has(const std::string& text, const std::string& part) {
  INFO(text);
  CHECK(text.find(part) != std::string::npos);
  return text.find(part) != std::string::npos;
}

}  // namespace

TEST_CASE("a recipe is read as it is written") {
  const Recipe recipe = Parsed(With(R"(
      "description": "for a test", "include": ["model.*"], "exclude": ["*.bias"], "weights_only": true,
      "drop_byte_items": true, "strip_prefix": "model.", "rename": [["a.*", "b.$1"]], "add_prefix": "x.",
      "keep": ["*"], "drop": ["rotary.*"],  "dtype": [["*norm*", "f32"], ["*", "bf16"]],
      "mesh": "{tp:2}", "layouts": [["*", "[<tp>, ...]"]],
      "tensors": [{"to": "{p*}.qkv", "optional": true,
                   "from": {"concatenate": ["{p*}.q", {"cast": "{p*}.k", "dtype": "f32"}], "dim": -1, "ratio": [2, 1]}}])"));
  CHECK(recipe.selection.include == std::vector<std::string>{"model.*"});
  CHECK(recipe.selection.exclude == std::vector<std::string>{"*.bias"});
  CHECK(recipe.selection.weights_only);
  CHECK_FALSE(recipe.selection.byte_items);
  CHECK(recipe.selection.strip_prefix == "model.");
  CHECK(recipe.selection.add_prefix == "x.");
  CHECK(recipe.selection.renamings == std::vector<std::pair<std::string, std::string>>{{"a.*", "b.$1"}});
  CHECK(recipe.keep == std::vector<std::string>{"*"});
  CHECK(recipe.drop == std::vector<std::string>{"rotary.*"});
  CHECK(recipe.dtypes == std::vector<std::pair<std::string, DType>>{{"*norm*", DType::kF32}, {"*", DType::kBF16}});
  REQUIRE(recipe.layouts);
  CHECK(recipe.layouts->rules().size() == 1);
  REQUIRE(recipe.tensors.size() == 1);
  CHECK(recipe.tensors[0].optional);
  CHECK(ToString(recipe.tensors[0].from) == "concatenate({p*}.q, cast({p*}.k, dtype=f32), dim=-1, ratio=[2,1])");
}

TEST_CASE("each operation is written and shown with its own members") {
  const auto shown = [](const std::string& from) { return ToString(Parsed(Rule("t", from)).tensors[0].from); };
  CHECK(shown(R"("a")") == "a");
  CHECK(shown(R"({"concatenate": ["a", "b"], "sizes": [1, 2]})") == "concatenate(a, b, dim=0, sizes=[1,2])");
  CHECK(shown(R"({"split": "a", "sizes": [1, 2], "part": 1, "dim": 1})") == "split(a, dim=1, sizes=[1,2], part=1)");
  CHECK(shown(R"({"chunk": "a", "chunks": 3, "part": 0})") == "chunk(a, dim=0, chunks=3, part=0)");
  CHECK(shown(R"({"stack": "a.{e}", "over": "e"})") == "stack(a.{e}, dim=0, over={e})");
  CHECK(shown(R"({"unstack": "a", "part": 2})") == "unstack(a, dim=0, part=2)");
  CHECK(shown(R"({"transpose": "a", "dims": [0, 1]})") == "transpose(a, dims=[0,1])");
  CHECK(shown(R"({"permute": "a", "dims": [1, 0, 2]})") == "permute(a, dims=[1,0,2])");
  CHECK(shown(R"({"reshape": "a", "shape": [], "from": [1]})") == "reshape(a, shape=[], from=[1])");
  CHECK(shown(R"({"flatten": "a", "dims": [0, 1]})") == "flatten(a, dims=[0,1])");
  CHECK(shown(R"({"unflatten": "a", "sizes": [2, -1]})") == "unflatten(a, dim=0, sizes=[2,-1])");
  CHECK(shown(R"({"interleave": ["a", "b"], "blocks": 4})") == "interleave(a, b, dim=0, blocks=4)");
  CHECK(shown(R"({"deinterleave": "a", "blocks": 4, "ratio": [2, 1], "part": 1})") ==
        "deinterleave(a, dim=0, blocks=4, ratio=[2,1], part=1)");
  CHECK(shown(R"({"permute_for_rope": "a", "heads": 8})") == "permute_for_rope(a, heads=8)");
  CHECK(shown(R"({"slice": "a", "begin": 1, "end": -1})") == "slice(a, dim=0, begin=1, end=-1)");
  CHECK(shown(R"({"pad": "a", "to": 8, "value": 1.5})") == "pad(a, dim=0, to=8, value=1.5)");
  CHECK(shown(R"({"pad": "a", "to": 8, "value": -0.0, "from": 0})") == "pad(a, dim=0, to=8, value=-0, from=0)");
  CHECK(shown(R"({"cast": "a", "dtype": "bf16", "from": "f32"})") == "cast(a, dtype=bf16, from=f32)");
  CHECK(shown(R"({"dequantize": "a", "scales": "s"})") == "dequantize(a, scales=s, block=[128,128], dtype=bf16)");
  CHECK(shown(R"({"dequantize": "a", "scales": {"slice": "s", "end": 1}, "block": [1, -1], "dtype": "f32"})") ==
        "dequantize(a, scales=slice(s, dim=0, end=1), block=[1,-1], dtype=f32)");
  CHECK(shown(R"({"multiply": "a", "by": 0.5})") == "multiply(a, by=0.5)");
}

TEST_CASE("a malformed recipe is refused, with the place") {
  Has(Refused("{"), "byte");
  Has(Refused("[]"), "is not \"reshard.recipe/1\"");
  Has(Refused(R"({"schema": "reshard.recipe/2"})"), "is not \"reshard.recipe/1\"");
  Has(Refused(With(R"("tensor": [])")), "no member \"tensor\"");
  Has(Refused(With(R"("keep": "*")")), "keep: not a list of strings");
  Has(Refused(With(R"("keep": ["*"])")), "there are no rules for tensors");
  Has(Refused(With(R"("dtype": [["*", "bfloat"]])")), "\"bfloat\" is not a dtype");
  Has(Refused(With(R"("rename": [["a", "$1"]])")), "$ that stands for no *");
  Has(Refused(With(R"("mesh": "{tp:2}")")), "mesh and layouts are needed together");
  Has(Refused(With(R"("tensors": [{"to": "a"}])")), "tensors[0]: both to and from are needed");
  Has(Refused(With(R"("tensors": [{"to": "a", "from": "b", "if": 1}])")), "neither to, from nor optional");
  Has(Refused(Rule("a", "1")), "tensors[0].from: neither the name of a tensor nor an object with an operation");
  Has(Refused(Rule("a", R"({"stack": "b", "split": "c"})")), "both split and stack");
  Has(Refused(Rule("a", R"({"concatenate": []})")), "an empty list");
  Has(Refused(Rule("a", R"({"transpose": ["b"], "dims": [0, 1]})")), "tensors[0].from.transpose: neither");
  Has(Refused(Rule("a", R"({"transpose": "b"})")), "transpose needs \"dims\"");
  Has(Refused(Rule("a", R"({"split": "b", "part": 0})")), "split needs \"sizes\"");
  Has(Refused(Rule("a", R"({"split": "b", "part": 0, "sizes": [1], "ratio": [1]})")), "both sizes and ratio");
  Has(Refused(Rule("a", R"({"unflatten": "b", "ratio": [1]})")), "unflatten has no such member");
  Has(Refused(Rule("a", R"({"slice": "b", "dim": 0.5})")), "not a whole number");
  Has(Refused(Rule("a", R"({"flatten": "b", "dims": [9223372036854775807, 0]})")),
      "there is no dimension 9223372036854775807: a tensor has at most 64");
  Has(Refused(Rule("a", R"({"unflatten": "b", "dim": -65, "sizes": [2, 2]})")), "there is no dimension -65");
  Has(Refused(Rule("a", R"({"unstack": "b", "part": "x{e}"})")), "neither a number nor a placeholder");
  Has(Refused(Rule("a", R"({"cast": "b", "dtype": "integer"})")), "is not a dtype");
  Has(Refused(Rule("a", R"({"pad": "b", "to": 2, "from": -1})")), "not a size: -1");
  Has(Refused(Rule("a", R"({"dequantize": "b"})")), "dequantize needs \"scales\"");
  Has(Refused(Rule("a", R"({"multiply": "b"})")), "multiply needs \"by\"");
  Has(Refused(Rule("a", R"({"stack": "b.{e}", "over": "{e}"})")), "is not the name of a placeholder, without braces");
  Has(Refused(With(R"("mesh": "{x:2}", "layouts": [["*", "[...]"], ["a", "[<y>, ...]"]])")),
      "layouts[1]: unknown axis \"y\"");
  Has(Refused(With(R"("mesh": "{x:2}", "layouts": [["*", "garbage"]])")), "layouts[0]: ");
}

TEST_CASE("placeholders that have no value, or two, are refused") {
  Has(Refused(Rule("a.{i}", R"("b")")), "nothing says what {i} is");
  Has(Refused(Rule("a", R"("b.{i}")")), "which the new name lacks and no operation ranges over");
  Has(Refused(Rule("a.{i}.{j}", R"({"stack": ["b.{i}", "c.{j}"]})")), "has all placeholders of the new name");
  Has(Refused(Rule("a.{i}", R"("b.{i*}")")), "is a number here, any text there");
  Has(Refused(Rule("a.{i}", R"({"stack": "b.{i}", "over": "i"})")), "already has a value");
  Has(Refused(Rule("a", R"({"stack": "b", "over": "i"})")), "no name has {i}");
  Has(Refused(Rule("a", R"({"stack": "b.{i*}", "over": "i"})")), "only numbers have an order");
  Has(Refused(Rule("a", R"({"stack": ["b.{i}", "c.{i}"], "over": "i"})")), "takes one input");
  Has(Refused(Rule("a", R"({"unstack": "b", "part": "{i}"})")), "is not a placeholder of the new name");
  Has(Refused(Rule("a.{", R"("b")")), "a brace without its partner");
  Has(Refused(Rule("a.{1}", R"("b")")), "a placeholder that is not an identifier");
  Has(Refused(Rule("{a*}{b*}{c*}", R"("{a*}{b*}{c*}")")), "more than 2 placeholders that are any text");
  Has(Refused(Rule("", R"("b")")), "the new name is empty");
}

TEST_CASE("names match placeholders, numbers as they are written, texts as short as can be") {
  const auto match = [](const char* text, const char* name, const recipe::Values& known = {}) {
    const absl::StatusOr<recipe::NamePattern> pattern = recipe::NamePattern::Parse(text);
    REQUIRE(pattern.ok());
    return pattern->Match(name, known);
  };
  using Values = recipe::Values;
  CHECK(match("a.{i}.w", "a.10.w") == Values{{"i", "10"}});
  CHECK(match("a.{i}.w", "a.0.w") == Values{{"i", "0"}});
  CHECK_FALSE(match("a.{i}.w", "a.01.w"));
  CHECK(recipe::NamePattern::Parse("a.{i}.w")->MatchesButForZeros("a.01.w", {}));
  CHECK_FALSE(recipe::NamePattern::Parse("a.{i}.w")->MatchesButForZeros("a.1.w", {}));
  CHECK_FALSE(recipe::NamePattern::Parse("a.{i}.w")->MatchesButForZeros("a.x.w", {}));
  CHECK_FALSE(match("a.{i}.w", "a..w"));
  CHECK_FALSE(match("a.{i}.w", "a.1.v"));
  CHECK(match("{p*}.{i}.w", "a.1.2.w") == Values{{"p", "a.1"}, {"i", "2"}});
  CHECK(match("{p*}.{s*}", "a.b.c") == Values{{"p", "a"}, {"s", "b.c"}});
  CHECK(match("{i}.{i}", "3.3") == Values{{"i", "3"}});
  CHECK_FALSE(match("{i}.{i}", "3.4"));
  CHECK(match("{i}.w", "3.w", {{"i", "3"}}).has_value());
  CHECK_FALSE(match("{i}.w", "4.w", {{"i", "3"}}));
  CHECK(match("{{i}}.{i}", "{i}.5") == Values{{"i", "5"}});
  CHECK(recipe::ComesBefore("9", "10"));
  CHECK(recipe::ComesBefore("10", "a"));
  CHECK(recipe::ComesBefore("a", "b"));
  CHECK_FALSE(recipe::ComesBefore("5", "5"));
}

TEST_CASE("a recipe that loses nothing can be turned around") {
  const auto inverse = [](const std::string& to, const std::string& from) {
    const absl::StatusOr<Recipe> inverted = Parsed(Rule(to, from)).Inverted();
    INFO(inverted.status());
    REQUIRE(inverted.ok());
    std::string text;
    for (const TensorRule& rule : inverted->tensors) text += rule.to + " = " + ToString(rule.from) + "; ";
    return text;
  };
  CHECK(inverse("t", R"({"concatenate": ["a", "b"], "ratio": [2, 1]})") ==
        "a = split(t, dim=0, ratio=[2,1], part=0); b = split(t, dim=0, ratio=[2,1], part=1); ");
  CHECK(inverse("t.{l}", R"({"stack": "a.{l}.{e}", "over": "e", "dim": 1})") ==
        "a.{l}.{e} = unstack(t.{l}, dim=1, part={e}); ");
  CHECK(inverse("t", R"({"permute": "a", "dims": [2, 0, 1]})") == "a = permute(t, dims=[1,2,0]); ");
  CHECK(inverse("t", R"({"interleave": ["a", "b"], "blocks": 2, "sizes": [3, 1]})") ==
        "a = deinterleave(t, dim=0, blocks=2, sizes=[3,1], part=0); "
        "b = deinterleave(t, dim=0, blocks=2, sizes=[3,1], part=1); ");
  CHECK(inverse("t", R"({"pad": "a", "to": 8, "from": 7})") == "a = slice(t, dim=0, end=7); ");
  CHECK(inverse("t", R"({"cast": "a", "dtype": "f32", "from": "bf16"})") == "a = cast(t, dtype=bf16, from=f32); ");
  CHECK(inverse("t", R"({"unflatten": "a", "dim": 1, "sizes": [2, -1]})") == "a = flatten(t, dims=[1,2]); ");
  CHECK(inverse("t", R"({"flatten": "a", "dims": [1, 2], "from": [3, 4]})") ==
        "a = unflatten(t, dim=1, sizes=[3,4]); ");
  CHECK(inverse("t", R"({"reshape": "a", "shape": [4], "from": [2, 2]})") == "a = reshape(t, shape=[2,2]); ");
  // Any number of inputs, where something says how long each is.
  CHECK(inverse("t", R"({"concatenate": "a.{e}", "over": "e", "ratio": [2, 1]})") ==
        "a.{e} = split(t, dim=0, ratio=[2,1], part={e}); ");
  CHECK(inverse("t.{l}", R"({"interleave": "a.{l}.{e}", "over": "e", "dim": 1, "blocks": 2, "sizes": [3, 1]})") ==
        "a.{l}.{e} = deinterleave(t.{l}, dim=1, blocks=2, sizes=[3,1], part={e}); ");
  // All parts of something, made by one rule.
  CHECK(inverse("t.{e}", R"({"split": "a", "dim": -1, "sizes": [2, 1], "part": "{e}"})") ==
        "a = concatenate(t.{e}, dim=-1, sizes=[2,1], over={e}); ");
  CHECK(inverse("t.{e}", R"({"chunk": "a", "chunks": 3, "part": "{e}"})") ==
        "a = concatenate(t.{e}, dim=0, ratio=[1,1,1], over={e}); ");
  CHECK(inverse("t.{l}.{e}", R"({"unstack": "a.{l}", "part": "{e}"})") ==
        "a.{l} = stack(t.{l}.{e}, dim=0, over={e}); ");
  CHECK(inverse("t.{e}", R"({"deinterleave": "a", "blocks": 4, "ratio": [2, 1], "part": "{e}"})") ==
        "a = interleave(t.{e}, dim=0, blocks=4, ratio=[2,1], over={e}); ");
  CHECK(inverse("t.{e}", R"({"stack": {"chunk": "a.{l}", "chunks": 2, "part": "{e}"}, "over": "l"})") ==
        "a.{l} = concatenate(unstack(t.{e}, dim=0, part={l}), dim=0, ratio=[1,1], over={e}); ");
  CHECK(inverse("t", R"({"chunk": "a", "chunks": 1, "part": 0})") == "a = t; ");
  // Dimensions that count from the end.
  CHECK(inverse("t", R"({"flatten": "a", "dims": [-3, -2], "from": [3, 4]})") ==
        "a = unflatten(t, dim=-2, sizes=[3,4]); ");
  CHECK(inverse("t", R"({"flatten": "a", "dims": [-2, 2], "from": [3, 4]})") ==
        "a = unflatten(t, dim=1, sizes=[3,4]); ");
  CHECK(inverse("t", R"({"unflatten": "a", "dim": -2, "sizes": [3, 4]})") == "a = flatten(t, dims=[-3,-2]); ");
  CHECK(inverse("t", R"({"pad": "a", "to": 8, "from": 0})") == "a = slice(t, dim=0, end=0); ");
  CHECK(inverse("t", R"({"permute_for_rope": "a", "heads": 2})") ==
        "a = flatten(transpose(unflatten(t, dim=0, sizes=[2,2,-1]), dims=[1,2]), dims=[0,2]); ");
}

TEST_CASE("what loses something, or does not say enough, is not turned around") {
  const auto refused = [](const std::string& text) {
    const absl::StatusOr<Recipe> inverted = Parsed(text).Inverted();
    INFO(text);
    CHECK(inverted.status().code() == absl::StatusCode::kInvalidArgument);
    return std::string(inverted.status().message());
  };
  Has(refused(Rule("t", R"({"slice": "a", "end": 2})")), "of \"t\", slice(a, dim=0, end=2) cannot be undone");
  Has(refused(Rule("t", R"({"concatenate": ["a", "b"]})")), "how long the parts are");
  Has(refused(Rule("t", R"({"cast": "a", "dtype": "bf16"})")), "what it was cast from");
  Has(refused(Rule("t", R"({"cast": "a", "dtype": "bf16", "from": "f32"})")), "it loses bits of what it was cast from");
  Has(refused(Rule("t", R"({"pad": "a", "to": 2})")), "how long it was");
  Has(refused(Rule("t", R"({"flatten": "a", "dims": [0, 1]})")), "what sizes");
  Has(refused(Rule("t", R"({"reshape": "a", "shape": [4]})")), "what shape");
  Has(refused(Rule("t", R"({"chunk": "a", "chunks": 2, "part": 0})")), "the other parts");
  Has(refused(Rule("t", R"({"concatenate": "a.{e}", "over": "e"})")), "how long the parts are");
  Has(refused(Rule("t.{e}", R"({"concatenate": ["b.{e}", {"unstack": "a", "part": "{e}"}], "sizes": [1, 1]})")),
      "{e} is in a name it is made from, too");
  Has(refused(Rule("t", R"({"dequantize": "a", "scales": "s"})")), "it forgets the quantized values and their scales");
  Has(refused(Rule("t", R"({"multiply": "a", "by": 2})")), "it rounds");
  Has(refused(With(R"("strip_prefix": "model.")")), "\"strip_prefix\" takes \"model.\" from the names that have it");
  Has(refused(With(R"("drop": ["x"])")), "it drops \"x\"");
  Has(refused(With(R"("dtype": [["*", "bf16"]])")), "it casts \"*\"");
  Has(refused(With(R"("exclude": ["x"])")), "only a part");
  Has(refused(With(R"("rename": [["a", "b"]])")), "the renaming of \"a\"");
}

}  // namespace reshard
