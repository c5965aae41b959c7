// What reshard.json says of how a checkpoint was made.
#include "checkpoint/source/sidecar.h"

#include <string>

#include "tests/catch.h"

namespace reshard::source {

TEST_CASE("a sidecar says how its checkpoint was made of another, and older ones do not") {
  Sidecar sidecar;
  sidecar.job = "job";
  const std::string without = sidecar.ToJson();
  CHECK(without.find("made") == std::string::npos);
  REQUIRE(Sidecar::Parse(without).ok());
  CHECK_FALSE(Sidecar::Parse(without)->made.has_value());

  const std::vector<Wrapper> taken_off = {{"_orig_mod.", Wrapper::Position::kPart, 3},
                                          {"model.", Wrapper::Position::kPrefix, 3}};
  sidecar.made = {true, taken_off};
  const absl::StatusOr<Sidecar> read = Sidecar::Parse(sidecar.ToJson());
  REQUIRE(read.ok());
  REQUIRE(read->made.has_value());
  CHECK(read->made->weights_only);
  CHECK(AreSame(read->made->taken_off, taken_off));
}

TEST_CASE("a sidecar that says what nobody knows is damaged") {
  const auto parsed = [](const std::string& made) {
    const std::string content =
        R"({"schema":"reshard.sidecar/1","job":"","mesh":"","headers":[],"tensors":[],"chunks":[],"made":)" + made +
        "}";
    const std::string hash = hash::ContentHash::Of(content).ToText();
    return Sidecar::Parse(R"({"content":)" + content + R"(,"hash":")" + hash + "\"}\n");
  };
  CHECK(parsed(R"({"weights_only":false,"taken_off":[]})").ok());
  for (const char* made :
       {"7", "{}", R"({"weights_only":1,"taken_off":[]})", R"({"weights_only":true})",
        R"({"weights_only":true,"taken_off":["a."]})", R"({"weights_only":true,"taken_off":[["a."]]})",
        R"({"weights_only":true,"taken_off":[["a.","behind"]]})"}) {
    INFO(made);
    CHECK(parsed(made).status().code() == absl::StatusCode::kDataLoss);
  }
}

}  // namespace reshard::source
