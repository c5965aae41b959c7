#include "checkpoint/live/missing_names.h"

#include "absl/strings/match.h"
#include "tests/catch.h"

namespace reshard::live {
namespace {

const std::vector<std::string> kThere = {"model.layers.0.weight", "model.layers.0.bias", "step"};

TEST_CASE("missing names: one, and the nearest") {
  CHECK(MissingNames({"stepp"}, kThere, "the checkpoint") ==
        R"("stepp" is not in the checkpoint (did you mean "step"?))");
  CHECK(MissingNames({"quite another"}, kThere, "the target") ==
        R"("quite another" is not in the target; there are "model.layers.0.weight", "model.layers.0.bias", "step")");
  CHECK(MissingNames({"a"}, {}, "the target") == R"("a" is not in the target)");
}

TEST_CASE("missing names: the nearest is that of the same layer, without what wraps it") {
  CHECK(MissingNames({"layers.0._orig_mod.attention.wk.weight", "other"},
                     {"layers.0.attention.wq.weight", "layers.0.attention.wk.weight", "layers.1.attention.wk.weight"},
                     "the checkpoint") ==
        R"(2 names are not in the checkpoint: "layers.0._orig_mod.attention.wk.weight" (did you mean )"
        R"("layers.0.attention.wk.weight"?), "other")");
}

TEST_CASE("missing names: a prefix that all lack, or all have") {
  CHECK(
      MissingNames({"layers.0.weight", "layers.0.bias"}, kThere, "the checkpoint") ==
      R"(2 names are not in the checkpoint: "layers.0.weight", "layers.0.bias"; all are there with the prefix "model.")");
  CHECK(MissingNames({"net.model.layers.0.bias"}, kThere, "the checkpoint") ==
        R"("net.model.layers.0.bias" is not in the checkpoint; it is there without the prefix "net.")");
  // The first has one, the second not.
  CHECK(
      MissingNames({"layers.0.weight", "quite another"}, kThere, "the checkpoint") ==
      R"(2 names are not in the checkpoint: "layers.0.weight" (did you mean "model.layers.0.weight"?), "quite another")");
  // Not at a dot.
  CHECK(MissingNames({"ep"}, {"step"}, "the checkpoint") == R"("ep" is not in the checkpoint; there is "step")");
}

TEST_CASE("missing names: many are counted, and long ones cut") {
  std::vector<std::string> missing;
  for (char c = 'a'; c <= 'z'; ++c) missing.emplace_back(200, c);
  missing.back().append(100'000, '!');
  const std::string text = MissingNames(missing, kThere, "the checkpoint");
  CHECK(text.starts_with("26 names are not in the checkpoint: "));
  CHECK(absl::StrContains(text, ", and 16 more; there are \"model."));
  CHECK(text.size() < 3000);
  const std::string longest = MissingNames({missing.back()}, {missing.back() + "?"}, "the checkpoint");
  CHECK(longest.size() < 500);
}

}  // namespace
}  // namespace reshard::live
