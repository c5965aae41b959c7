// The bounds of the golden cases once more, by the oracle: index by index along every dimension of the full tensors.
#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/catch.h"
#include "tests/oracle/holdings.h"

TEST_CASE("the bounds of the golden cases are the oracle's", "[golden]") {
  std::ifstream in(RESHARD_SOURCE_DIR "/tests/golden/cases.json");
  REQUIRE(in);
  int judged = 0;
  for (const nlohmann::json& c : nlohmann::json::parse(in)) {
    const oracle::Mesh mesh = oracle::ParseMesh(c["mesh"].get<std::string>());
    const oracle::Mesh to_mesh = c.contains("to_mesh") ? oracle::ParseMesh(c["to_mesh"].get<std::string>()) : mesh;
    const oracle::Layout from = oracle::ParseLayout(c["from"].get<std::string>(), mesh);
    const oracle::Layout to = oracle::ParseLayout(c["to"].get<std::string>(), to_mesh);
    if (oracle::Pends(from)) continue;
    const oracle::LowerBounds bounds = oracle::MovementBounds(from, to, 2);
    INFO(c.dump());
    CHECK(bounds.recv_max == c.value("bound", c["recv"]).get<int64_t>());
    if (c.contains("largest")) CHECK(bounds.local_max <= c["largest"]);
    ++judged;
  }
  CHECK(judged > 30);
}

// Hard case P on a tensor of one element a device: 70/64 of the tensor, by sums over elements.
TEST_CASE("the bound of a partial sum that is replicated over half of the devices", "[golden]") {
  const oracle::Mesh mesh = oracle::ParseMesh("{node:8,gpu:8}");
  const oracle::LowerBounds bounds =
      oracle::Bounds(oracle::ParseLayout("[8, 8] sum<node>", mesh), oracle::ParseLayout("[8, 8]", mesh), 1);
  CHECK(bounds.recv_total == 64 * 70);
  CHECK(bounds.recv_max == 70);
}
