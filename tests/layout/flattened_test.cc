#include <optional>
#include <string>
#include <vector>

#include "layout/flatten.h"
#include "reshard/layout/shard_map.h"
#include "reshard/layout/text.h"
#include "tests/catch.h"
#include "tests/layout/gen.h"

namespace reshard {
namespace {

using testing::FirstLine;
using testing::LayoutOf;

TEST_CASE("flattened dimensions are one, cut anywhere") {
  const Layout layout = LayoutOf("[<dp=[2,3,0,5]*6400>(500, 128), 4]", "{dp:4}");
  CHECK(layout.rank() == 2);
  CHECK(layout.shape() == std::vector<int64_t>{500, 128, 4});
  CHECK(layout.num_elements() == 256000);
  CHECK(layout.flattens());
  CHECK(layout.only_factors());
  CHECK(layout.dim(0).size == 64000);
  CHECK(layout.Intervals(1, 0) == std::vector<Interval>{{12800, 32000}});
  CHECK(layout.LocalShape(2) == std::vector<int64_t>{0, 4});
  CHECK(ToString(layout) == "[32000<dp=[12800,19200,0,32000]>(500, 128), 4]");
  CHECK(LayoutOf(ToString(layout), "{dp:4}") == layout);
}

TEST_CASE("factors inside cut first, and those in front what a device then holds") {
  // Each tp rank has 3 rows of 2 of 4 columns; dp cuts these six elements in local order.
  const Layout layout = LayoutOf("[<dp=[4,2]>(3, <tp>4)]", "{dp:2,tp:2}");
  CHECK(!layout.only_factors());
  CHECK(layout.Intervals(0, 0) == std::vector<Interval>{{0, 2}, {4, 6}});
  CHECK(layout.Intervals(1, 0) == std::vector<Interval>{{2, 4}, {6, 8}});
  CHECK(layout.Intervals(2, 0) == std::vector<Interval>{{8, 10}});
  CHECK(layout.Intervals(3, 0) == std::vector<Interval>{{10, 12}});
  CHECK(layout.MaxLocalElements() == 4);
  CHECK(layout.dim(0).Axes() == std::vector<AxisRef>{{1, 1, 2}, {0, 1, 2}});
  CHECK(ToString(layout) == "[4<dp=[4,2]>(3, 2<tp>4)]");
  CHECK(LayoutOf(ToString(layout), "{dp:2,tp:2}") == layout);
  const auto map = ShardMap::Create(layout);
  REQUIRE(map.ok());
  for (int64_t p = 0; p < 4; ++p) {
    const DimShards& dim = map->dim(0);
    const int64_t row = map->Row(p, 0);
    CHECK(layout.Intervals(p, 0) ==
          std::vector<Interval>(dim.intervals.begin() + dim.first[row], dim.intervals.begin() + dim.first[row + 1]));
  }
}

TEST_CASE("layouts that flatten other dimensions are equivalent if local elements are the same ones") {
  const auto same = [](const char* a, const char* b) {
    return *Equivalent(LayoutOf(a, "{dp:2,tp:2}"), LayoutOf(b, "{dp:2,tp:2}"));
  };
  CHECK(same("[<dp>(6, 5), 4]", "[<dp>6, 5, 4]"));
  CHECK(same("[<dp>(6, 5), 4]", "[<dp>6, (5, 4)]"));
  CHECK(same("[<dp>(7, <tp>4)]", "[<dp=[7,7]>(7, <tp>4)]"));
  CHECK(same("[<dp>(4, <tp>4)]", "[<dp>4, <tp>4]"));
  CHECK(same("[<dp>((4, <tp>4), 2)]", "[<dp>4, <tp>(4, 2)]"));
  CHECK(!same("[<dp>(7, 5)]", "[<dp>7, 5]"));
  CHECK(!same("[<dp>(3, <tp>4)]", "[<dp>3, <tp>4]"));
  CHECK(!same("[<dp>(6, 4)]", "[<dp>(4, 6)]"));
}

TEST_CASE("a slot table cuts what is flattened, or the first dimension of what becomes so") {
  const Layout table = LayoutOf("[<dp={2,0|1}>3, 4]", "{dp:2}");
  const auto ends = layout::OverCommonDims(table, LayoutOf("[<dp=[5,7]>(3, 4)]", "{dp:2}"));
  REQUIRE(ends.ok());
  CHECK(ToString(ends->first) == "[8<dp={8-11,0-3|4-7}>(3, 4)]");
  CHECK(LayoutOf(ToString(ends->first), "{dp:2}") == ends->first);
  CHECK(*Equivalent(ends->first, table));
  CHECK(!layout::OverCommonDims(LayoutOf("[3, <dp={2,0|1-3}>4]", "{dp:2}"), LayoutOf("[<dp>(3, 4)]", "{dp:2}")).ok());
}

TEST_CASE("what plain factors can say is said by them") {
  const auto plain = [](const char* text) {
    const Layout layout = LayoutOf(text, "{a:2,b:4,c:3}");
    const auto factors = layout::FactorsOf(layout.dim(0), layout.mesh());
    if (!factors) return std::string("none");
    DimLayout dim = layout::Whole(layout.dim(0));
    dim.factors = *factors;
    const auto out = Layout::Create(layout.mesh(), {dim});
    REQUIRE(out.ok());
    CHECK(*Equivalent(*out, layout));
    return ToString(*out);
  };
  CHECK(plain("[(<a>6, 5)]") == "[15<a>(6, 5)]");
  CHECK(plain("[(6, <b>8)]") == "[12<6,b>(6, 8)]");
  CHECK(plain("[(<a>6, <b>8, 5)]") == "[30<a,3,b>(6, 8, 5)]");
  CHECK(plain("[<c>(6, <b>8)]") == "[4<c,2,b>(6, 8)]");
  CHECK(plain("[<b>(2, <c>6, 4)]") == "[4<b:(1)2,c,b:(2)2>(2, 6, 4)]");
  CHECK(plain("[(<b>6, 5)]") == "[10<b=[10,10,10,0]>(6, 5)]");
  CHECK(plain("[(<b=[1,2,0,3]>6, 5)]") == "[15<b=[5,10,0,15]>(6, 5)]");
  CHECK(plain("[(3, <b=[1,2,0,3]>6, 5)]") == "[45<3,b=[5,10,0,15]>(3, 6, 5)]");
  CHECK(plain("[<2,~a>(<b>8, 3)]") == "none");
  CHECK(plain("[(2, <2,~a>8)]") == "[8<4,~a>(2, 8)]");
  CHECK(plain("[(3, <~a>8)]") == "none");
  CHECK(plain("[<c>(4, <b>8)]") == "none");
  CHECK(plain("[(<b>7, <c>9)]") == "none");
}

TEST_CASE("rules may flatten what the tensor has") {
  const auto mesh = *ParseMesh("{dp:2,tp:2}");
  const auto of = [&](const char* text, const std::vector<int64_t>& shape) {
    const auto layout = ParseLayoutRuleForAnyRank(text, mesh, shape);
    return layout.ok() ? ToString(*layout) : FirstLine(layout.status());
  };
  CHECK(of("[<dp>(...)]", {6, 5, 4}) == "[60<dp>(6, 5, 4)]");
  CHECK(of("[<dp>(...)]", {7}) == "[4<dp>(7)]");
  CHECK(of("[<dp>(...)]", {}) == "[]");
  CHECK(of("[<dp>(<tp>, ...)]", {6, 4}) == "[6<dp>(3<tp>6, 4)]");
  CHECK(of("[<dp>(*, 4), ...]", {6, 4, 2}) == "[12<dp>(6, 4), 2]");
  CHECK(of("[<dp>(*, *), <tp>]", {6}) == "[3<dp>(6)]");
  CHECK(of("[<dp>(*, 5), ...]", {6, 4, 2}) == "dimension 1 of the tensor has 4 elements, not 5 at column 10");
}

TEST_CASE("broken rules of flattened dimensions are named") {
  const auto error = [](const char* text) {
    const auto layout = ParseLayout(text, "{dp:2,tp:2}");
    REQUIRE(!layout.ok());
    return FirstLine(layout.status());
  };
  CHECK(error("[<dp>()]") == "expected a dimension, found ')' at column 7");
  CHECK(error("[<dp>(3, 4]") == "expected ')', found ']' at column 11");
  const std::string slots = "a slot table cannot cut dimensions before they are flattened, nor what others have cut";
  CHECK(error("[<dp={0-1|2}>(3, <tp>4)]") == slots + " at column 3");
  CHECK(error("[<dp>(3, <tp={0|1}>2)]") == slots + " at column 11");
  CHECK(error("[<dp=[3,5]>(3, 4)]") ==
        "the explicit sizes of axis dp add up to 8 but the intervals they cut have 12 elements at column 3");
  CHECK(error("[<dp=[3,3]>(<tp>3, 4)]") ==
        "the explicit sizes of axis dp add up to 6 but the intervals they cut differ in length at column 3");
  CHECK(error("[<2,dp>(<tp>3, 4)]") ==
        "blocks and reflected axes cannot cut flattened fragments that differ in length at column 3");
  CHECK(error("[5<dp>(3, 4)]") == "the local size is 6 (the largest shard), not 5 at column 2");
  CHECK(error("[<dp>(3, 3<tp>4)]") == "the local size is 2 (the largest shard), not 3 at column 10");
  CHECK(error("[<dp>(3, <dp>4)]") == "dp is used twice at column 3");
  CHECK(error("[(((((2)))))]") == "dimensions are flattened more than 4 deep at column 6");
  CHECK(error("[<dp>(1048577, <tp>2)]") ==
        "the flattened dimensions are cut into more than 1048576 intervals on one device at column 2");
  CHECK(error("[<dp=[4611686018427387904,1]*4>(2, 2)]") ==
        "the explicit sizes do not fit a signed 64-bit integer at column 30");
}

}  // namespace
}  // namespace reshard
