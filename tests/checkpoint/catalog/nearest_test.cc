// Which name is meant by one that is not there.
#include "checkpoint/catalog/nearest.h"

#include "tests/catch.h"

namespace reshard::catalog {
namespace {

using Names = std::vector<std::string>;
const Names kLayers = {"layers.0.attention.wq.weight", "layers.0.attention.wk.weight", "layers.1.attention.wk.weight",
                       "model.embed.weight"};

TEST_CASE("the nearest name is that of the same layer, whatever wraps it") {
  CHECK(NearestName("layers.0._orig_mod.attention.wk.weight", kLayers) == "layers.0.attention.wk.weight");
  CHECK(NearestName("layers.1.attn.wk.weight", kLayers) == "layers.1.attention.wk.weight");
  CHECK(NearestName("model.layers.1.attention.wk.weight", kLayers) == "layers.1.attention.wk.weight");
  CHECK(NearestName("layers.0.attention.wv.weight", kLayers) == "layers.0.attention.wq.weight");
  CHECK(NearestName("layers.1.attention.wq.weight", {kLayers[0], kLayers[2]}) == kLayers[2]);
  CHECK_FALSE(NearestName("layers.7.attention.wk.weight", kLayers).has_value());
  CHECK_FALSE(NearestName("quite another", kLayers).has_value());
  CHECK_FALSE(NearestName("a", {}).has_value());
  CHECK_FALSE(NearestName(std::string(1000, 'a'), {std::string(1000, 'a')}).has_value());
  CHECK_FALSE(NearestName("aa", {std::string(1000, 'a')}).has_value());
}

TEST_CASE("the nearest name to a pattern is the one that it nearly matches") {
  CHECK(NearestToPattern("modl.*", kLayers) == "model.embed.weight");
  CHECK(NearestToPattern("*.wk.weigt", kLayers) == "layers.0.attention.wk.weight");
  CHECK(NearestToPattern("layer?.1.*", {"layer.1.w", "x"}) == "layer.1.w");
  CHECK(NearestToPattern("model.embd.weight", kLayers) == "model.embed.weight");
  CHECK_FALSE(NearestToPattern("zzzz*", kLayers).has_value());
  CHECK_FALSE(NearestToPattern("*", {}).has_value());
}

}  // namespace
}  // namespace reshard::catalog
