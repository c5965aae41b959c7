#include "reshard/layout/notation.h"
#include "tests/catch.h"
#include "tests/layout/notation/notation_texts.h"

namespace reshard {
namespace {

std::string Import(std::string_view text, std::string_view mesh, const std::vector<int64_t>& shape) {
  return testing::Imported(Notation::kJax, text, mesh, shape);
}
std::string Export(std::string_view layout, std::string_view mesh) {
  return testing::Exported(Notation::kJax, layout, mesh);
}

TEST_CASE("JAX: entries are dimensions, tuples are major first") {
  const char* mesh = "{x:4,y:2}";
  CHECK(Import("PartitionSpec('y', None, ('x','y'))", "{x:4,y:2}", {16, 16, 16}) == "y is used twice at column 31");
  CHECK(Import("PartitionSpec('y', None, 'x')", mesh, {16, 16, 16}) == "[8<y>16, 16, 4<x>16]");
  CHECK(Import("P(None, ('x', 'y'), None)", mesh, {16, 16, 16}) == "[16, 2<x,y>16, 16]");
  CHECK(Import("P(None, (\"y\", \"x\",))", mesh, {16, 16, 16}) == "[16, 2<y,x>16, 16]");
  CHECK(Import("jax.sharding.PartitionSpec(('x',), ())", mesh, {16, 16}) == "[4<x>16, 16]");
  CHECK(Import("P()", mesh, {16, 16}) == "[16, 16]");
  CHECK(Import("P()", mesh, {}) == "[]");
  CHECK(Import("P('x',)", mesh, {16, 16}) == "[4<x>16, 16]");
}

TEST_CASE("JAX: unreduced axes are partial sums") {
  const char* mesh = "{x:4,y:2}";
  CHECK(Import("P('x', unreduced={'y'})", mesh, {16}) == "[4<x>16] sum<y>");
  CHECK(Import("P(unreduced=frozenset({'x', 'y'}))", mesh, {16}) == "[16] sum<x,y>");
  CHECK(Import("P(unreduced=('x',))", mesh, {16}) == "[16] sum<x>");
  CHECK(Import("P('x', unreduced=set())", mesh, {16}) == "[4<x>16]");
  CHECK(Import("P('x', unreduced={'x'})", mesh, {16}) == "x is used twice at column 19");
  CHECK(Import("P('x', reduced={'y'})", mesh, {16}) ==
        "unsupported: reduced axes have no equivalent in a layout at column 8");
}

TEST_CASE("JAX: uneven sizes") {
  CHECK(Import("P('x')", "{x:4,y:2}", {6}) == "[2<x>6]");
  // 7 elements over 4: in one go 2,2,2,1; axis by axis (4: 2,2) and (3: 2,1). The same.
  CHECK(Import("P(('x','y'))", "{x:2,y:2}", {7}) == "[2<x,y>7]");
  // 5 over 4: in one go 2,2,1,0; axis by axis 2,1,1,1.
  CHECK(Import("P(('x','y'))", "{x:2,y:2}", {5}) ==
        "unsupported: dimension 0 of 5 elements is uneven over several axes: JAX cuts over all of them in one go, a "
        "layout axis by axis, with other shards at column 1");
}

TEST_CASE("JAX: bad specs") {
  const char* mesh = "{x:4,y:2}";
  CHECK(Import("('x',)", mesh, {16}) == "expected PartitionSpec or P, found '(' at column 1");
  CHECK(Import("Pspec('x')", mesh, {16}) == "expected PartitionSpec or P, found Pspec at column 1");
  CHECK(Import("P('x', 'y')", mesh, {16}) == "there are more entries than the tensor has dimensions (1) at column 8");
  CHECK(Import("P('x', None)", mesh, {16}) == "there are more entries than the tensor has dimensions (1) at column 8");
  CHECK(Import("P('z')", mesh, {16}) == "unknown axis \"z\" at column 3; the mesh has x, y");
  CHECK(Import("P(x)", mesh, {16}) == "expected None, a quoted axis or a tuple of them, found x at column 3");
  CHECK(Import("P('x'", mesh, {16}) == "expected ')', found the end at column 6");
  CHECK(Import("P('x)", mesh, {16}) == "the quote is not closed at column 3");
  CHECK(Import("P((('x',),))", mesh, {16}) == "expected a quoted axis, found '(' at column 4");
  CHECK(Import("P('x') y", mesh, {16}) == "expected the end, found y at column 8");
  CHECK(Import("P(P.UNCONSTRAINED)", mesh, {16}) ==
        "unsupported: an unconstrained dimension does not say who holds what at column 3");
  CHECK(Import("P(UNCONSTRAINED)", mesh, {16}) ==
        "unsupported: an unconstrained dimension does not say who holds what at column 3");
}

TEST_CASE("JAX: exports") {
  const char* mesh = "{x:4,y:2}";
  CHECK(Export("[<y>16, 16, <x>16]", mesh) == "PartitionSpec('y', None, 'x')");
  CHECK(Export("[16, <x,y>16]", mesh) == "PartitionSpec(None, ('x', 'y'))");
  CHECK(Export("[<x>16] sum<y>", mesh) == "PartitionSpec('x', unreduced={'y'})");
  CHECK(Export("[] sum<y,x>", mesh) == "PartitionSpec(unreduced={'x', 'y'})");
  CHECK(Export("[<x:(1)2,x:(2)2>16]", mesh) == "PartitionSpec('x')");
  CHECK(Export("[]", mesh) == "PartitionSpec()");
  CHECK(Export("[<x:(1)2>16]", mesh) == "unsupported: JAX cannot say a part of an axis (x:(1)2)");
  CHECK(Export("[<2,x>16]", mesh) == "unsupported: JAX cannot say that a device holds several blocks of a dimension");
  CHECK(Export("[<x=[16,0,0,0]>16]", mesh) == "unsupported: JAX cannot say explicit sizes");
  CHECK(Export("[16] avg<x>", mesh) == "unsupported: JAX cannot say partial avg, only partial sums");
  CHECK(Export("[<y,x>9]", mesh).find("unsupported: jax cannot say it exactly: dimension 0 of 9 elements") == 0);
}

}  // namespace
}  // namespace reshard
