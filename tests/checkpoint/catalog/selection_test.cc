// What is selected of a catalog, and what it is called then.
#include "reshard/checkpoint/selection.h"

#include <string>
#include <vector>

#include "checkpoint/catalog/catalog_hash.h"
#include "tests/catch.h"
#include "tests/checkpoint/formats/dcp_bytes.h"
#include "tests/checkpoint/formats/safetensors_file.h"

namespace reshard::testing {
namespace {

using namespace dcp;
using Names = std::vector<std::string>;

// Tensors model.a.w, model.b.w, optimizer.state.exp_avg and lm_head, items model.extra and rng_state.0; all have paths.
class Source {
 public:
  Source() {
    const std::string bytes = StreamText().Bytes();
    dir_.Write("a.distcp", bytes + "xyz");
    Items items, places, paths;
    for (const char* name : {"model.a.w", "model.b.w", "optimizer.state.exp_avg", "lm_head"}) {
      items.emplace_back(Str(name), Whole({2, 3}));
      places.emplace_back(Index(name, {0, 0}), Place("a.distcp", 0, static_cast<int64_t>(bytes.size())));
      paths.emplace_back(Str(name), Tuple({Str("top"), Str(name)}));
    }
    for (const char* name : {"model.extra", "rng_state.0"}) {
      items.emplace_back(Str(name), Bytes());
      places.emplace_back(ByteIndex(name), Place("a.distcp", static_cast<int64_t>(bytes.size()), 3));
      paths.emplace_back(Str(name), Tuple({Str(name)}));
    }
    dir_.Write(".metadata", Pickled(Metadata(items, places, paths, {{Str("mcore_data"), Num(1)}})));
  }
  Catalog Read() const {
    absl::StatusOr<Catalog> catalog = ReadCatalog(dir_.path());
    REQUIRE(catalog.status().ToString() == "OK");
    return *std::move(catalog);
  }

 private:
  TemporaryDirectory dir_;
};

Names NamesOf(const Catalog& catalog) {
  Names names;
  for (const Catalog::Tensor& tensor : catalog.tensors()) names.emplace_back(tensor.name);
  for (const Catalog::ByteItem& item : catalog.byte_items()) names.emplace_back(item.name);
  return names;
}

}  // namespace

TEST_CASE("a selection takes what it says, in the order of the checkpoint") {
  const Source source;
  const auto taken = [&](const Selection& selection) {
    const absl::StatusOr<Catalog> catalog = Select(source.Read(), selection);
    INFO(catalog.status());
    REQUIRE(catalog.ok());
    return NamesOf(*catalog);
  };
  const Names all = {"model.a.w", "model.b.w", "optimizer.state.exp_avg", "lm_head", "model.extra", "rng_state.0"};
  CHECK(taken({}) == all);
  CHECK(taken({.include = {"model.*"}}) == Names{"model.a.w", "model.b.w", "model.extra"});
  CHECK(taken({.include = {"lm_*", "*.w"}, .exclude = {"*.a.*"}}) == Names{"model.b.w", "lm_head"});
  CHECK(taken({.byte_items = false}) == Names{"model.a.w", "model.b.w", "optimizer.state.exp_avg", "lm_head"});
  CHECK(taken({.weights_only = true}) == Names{"model.a.w", "model.b.w", "lm_head"});
  CHECK(Select(source.Read(), {.weights_only = true})->attributes().empty());
  CHECK(Select(source.Read(), {.byte_items = false})->attributes().size() == 1);
  CHECK(Select(source.Read(), {.exclude = {"*"}}).status().code() == absl::StatusCode::kInvalidArgument);
}

TEST_CASE("what is selected is found under its new name, with its chunks and its path") {
  const Source source;
  const absl::StatusOr<Catalog> catalog = Select(
      source.Read(), {.exclude = {"optimizer.*"}, .strip_prefix = "model.", .renamings = {{"*.w", "$1.weight"}}});
  REQUIRE(catalog.ok());
  CHECK(NamesOf(*catalog) == Names{"a.weight", "b.weight", "lm_head", "extra", "rng_state.0"});
  const Catalog before = source.Read();
  const Catalog::Tensor* const tensor = catalog->FindTensor("b.weight");
  REQUIRE(tensor != nullptr);
  CHECK(tensor == &catalog->tensors()[1]);
  CHECK(catalog->FindTensor("model.b.w") == nullptr);
  CHECK(tensor->shape == absl::MakeConstSpan({int64_t{2}, int64_t{3}}));
  CHECK(catalog->chunk(*tensor, 0).place.length == before.chunk(before.tensors()[1], 0).place.length);
  CHECK(catalog->CheckCover(*tensor).ok());
  REQUIRE(catalog->FindByteItem("extra") != nullptr);
  CHECK(catalog->FindByteItem("extra")->place.length == 3);
  // A path stays with a name that stays.
  using Path = std::vector<Catalog::PathStep>;
  REQUIRE(catalog->PathOf("b.weight") != nullptr);
  CHECK(*catalog->PathOf("b.weight") == Path{std::string("b.weight")});
  CHECK(*catalog->PathOf("lm_head") == Path{std::string("top"), std::string("lm_head")});
  // Another name is another catalog.
  CHECK_FALSE(catalog::HashOfCatalog(*catalog) == catalog::HashOfCatalog(before));
}

TEST_CASE("renamings: the first that matches counts, between the prefixes") {
  const Source source;
  const auto renamed = [&](Selection selection) {
    selection.include = {"model.a.w", "lm_head"};
    const absl::StatusOr<Catalog> catalog = Select(source.Read(), selection);
    return catalog.ok() ? NamesOf(*catalog) : Names{std::string(catalog.status().message())};
  };
  CHECK(renamed({.strip_prefix = "model."}) == Names{"a.w", "lm_head"});
  CHECK(renamed({.add_prefix = "x."}) == Names{"x.model.a.w", "x.lm_head"});
  CHECK(renamed({.strip_prefix = "model.", .renamings = {{"a.*", "1.$1"}, {"*", "2.$1"}}, .add_prefix = "x."}) ==
        Names{"x.1.w", "x.2.lm_head"});
  CHECK(renamed({.renamings = {{"*.*.w", "$2$$$1"}}}) == Names{"a$model", "lm_head"});
  CHECK(renamed({.renamings = {{"*", "same"}}}) ==
        Names{"\"model.a.w\" and \"lm_head\" would both be called \"same\""});
  CHECK(renamed({.renamings = {{"lm_head", "$1"}}})[0].find("stands for no *") != std::string::npos);
}

TEST_CASE("texts of renamings") {
  CHECK(ParseRenaming("a.*=b.$1")->first == "a.*");
  CHECK(ParseRenaming("a.*=b.$1=")->second == "b.$1=");
  CHECK(ParseRenaming("a=")->second.empty());
  for (const char* bad : {"a", "a=$1", "*=$2", "*=$", "*=$0", "*=$x"}) {
    CHECK(ParseRenaming(bad).status().code() == absl::StatusCode::kInvalidArgument);
  }
}

}  // namespace reshard::testing
