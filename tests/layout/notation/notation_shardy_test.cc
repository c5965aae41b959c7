#include "reshard/layout/notation.h"
#include "tests/catch.h"
#include "tests/layout/notation/notation_texts.h"

namespace reshard {
namespace {

std::string Import(std::string_view text, std::string_view mesh, const std::vector<int64_t>& shape) {
  return testing::Imported(Notation::kShardy, text, mesh, shape);
}
std::string Export(std::string_view layout, std::string_view mesh) {
  return testing::Exported(Notation::kShardy, layout, mesh);
}

TEST_CASE("Shardy: axes, parts of axes, unreduced and replicated") {
  const char* mesh = "{x:2,y:4,z:2,w:2}";
  CHECK(Import("#sdy.sharding<@mesh, [{\"x\"}, {\"y\":(1)2}], replicated={\"w\"}, unreduced={\"z\"}>", mesh, {8, 8}) ==
        "[4<x>8, 4<y:(1)2>8] sum<z>");
  CHECK(Import("<@\"other name\", [{\"y\":(2)2, \"x\"}]>", mesh, {8}) == "[2<y:(2)2,x>8]");
  CHECK(Import("#sdy.sharding<@mesh, []>", mesh, {}) == "[]");
  CHECK(Import("#sdy.sharding<@mesh, [{}, {}]>", mesh, {8, 8}) == "[8, 8]");
  CHECK(Import("<@m, [{}], unreduced={\"x\", \"y\":(1)2}, replicated={}>", mesh, {8}) == "[8] sum<x,y:(1)2>");
}

TEST_CASE("Shardy: open dimensions and priorities say nothing about who holds what") {
  const char* mesh = "{x:2,y:4}";
  CHECK(Import("<@m, [{?}, {\"x\", ?}p1, {\"y\"}p0]>", mesh, {8, 8, 8}) == "[8, 4<x>8, 2<y>8]");
  CHECK(Import("<@m, [{\"x\"?}]>", mesh, {8}) == "expected '}', found '?' at column 11");
  CHECK(Import("<@m, [{?, \"x\"}]>", mesh, {8}) == "expected '}', found ',' at column 9");
  CHECK(Import("<@m, [{\"x\"}p]>", mesh, {8}) == "expected a priority, found ']' at column 13");
}

TEST_CASE("Shardy: an inline mesh must be ours") {
  CHECK(Import("<mesh<[\"x\"=2, \"y\"=4]>, [{\"x\"}]>", "{x:2,y:4}", {8}) == "[4<x>8]");
  CHECK(Import("<<[\"x\"=2, \"y\"=4]>, [{\"x\"}]>", "{x:2,y:4}", {8}) == "[4<x>8]");
  CHECK(Import("<#sdy.mesh<[\"x\"=2]>, [{\"x\"}]>", "{x:2}", {8}) == "[4<x>8]");
  CHECK(Import("<mesh<[\"x\"=2], device_ids=[1,0]>, [{\"x\"}]>", "{x:2}@[1,0]", {8}) == "[4<x>8]");
  CHECK(Import("<mesh<[], device_ids=[3]>, [{}]>", "{}@3", {8}) == "[8]");
  CHECK(Import("<mesh<[]>, [{}]>", "{}", {8}) == "[8]");
  CHECK(Import("<mesh<[\"x\"=2]>, [{\"x\"}]>", "{x:2}@[1,0]", {8}) ==
        "the sharding is over the mesh {x:2}, not over {x:2}@[1,0] at column 2");
  CHECK(Import("<mesh<[\"x\"=2, \"x\"=2]>, [{\"x\"}]>", "{x:2}", {8}) == "the mesh has two axes named x at column 2");
}

TEST_CASE("Shardy: uneven sizes are cut in one go") {
  CHECK(Import("<@m, [{\"x\"}]>", "{x:4,y:2}", {6}) == "[2<x>6]");
  CHECK(Import("<@m, [{\"x\",\"y\"}]>", "{x:2,y:2}", {7}) == "[2<x,y>7]");
  CHECK(Import("<@m, [{\"x\",\"y\"}]>", "{x:2,y:2}", {5}) ==
        "unsupported: dimension 0 of 5 elements is uneven over several axes: Shardy cuts over all of them in one go, "
        "a layout axis by axis, with other shards at column 1");
}

TEST_CASE("Shardy: bad shardings") {
  const char* mesh = "{x:2,y:4}";
  CHECK(Import("<@m, [{\"x\"}]>", mesh, {8, 8}) == "the sharding has 1 dimension but the tensor has 2 at column 6");
  CHECK(Import("<@m, [{\"x\"}, {}]>", mesh, {8}) == "the sharding has 2 dimensions but the tensor has 1 at column 6");
  CHECK(Import("<@m, [{\"q\"}]>", mesh, {8}) == "unknown axis \"q\" at column 8; the mesh has x, y");
  CHECK(Import("<@m, [{\"x\", \"x\"}]>", mesh, {8}) == "x is used twice at column 13");
  CHECK(Import("<@m, [{\"x\"}], replicated={\"x\"}>", mesh, {8}) == "x is used twice at column 27");
  CHECK(Import("<@m, [{\"y\":(1)2}], replicated={\"y\"}>", mesh, {8}) ==
        "y overlaps with y:(1)2, which is used too at column 32");
  CHECK(Import("<@m, [{}], unreduced={\"x\"}, unreduced={\"y\"}>", mesh, {8}) ==
        "this list appears twice at column 29");
  CHECK(Import("<@m, [{}], reduced={}>", mesh, {8}) == "expected replicated or unreduced, found reduced at column 12");
  CHECK(Import("<@m, [{\"y\":(3)2}]>", mesh, {8}) ==
        "the part y:(3)2 does not fit the axis: 3*2 must divide 4 at column 8");
  CHECK(Import("[{\"x\"}]", mesh, {8}) == "expected '<', found '[' at column 1");
  CHECK(Import("<m, [{\"x\"}]>", mesh, {8}) ==
        "expected '@' and the name of the mesh, or mesh<...>, found m at column 2");
}

TEST_CASE("Shardy: exports") {
  const char* mesh = "{x:2,y:4,z:2}";
  CHECK(Export("[<x>8, <y:(1)2>8] sum<z>", mesh) == "#sdy.sharding<@mesh, [{\"x\"}, {\"y\":(1)2}], unreduced={\"z\"}>");
  CHECK(Export("[<z,x>8, 8]", mesh) == "#sdy.sharding<@mesh, [{\"z\", \"x\"}, {}]>");
  CHECK(Export("[<y:(1)2,y:(2)2>8]", mesh) == "#sdy.sharding<@mesh, [{\"y\"}]>");
  CHECK(Export("[<y:(2)2,y:(1)2>8]", mesh) == "#sdy.sharding<@mesh, [{\"y\":(2)2, \"y\":(1)2}]>");
  CHECK(Export("[]", mesh) == "#sdy.sharding<@mesh, []>");
  CHECK(Export("[<2,x>8]", mesh) == "unsupported: Shardy cannot say that a device holds several blocks of a dimension");
  CHECK(Export("[8] max<z>", mesh) == "unsupported: Shardy cannot say partial max, only partial sums");
}

}  // namespace
}  // namespace reshard
