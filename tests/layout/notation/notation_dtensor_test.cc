#include <algorithm>

#include "reshard/layout/notation.h"
#include "tests/layout/gen.h"
#include "tests/layout/notation/notation_texts.h"
#include "tests/property.h"

namespace reshard {
namespace {

using testing::Draw;
using testing::MeshOf;

std::string Import(std::string_view text, std::string_view mesh, const std::vector<int64_t>& shape) {
  return testing::Imported(Notation::kDTensor, text, mesh, shape);
}
std::string Export(std::string_view layout, std::string_view mesh) {
  return testing::Exported(Notation::kDTensor, layout, mesh);
}

TEST_CASE("DTensor: placements in every way of writing them") {
  const char* mesh = "{dp:2,tp:4}";
  const std::string expected = "[8, 4<dp>8]";
  for (const char* text : {"S(1)R", "(S(1), R)", "[S(1), R]", "S(1) R", "S(1),R", "(Shard(dim=1), Replicate())",
                           "[Shard(1), Replicate()]", "(Shard(1), R,)", "Shard(dim=-1)Replicate", "_S(1, 1)R"}) {
    CAPTURE(text);
    CHECK(Import(text, mesh, {8, 8}) == expected);
  }
  CHECK(Import("RR", mesh, {8}) == "[8]");
  CHECK(Import("", "{}", {8}) == "[8]");
  CHECK(Import("()", "{}", {}) == "[]");
}

TEST_CASE("DTensor: shard order") {
  const char* mesh = "{X:4,Y:4,Z:16}";
  CHECK(Import("S(0)S(0)R", mesh, {512, 128}) == "[32<X,Y>512, 128]");
  CHECK(Import("S(0)[0]S(0)[1]R", mesh, {512, 128}) == "[32<X,Y>512, 128]");
  CHECK(Import("S(0)[1]S(0)[0]R", mesh, {512, 128}) == "[32<Y,X>512, 128]");
  CHECK(Import("S(0)[2]S(0)[0]S(0)[1]", mesh, {512, 128}) == "[2<Y,Z,X>512, 128]");
  CHECK(Import("RS(1)[1]S(1)[0]", mesh, {512, 128}) == "[512, 2<Z,Y>128]");
  CHECK(Import("S(0)[0]R S(1)", mesh, {512, 128}) == "[128<X>512, 8<Z>128]");
  CHECK(Import("S(0)[1]S(0)R", mesh, {512, 128}) ==
        "the shard order is given for 1 of the 2 placements of dimension 0 at column 8");
  CHECK(Import("S(0)[1]S(0)[2]R", mesh, {512, 128}) == "the shard orders of dimension 0 are not 0 to 1 at column 1");
  CHECK(Import("S(0)[1]S(0)[1]R", mesh, {512, 128}) == "the shard orders of dimension 0 are not 0 to 1 at column 1");
}

TEST_CASE("DTensor: uneven nests are cut ceil by ceil") {
  CHECK(Import("S(0)S(0)", "{X:2,Y:2}", {5}) == "[2<X,Y>5]");
  CHECK(Import("S(0)[1]S(0)[0]", "{X:2,Y:3}", {7}) == "[2<Y,X>7]");
}

TEST_CASE("DTensor: partial values") {
  const char* mesh = "{dp:2,tp:4}";
  CHECK(Import("PR", mesh, {8}) == "[8] sum<dp>");
  CHECK(Import("PP", mesh, {8}) == "[8] sum<dp,tp>");
  CHECK(Import("(Partial(), Shard(dim=0))", mesh, {8}) == "[2<tp>8] sum<dp>");
  CHECK(Import("P(avg)R", mesh, {8}) == "[8] avg<dp>");
  CHECK(Import("(Partial(sum), Partial('sum'))", mesh, {8}) == "[8] sum<dp,tp>");
  CHECK(Import("(Partial(reduce_op=max), R)", mesh, {8}) == "[8] max<dp>");
  CHECK(Import("P(product)R", mesh, {8}) == "[8] prod<dp>");
  CHECK(Import("P(min)P(max)", mesh, {8}) == "unsupported: partial min and partial max in one layout at column 7");
  CHECK(Import("P(bor)R", mesh, {8}) ==
        "unsupported: the reduction \"bor\" is not one of sum, avg, min, max and product at column 3");
}

TEST_CASE("DTensor: strided shards") {
  CHECK(Import("_S(0, 2)", "{X:2}", {5}) == "[3<2,X>5]");
  CHECK(Import("_StridedShard(dim=0, sf=2)", "{X:2}", {8}) == "[4<2,X>8]");
  CHECK(Import("_StridedShard(0, split_factor=2)R", "{X:2,Y:2}", {8}) == "[4<2,X>8]");
  // FSDP over TP: the tensor was split along tp first.
  CHECK(Import("(_StridedShard(dim=0, sf=4), Shard(dim=0))", "{dp:2,tp:4}", {16}) == "[2<tp,dp>16]");
  CHECK(Import("(_StridedShard(dim=0, sf=4), Shard(dim=0))", "{dp:2,tp:4}", {20}) == "[3<tp,dp>20]");
  CHECK(Import("(_StridedShard(dim=0, sf=2), Shard(dim=0))", "{dp:2,tp:2}", {10, 4}) == "[3<tp,dp>10, 4]");
  CHECK(Import("(Replicate, _StridedShard(0, 2), Shard(0))", "{r:2,dp:2,tp:2}", {10}) == "[3<tp,dp>10]");
  // Three axes: split right to left, and dp after two axes of tensor parallelism, which are split left to right.
  CHECK(Import("_S(0, 4)_S(0, 2)S(0)", "{a:2,b:2,c:2}", {17}) == "[3<c,b,a>17]");
  CHECK(Import("_S(0, 6)S(0)S(0)", "{dp:2,a:3,b:2}", {17}) == "[2<a,b,dp>17]");
  // From PyTorch's own description of the rule.
  CHECK(Import("_S(0, 2)_S(0, 2)S(0)", "{a:4,b:3,c:2}", {25}) == "[2<c,a,b>25]");
  // A plain split before a strided one leaves one interval: exact for every size.
  CHECK(Import("S(0)_S(0, 2)", "{a:2,b:2}", {7}) == "[2<a,2,b>7]");
  // The later split takes a part of the blocks, or all of them and more.
  CHECK(Import("_S(0, 4)S(0)", "{a:2,b:2}", {16}) == "[4<b,2,a>16]");
  CHECK(Import("_S(0, 2)S(0)", "{a:2,b:4}", {16}) == "[2<b:(1)2,a,b:(2)2>16]");
  // An axis of one coordinate splits nothing.
  CHECK(Import("_S(0, 2)S(0)", "{a:1,b:2}", {5}) == "[3<b,a>5]");
  CHECK(Import("_S(0, 3)S(0)", "{a:1,b:2}", {5}) == "[3<a,b>5]");
}

TEST_CASE("DTensor: strided shards with a shard order are split one by one") {
  CHECK(Import("_S(0, 2)[0]S(0)[1]", "{a:2,b:2}", {8}) == "[2<b,a>8]");
  CHECK(Import("_S(0, 2)[1]S(0)[0]", "{a:2,b:2}", {7}) == "[2<b,2,a>7]");
  CHECK(Import("_S(0, 2)[0]S(0)[1]", "{a:3,b:2}", {7}) ==
        "unsupported: Shard(dim=0) over mesh axis b comes after a strided split, which is exact only where everything "
        "divides evenly, and not 7 elements; the shard order says that splits are applied one by one. Redistribute the "
        "tensor to Shard placements first at column 12");
}

TEST_CASE("DTensor: strided shards that have no layout") {
  CHECK(Import("_S(0, 6)S(0)", "{a:2,b:4}", {48}) ==
        "unsupported: Shard(dim=0) over mesh axis b does not fit the blocks that the strided splits before it leave; "
        "the split factors say no order of the mesh axes, for which each would be the product of the sizes of later "
        "ones. Redistribute the tensor to Shard placements first at column 9");
  const std::string uneven =
      "unsupported: Shard(dim=0) over mesh axis b comes after a strided split, which is exact only where everything "
      "divides evenly, and not 15 elements; the split factors say no order of the mesh axes, for which each would be "
      "the product of the sizes of later ones. Redistribute the tensor to Shard placements first at column 9";
  CHECK(Import("_S(0, 4)S(0)", "{a:2,b:2}", {15}) == uneven);
  // The factors of all dimensions say an order, or none does.
  CHECK(Import("_S(0, 2)S(0)S(1)", "{a:2,b:2,c:2}", {15, 8}) == "[4<b,a>15, 4<c>8]");
  CHECK(Import("_S(0, 2)S(0)_S(1, 2)", "{a:2,b:2,c:2}", {15, 8}) == uneven);
  CHECK(Import("_S(0, 2)S(0)_S(1, 2)", "{a:2,b:2,c:2}", {16, 8}) == "[4<b,a>16, 4<2,c>8]");
}

TEST_CASE("DTensor: bad placements") {
  const char* mesh = "{dp:2,tp:4}";
  CHECK(Import("S(0)", mesh, {8}) == "there are 1 placements but the mesh has 2 axes at column 5");
  CHECK(Import("S(0)RR", mesh, {8}) == "there are more placements than the mesh has axes (2) at column 6");
  CHECK(Import("S(1)R", mesh, {8}) == "the tensor has 1 dimensions, there is no 1 at column 3");
  CHECK(Import("S(-2)R", mesh, {8}) == "the tensor has 1 dimensions, there is no -2 at column 3");
  CHECK(Import("S(x)R", mesh, {8}) == "expected a dimension of the tensor, found x at column 3");
  CHECK(Import("S :R", mesh, {8}) == "expected '(', found ':' at column 3");
  CHECK(Import("(S(0), R]", mesh, {8}) == "expected ')', found ']' at column 9");
  CHECK(Import("S(0)R)", mesh, {8}) == "expected the end, found ')' at column 6");
  CHECK(Import("_S(0, 0)R", mesh, {8}) == "a split factor must be at least 1 at column 7");
  CHECK(Import("_S(0)R", mesh, {8}) == "expected ',', found ')' at column 5");
  CHECK(Import("XR", mesh, {8}) ==
        "expected a placement: Shard(dim), Replicate(), Partial(op) or _StridedShard(dim, split_factor), found XR at "
        "column 1");
  CHECK(Import("_S(0, 1048577)R", mesh, {8}) == "the dimension is cut into more than 1048576 intervals at column 1");
}

TEST_CASE("DTensor: ragged shards flatten the first dimensions and cut them in units") {
  const char* mesh = "{dp:4,tp:2}";
  const auto both = [&](const char* text, const std::string& layout) {
    CAPTURE(text);
    CHECK(Import(text, mesh, {500, 128, 4}) == layout);
    CHECK(Export(layout, mesh) == text);
  };
  both("RaggedShard(dims=(0, 1), local_units=(2, 3, 0, 5))R", "[32000<dp=[12800,19200,0,32000]>(500, 128), 4]");
  both("RaggedShard(dims=(0, 1), local_units=(1, 1, 1, 1))S(2)",
       "[16000<dp=[16000,16000,16000,16000]>(500, 128), 2<tp>4]");
  both("RaggedShard(dims=(0,), local_units=(2, 3, 0, 5))R", "[250<dp=[100,150,0,250]>(500), 128, 4]");
  both("_StridedRaggedShard(dims=(0, 1), local_units=(2, 3, 0, 5), split_factor=2)S(1)",
       "[16000<dp=[6400,9600,0,16000]>(500, 64<tp>128), 4]");
  CHECK(Export("[<dp>(501, 128), 4]", mesh) == "RaggedShard(dims=(0, 1), local_units=(1, 1, 1, 1))R");
  CHECK(Export("[<dp>(501, 3), 4]", mesh) == "RaggedShard(dims=(0, 1), local_units=(376, 376, 376, 375))R");

  const auto refused = [&](const char* text) { return Import(text, mesh, {500, 128, 4}); };
  CHECK(refused("RaggedShard(dims=(1,), local_units=(1, 1, 1, 1))R") ==
        "the dims of a RaggedShard are the first ones of the tensor's 3, in order at column 13");
  CHECK(refused("RaggedShard(dims=(0,), local_units=(1, 1))R") ==
        "local_units has 2 numbers, but mesh axis dp has size 4 at column 1");
  CHECK(refused("RaggedShard(dims=(0,), local_units=(1, 1, 1, 0))R") ==
        "500 elements are not 3 equal units at column 1");
  CHECK(refused("RaggedShard(dims=(0,), local_units=(1, 1, 1, 1))S(0)") ==
        "other mesh axes cut its dimensions into 2; only a strided RaggedShard cuts what they leave at column 1");
  CHECK(refused("RaggedShard(dims=(0,), local_units=(1, 1, 1, 1))RaggedShard(dims=(0,), local_units=(1, 1))") ==
        "unsupported: more than one RaggedShard in one layout at column 1");
  CHECK(Export("[500, <dp>(128, 4)]", mesh) ==
        "unsupported: DTensor cannot say flattened dimensions that are not cut along exactly one axis");
  CHECK(testing::Exported(Notation::kJax, "[<dp>(500, 128), 4]", mesh) ==
        "unsupported: jax cannot say it: [16000<dp>(500, 128), 4] flattens dimensions");
}

TEST_CASE("DTensor: exports") {
  const char* mesh = "{X:4,Y:4,Z:16}";
  CHECK(Export("[<Y,X>512, 128]", mesh) == "S(0)[1]S(0)[0]R");
  CHECK(Export("[<X>512, <Z>128] avg<Y>", mesh) == "S(0)P(avg)S(1)");
  CHECK(Export("[512] prod<X,Y,Z>", mesh) == "P(product)P(product)P(product)");
  CHECK(Export("[<X:(1)2,X:(2)2>8]", mesh) == "S(0)RR");
  CHECK(Export("[<2,X>10]", mesh) == "_S(0, 2)RR");
  CHECK(Export("[<2,Y,2,X>64]", mesh) == "_S(0, 16)_S(0, 2)R");
  CHECK(Export("[<Y:(1)2,X,Y:(2)2>64]", mesh) == "_S(0, 2)S(0)R");
  CHECK(Export("[]", "{}") == "()");
  CHECK(Export("[<~X>8]", mesh) == "S(0)RR");
  CHECK(Export("[<X=[2,2,2,2]>8]", mesh) == "S(0)RR");
  CHECK(Export("[<X:(1)2>8]", mesh) == "unsupported: DTensor cannot say a part of an axis");
  CHECK(Export("[8] sum<X:(1)2>", mesh) == "unsupported: DTensor cannot say a part of an axis (X:(1)2)");
  CHECK(Export("[<X:(2)2,X:(1)2>8]", mesh) == "unsupported: DTensor cannot say this order of the parts of an axis");
  CHECK(Export("[<X:(1)2,Y,X:(2)2>64]", mesh) == "unsupported: DTensor cannot say this order of the parts of an axis");
  CHECK(Export("[<2,~X>8]", mesh) == "unsupported: DTensor cannot say reflected axes");
  CHECK(Export("[<X=[1,2,2,3]>8]", mesh) == "unsupported: DTensor cannot say explicit sizes");
  CHECK(Export("[<X:(1)2,X:(2)2>5]", mesh) ==
        "unsupported: dtensor cannot say it exactly: S(0)RR would cut the uneven sizes otherwise");
  CHECK(Export("[<Y,2,X>33]", mesh).starts_with("unsupported: dtensor cannot say it exactly: Shard(dim=0) over"));
}

TEST_CASE("DTensor: exports are what a DTensor can have, shard orders or strided shards") {
  const char* mesh = "{X:4,Y:4,Z:16}";
  CHECK(Export("[<Y,X>33, <Z>5]", mesh) == "S(0)[1]S(0)[0]S(1)");
  CHECK(Export("[<Y,X>32, <2,Z>64]", mesh) == "_S(0, 4)S(0)_S(1, 2)");
  CHECK(Export("[<Y,X>33, <2,Z>64]", mesh).starts_with("unsupported: dtensor cannot say it exactly"));
}

// What PyTorch does, on lists of indices: every placement splits what the device holds so far.
std::vector<int64_t> Chunk(const std::vector<int64_t>& held, int64_t parts, int64_t index) {
  const auto n = static_cast<int64_t>(held.size());
  const int64_t chunk = (n + parts - 1) / parts;
  return {held.begin() + std::min(n, index * chunk), held.begin() + std::min(n, (index + 1) * chunk)};
}

// The order of mesh axes that split factors say, as PyTorch finds it, from the last axis to the first; empty: none.
std::vector<int> OrderOf(const std::vector<int64_t>& factors, const std::vector<int64_t>& sizes) {
  std::vector<int> order;
  for (size_t axis = factors.size(); axis-- > 0;) {
    int64_t before = 1;
    size_t at = 0;
    while (before != factors[axis] && at < order.size()) before *= sizes[order[at++]];
    if (before != factors[axis]) return {};
    order.insert(order.begin() + static_cast<std::ptrdiff_t>(at), static_cast<int>(axis));
  }
  return order;
}

TEST_CASE("DTensor: imports hold what PyTorch's splits give") {
  const auto check = [](bool strided, bool even) {
    const auto mesh = MeshOf("{A:2,B:3,C:4}");
    const std::vector<int64_t> sizes = {2, 3, 4};
    std::vector<int> order = {0, 1, 2};
    // Every factor of 1 to 6, or the sizes of later axes.
    const bool from_sizes = Draw(0, 1) == 1;
    const std::vector<std::vector<int64_t>> products = {{1, 3, 4, 12}, {1, 4}, {1}};
    std::vector<int64_t> factors;
    for (size_t i = 0; i < 3; ++i) {
      const std::vector<int64_t>& of_axis = products[i];
      const auto last = static_cast<int64_t>(of_axis.size()) - 1;
      factors.push_back(!strided ? 1 : from_sizes ? of_axis[Draw(0, last)] : Draw(1, 6));
    }
    if (!strided) {
      for (size_t i = 3; i > 1; --i) std::swap(order[i - 1], order[Draw(0, static_cast<int64_t>(i) - 1)]);
    }
    const int64_t n = even ? 24 * 60 * Draw(0, 2) : Draw(0, 70);
    std::string text;
    for (int axis = 0; axis < 3; ++axis) {
      const auto at = static_cast<size_t>(axis);
      if (strided) {
        text += factors[at] == 1 ? "S(0)" : "_S(0, " + std::to_string(factors[at]) + ")";
      } else {
        text += "S(0)[" + std::to_string(std::find(order.begin(), order.end(), axis) - order.begin()) + "]";
      }
    }
    RC_LOG() << text << " of " << n << std::endl;
    const absl::StatusOr<Layout> layout = ImportLayout(Notation::kDTensor, text, mesh, {n});
    std::vector<int64_t> blocks = factors;  // that an axis finds, and splits each
    const std::vector<int> said = OrderOf(factors, sizes);
    if (strided && !said.empty()) {
      order = said;
      blocks.assign(3, 1);
    }
    if (!strided || !said.empty()) RC_ASSERT(layout.ok());
    if (!layout.ok()) {
      RC_ASSERT(layout.status().code() == absl::StatusCode::kUnimplemented);
      return false;
    }
    for (int64_t p = 0; p < mesh.size(); ++p) {
      std::vector<int64_t> held;
      for (int64_t i = 0; i < n; ++i) held.push_back(i);
      for (const int axis : order) {
        const auto at = static_cast<size_t>(axis);
        std::vector<int64_t> next;
        for (int64_t block = 0; block < blocks[at]; ++block) {
          const auto part = Chunk(Chunk(held, blocks[at], block), sizes[at], mesh.Coordinate(p, axis));
          next.insert(next.end(), part.begin(), part.end());
        }
        held = std::move(next);
      }
      std::vector<int64_t> ours;
      for (const Interval& interval : layout->Intervals(p, 0)) {
        for (int64_t i = interval.begin; i < interval.end; ++i) ours.push_back(i);
      }
      RC_ASSERT(ours == held);
    }
    return true;
  };
  rc::prop("shard orders", [&] { check(false, false); });
  int read = 0;
  rc::prop("strided shards, even", [&] { read += check(true, true) ? 1 : 0; });
  rc::prop("strided shards, any size", [&] { check(true, false); });
  if (read > 0) CHECK(read > 20);  // not all refused
}

}  // namespace
}  // namespace reshard
