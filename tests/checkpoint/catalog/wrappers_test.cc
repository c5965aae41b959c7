// What wrappers have added to names, and what is left without.
#include "reshard/checkpoint/wrappers.h"

#include <string>
#include <utility>
#include <vector>

#include "checkpoint/catalog/catalog_builder.h"
#include "checkpoint/formats/dcp/format.h"
#include "reshard/checkpoint/selection.h"
#include "tests/catch.h"

namespace reshard {
namespace {

using Names = std::vector<std::string>;
using Path = std::vector<Catalog::PathStep>;

Catalog CatalogOf(const Names& names, const std::vector<Path>& paths = {}) {
  catalog::CatalogBuilder builder(dcp::kFormat, "");
  for (size_t i = 0; i < names.size(); ++i) {
    REQUIRE(builder.AddTensor(names[i], "torch.float32", DType::kF32, {2}, false).ok());
    if (i < paths.size()) builder.AddPath(names[i], paths[i]);
  }
  return std::move(builder).BuildUnstored();
}

// The texts that come off, one after the other, a part with a star before it.
Names Found(const Catalog& catalog, std::string_view strip_prefix = {}) {
  Names texts;
  for (const Wrapper& wrapper : FindWrappers(catalog, strip_prefix)) {
    texts.push_back((wrapper.place == Wrapper::Position::kPart ? "*" : "") + wrapper.text);
  }
  return texts;
}

Names Bare(const Names& names, const std::vector<Path>& paths = {}) {
  const std::vector<Wrapper> wrappers = FindWrappers(CatalogOf(names, paths));
  Names bare;
  for (const std::string& name : names) bare.push_back(WithoutWrappers(name, wrappers));
  return bare;
}

Path In(const char* container, const char* name) { return {std::string(container), std::string(name)}; }

}  // namespace

TEST_CASE("wrappers: parts come off wherever they stand, and are counted") {
  const Names names = {"_orig_mod.model.layers.0._fsdp_wrapped_module._checkpoint_wrapped_module.mlp.w",
                       "_orig_mod.model.layers.1._orig_mod.mlp.w", "_orig_mod.lm_head.w"};
  CHECK(Bare(names) == Names{"model.layers.0.mlp.w", "model.layers.1.mlp.w", "lm_head.w"});
  const std::vector<Wrapper> found = FindWrappers(CatalogOf(names));
  REQUIRE(found.size() == 3);
  CHECK(found[0].names == 3);
  CHECK(found[1].names == 1);
  // Only as whole parts.
  CHECK(Bare({"my_orig_mod.w", "x._orig_mod"}) == Names{"my_orig_mod.w", "x._orig_mod"});
}

TEST_CASE("wrappers: a prefix comes off where all names have it, until nothing changes") {
  CHECK(Bare({"module.module.a.w", "module.module.b.w"}) == Names{"a.w", "b.w"});
  CHECK(Bare({"module.a.w", "b.w"}) == Names{"module.a.w", "b.w"});
  CHECK(Found(CatalogOf(
            {"state_dict._orig_mod.module.model.model.a.w", "state_dict._orig_mod.module.model.lm_head.w"})) ==
        Names{"*_orig_mod.", "state_dict.", "module.", "model."});
  CHECK(Bare({"_forward_module.a"}) == Names{"a"});
  // PEFT's own names keep their first `model.`.
  CHECK(Bare({"model.base_model.model.model.a.lora_A.weight", "model.base_model.model.model.a.lora_B.weight"}) ==
        Names{"base_model.model.model.a.lora_A.weight", "base_model.model.model.a.lora_B.weight"});
  // Nothing would be left of a name.
  CHECK(Bare({"module."}) == Names{"module."});
  CHECK(Bare({"_orig_mod."}) == Names{"_orig_mod."});
  CHECK(Found(Catalog()).empty());
}

TEST_CASE("wrappers: one model. comes off where it stands twice, and the model's own stays") {
  CHECK(Bare({"model.model.a.w", "model.lm_head.w"}) == Names{"model.a.w", "lm_head.w"});
  CHECK(Bare({"model.model.a.w", "model.model.b.w"}) == Names{"model.a.w", "model.b.w"});
  CHECK(Bare({"model.transformer.h.w", "model.lm_head.weight"}) == Names{"transformer.h.w", "lm_head.weight"});
  for (const Names& own : {Names{"model.a.w", "lm_head.w"}, Names{"model.a.w", "model.b.w"},
                           Names{"model.model.a.w", "lm_head.w"}, Names{"model.language_model.a", "model.visual.b"}}) {
    CHECK(Bare(own) == own);
  }
}

TEST_CASE("wrappers: the key of a container is told from a part of a name by the path") {
  const Names names = {"model.embed.w", "model.layers.0.w"};
  CHECK(Bare(names, {In("model", "embed.w"), In("model", "layers.0.w")}) == Names{"embed.w", "layers.0.w"});
  CHECK(Bare(names, {{names[0]}, {names[1]}}) == names);
  CHECK(Bare(names) == names);
  // The model's own model. below the container's.
  CHECK(Bare({"app.model.model.a.w", "app.model.lm_head.w"},
             {{std::string("app"), std::string("model"), std::string("model.a.w")},
              {std::string("app"), std::string("model"), std::string("lm_head.w")}}) ==
        Names{"model.a.w", "lm_head.w"});
  // One lies elsewhere; another key; a model that is dictionaries itself.
  CHECK(Bare({"model.a.w", "ema.a.w"}, {In("model", "a.w"), In("ema", "a.w")}) == Names{"model.a.w", "ema.a.w"});
  CHECK(Bare({"encoder.a.w"}, {In("encoder", "a.w")}) == Names{"encoder.a.w"});
  CHECK(Bare({"model.a.w"}, {{std::string("model"), std::string("a"), std::string("w")}}) == Names{"model.a.w"});
  // A module in a container, compiled.
  CHECK(Bare({"model._orig_mod.module.a.w"}, {In("model", "_orig_mod.module.a.w")}) == Names{"a.w"});
}

TEST_CASE("wrappers: a prefix that is stripped anyway is not looked at") {
  const Catalog catalog = CatalogOf({"model.model.a.w", "model.lm_head.w"});
  CHECK(Found(catalog) == Names{"model."});
  CHECK(Found(catalog, "model.").empty());
  CHECK(Found(CatalogOf({"net.module.a"}), "net.") == Names{"module."});
}

TEST_CASE("wrappers are the same where text and place are, in order") {
  const std::vector<Wrapper> some = {{"a.", Wrapper::Position::kPart, 1}, {"b.", Wrapper::Position::kPrefix, 2}};
  std::vector<Wrapper> other = some;
  other[0].names = 7;
  CHECK(AreSame(some, other));
  other[0].place = Wrapper::Position::kPrefix;
  CHECK_FALSE(AreSame(some, other));
  CHECK_FALSE(AreSame(some, {}));
  CHECK_FALSE(AreSame(some, std::vector<Wrapper>{some[1], some[0]}));
}

TEST_CASE("a selection takes wrappers off before what is asked for, which may be written either way") {
  const Names names = {"module._orig_mod.model.a.w", "module._orig_mod.model.b.w"};
  const auto selected = [&](Selection selection) {
    selection.wrappers = FindWrappers(CatalogOf(names), selection.strip_prefix);
    const absl::StatusOr<Catalog> catalog = Select(CatalogOf(names), selection);
    Names found;
    if (!catalog.ok()) return Names{std::string(catalog.status().message())};
    for (const Catalog::Tensor& tensor : catalog->tensors()) found.emplace_back(tensor.name);
    return found;
  };
  CHECK(selected({}) == Names{"model.a.w", "model.b.w"});
  CHECK(selected({.strip_prefix = "model."}) == Names{"a.w", "b.w"});
  CHECK(selected({.strip_prefix = "module._orig_mod.model."}) == Names{"a.w", "b.w"});
  CHECK(selected({.strip_prefix = "module."}) == Names{"model.a.w", "model.b.w"});
  CHECK(selected({.renamings = {{"model.*", "$1"}}}) == Names{"a.w", "b.w"});
  CHECK(selected({.renamings = {{"module.*.w", "x.$1"}}}) == Names{"x.model.a", "x.model.b"});
  CHECK(selected({.renamings = {{"*", "same"}}})[0].find("would both be called \"same\"") != std::string::npos);
}

TEST_CASE("names that become one without their wrappers are an error that names both") {
  const Catalog catalog = CatalogOf({"a.w", "_orig_mod.a.w"});
  const absl::Status status = Select(catalog, {.wrappers = FindWrappers(catalog)}).status();
  CHECK(status.code() == absl::StatusCode::kInvalidArgument);
  CHECK(std::string(status.message()).starts_with("\"a.w\" and \"_orig_mod.a.w\" would both be called \"a.w\""));
}

}  // namespace reshard
