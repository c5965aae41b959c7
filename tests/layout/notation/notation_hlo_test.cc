#include <algorithm>
#include <numeric>

#include "reshard/layout/notation.h"
#include "tests/layout/gen.h"
#include "tests/layout/notation/notation_texts.h"
#include "tests/property.h"

namespace reshard {
namespace {

using testing::Draw;
using testing::MeshOf;

std::string Import(std::string_view text, std::string_view mesh, const std::vector<int64_t>& shape) {
  return testing::Imported(Notation::kHlo, text, mesh, shape);
}
std::string Export(std::string_view layout, std::string_view mesh) {
  return testing::Exported(Notation::kHlo, layout, mesh);
}

TEST_CASE("HLO: iota lists") {
  CHECK(Import("{devices=[2,1,4]<=[4,2]T(1,0)}", "{A:4,B:2}", {8, 8, 8}) == "[4<B>8, 8, 2<A>8]");
  CHECK(Import("{devices=[8]<=[8]}", "{A:4,B:2}", {16}) == "[2<A,B>16]");
  CHECK(Import("{devices=[2,4]<=[8]}", "{A:4,B:2}", {8, 8}) == "[4<A:(1)2>8, 2<A:(2)2,B>8]");
  CHECK(Import("{devices=[2,1,4]<=[8] last_tile_dim_replicate}", "{A:8}", {8, 8}) == "[4<A:(1)2>8, 8]");
  CHECK(Import("{devices=[1,2,4]<=[4,2]T(1,0) last_tile_dim_replicate}", "{A:4,B:2}", {8, 8}) == "[8, 4<B>8]");
  CHECK(Import("{devices=[2,3]<=[3,2]T(1,0)}", "{A:6}", {6, 6}) == "[3<A:(3)2>6, 2<A:(1)3>6]");
  CHECK(Import("{devices=[1]<=[1]}", "{}", {8}) == "[8]");
  // The digits of the text and the axes of the mesh need a common refinement.
  CHECK(Import("{devices=[2,3]<=[6]}", "{A:3,B:2}", {6, 6}) ==
        "unsupported: tile dimension 0 of 2 shards is not a product of mesh axes or parts of them at column 2");
  CHECK(Import("{devices=[3,2]<=[2,3]T(1,0)}", "{A:3,B:2}", {6, 6}) ==
        "unsupported: tile dimension 0 of 3 shards is not a product of mesh axes or parts of them at column 2");
}

TEST_CASE("HLO: lists of device numbers") {
  CHECK(Import("{devices=[2,2]0,1,2,3}", "{A:2,B:2}", {8, 8}) == "[4<A>8, 4<B>8]");
  CHECK(Import("{devices=[2,2]0,2,1,3}", "{A:2,B:2}", {8, 8}) == "[4<B>8, 4<A>8]");
  CHECK(Import("{devices=[4]0,2,1,3}", "{A:2,B:2}", {8}) == "[2<B,A>8]");
  // The order within a replicated group means nothing.
  CHECK(Import("{devices=[2,2]2,0,1,3 last_tile_dim_replicate}", "{A:2,B:2}", {8}) == "[4<B>8]");
  CHECK(Import("{devices=[4]3,2,1,0}", "{A:4}", {8}) ==
        "unsupported: this order of the devices is not a product of factors at column 13");
  CHECK(Import("{devices=[4]0,1,3,2}", "{A:4}", {8}) ==
        "unsupported: this order of the devices is not a product of factors at column 13");
  CHECK(Import("{devices=[4]0,1,2,2}", "{A:4}", {8}) == "device 2 appears twice at column 19");
  CHECK(Import("{devices=[4]0,1,2,4}", "{A:4}", {8}) == "device 4 is outside a mesh of 4 devices at column 19");
  CHECK(Import("{devices=[4]0,1,2}", "{A:4}", {8}) == "there are 3 devices but the mesh has 4 at column 18");
}

TEST_CASE("HLO: device numbers are positions in the mesh") {
  CHECK(Import("{devices=[4]<=[4]}", "{A:4}@[7,5,3,1]", {8}) == "[2<A>8]");
  CHECK(Import("{devices=[4]0,1,2,3}", "{A:4}@32", {8}) == "[2<A>8]");
}

TEST_CASE("HLO: replicated, maximal, manual, unreduced") {
  CHECK(Import("{replicated}", "{A:4}", {8}) == "[8]");
  CHECK(Import("{maximal device=3}", "{}@3", {8}) == "[8]");
  CHECK(Import("{maximal device=3}", "{A:4}", {8}) ==
        "unsupported: one device that holds everything needs a mesh of just that device, {}@3 at column 17");
  CHECK(Import("{unreduced}", "{A:4,B:2}", {8}) == "[8] sum<A,B>");
  CHECK(Import("{devices=[2,4]<=[8] last_tile_dims={unreduced}}", "{A:2,B:4}", {8}) == "[4<A>8] sum<B>");
  CHECK(Import("{devices=[1,2,4]<=[8] last_tile_dims={unreduced, replicated}}", "{A:2,B:4}", {8}) == "[8] sum<A>");
  CHECK(Import("{devices=[2,4]<=[8] last_tile_dims={manual}}", "{A:2,B:4}", {8}) ==
        "unsupported: a manual sharding does not say who holds what at column 2");
  CHECK(Import("{manual}", "{A:4}", {8}) == "unsupported: this sharding does not say who holds what at column 2");
  CHECK(Import("{{replicated}, {replicated}}", "{A:4}", {8}) ==
        "unsupported: a tuple of shardings; give them one by one at column 2");
}

TEST_CASE("HLO: uneven sizes are cut in one go") {
  CHECK(Import("{devices=[4]<=[4]}", "{A:4}", {5}) == "[2<A>5]");
  CHECK(Import("{devices=[4]<=[4]}", "{A:2,B:2}", {5}) ==
        "unsupported: dimension 0 of 5 elements is uneven over several axes: HLO cuts over all of them in one go, a "
        "layout axis by axis, with other shards at column 1");
}

TEST_CASE("HLO: bad shardings") {
  const char* mesh = "{A:4,B:2}";
  CHECK(Import("devices=[8]<=[8]", mesh, {8}) == "expected '{', found devices at column 1");
  CHECK(Import("{}", mesh, {8}) == "expected devices, replicated or maximal, found '}' at column 2");
  CHECK(Import("{devices=[4]<=[4]}", mesh, {8}) ==
        "the tile dimensions must multiply to 8, the number of devices of the mesh at column 2");
  CHECK(Import("{devices=[8]<=[4]}", mesh, {8}) ==
        "the reshape must multiply to 8, the number of devices of the mesh at column 15");
  CHECK(Import("{devices=[9223372036854775807,2]<=[8]}", mesh, {8, 8}) ==
        "the tile dimensions must multiply to 8, the number of devices of the mesh at column 2");
  CHECK(Import("{devices=[8,0]<=[8]}", mesh, {8, 8}) ==
        "the tile dimensions must multiply to 8, the number of devices of the mesh at column 2");
  CHECK(Import("{devices=[8]<=[4,2]T(0,0)}", mesh, {8}) == "the transpose is not a permutation of 0 to 1 at column 20");
  CHECK(Import("{devices=[8]<=[4,2]T(1)}", mesh, {8}) == "the transpose is not a permutation of 0 to 1 at column 20");
  CHECK(Import("{devices=[8]<=[8]}", mesh, {8, 8}) ==
        "there are 1 tile dimensions for a tensor of 2 dimensions at column 2");
  CHECK(Import("{devices=[4,2]<=[8] last_tile_dim_replicate}", mesh, {8, 8}) ==
        "there are 2 tile dimensions for a tensor of 2 dimensions and 1 more at column 2");
  CHECK(Import("{devices=[8]<=[8] last_tile_dims={foo}}", mesh, {8}) ==
        "expected replicated, unreduced or manual, found foo at column 35");
  CHECK(Import("{devices=[8]<=[8]}}", mesh, {8}) == "expected the end, found '}' at column 19");
}

TEST_CASE("HLO: exports") {
  CHECK(Export("[<B>8, 8, <A>8]", "{A:4,B:2}") == "{devices=[2,1,4]<=[4,2]T(1,0)}");
  CHECK(Export("[<A,B>16, 3]", "{A:4,B:2}") == "{devices=[8,1]<=[8]}");
  CHECK(Export("[<A:(1)2>8, 8]", "{A:8}") == "{devices=[2,1,4]<=[8] last_tile_dim_replicate}");
  CHECK(Export("[<B>8]", "{A:2,B:2,C:2}") == "{devices=[2,4]<=[2,2,2]T(1,0,2) last_tile_dim_replicate}");
  CHECK(Export("[<B>8]", "{A:2,B:2}@[9,5,7,1]") == "{devices=[2,2]<=[2,2]T(1,0) last_tile_dim_replicate}");
  CHECK(Export("[8]", "{A:4}") == "{replicated}");
  CHECK(Export("[]", "{}") == "{replicated}");
  CHECK(Export("[<A>8] sum<B>", "{A:4,B:2}") == "{devices=[4,2]<=[8] last_tile_dims={unreduced}}");
  CHECK(Export("[8] sum<B>", "{A:4,B:2}") == "{devices=[1,2,4]<=[4,2]T(1,0) last_tile_dims={unreduced, replicated}}");
  CHECK(Export("[<2,A>8]", "{A:4}") == "unsupported: HLO cannot say that a device holds several blocks of a dimension");
}

TEST_CASE("HLO: imports hold what iota, reshape and transpose give") {
  rc::prop("any tiling of 24 devices", [] {
    const std::vector<std::string> meshes = {"{A:24}", "{A:4,B:6}", "{A:2,B:3,C:4}", "{A:2,B:2,C:2,D:3}",
                                             "{A:6,B:1,C:4}"};
    const auto mesh = MeshOf(meshes[Draw(0, 4)]);
    const auto divisor = [](int64_t n) {
      std::vector<int64_t> divisors;
      for (int64_t c = 1; c <= n; ++c) {
        if (n % c == 0) divisors.push_back(c);
      }
      return divisors[Draw(0, static_cast<int64_t>(divisors.size()) - 1)];
    };
    const int64_t r0 = divisor(24);
    const int64_t r1 = divisor(24 / r0);
    const std::vector<int64_t> reshape = {r0, r1, 24 / r0 / r1};
    std::vector<int64_t> transpose = {0, 1, 2};
    for (size_t i = 3; i > 1; --i) {
      std::swap(transpose[i - 1], transpose[Draw(0, static_cast<int64_t>(i) - 1)]);
    }
    const int64_t t0 = divisor(24);
    const int64_t t1 = divisor(24 / t0);
    const std::vector<int64_t> shape = {Draw(0, 50), 24 * Draw(0, 2)};
    const auto list = [](const std::vector<int64_t>& v) {
      std::string out;
      for (const int64_t i : v) out += (out.empty() ? "" : ",") + std::to_string(i);
      return out;
    };

    std::vector<int64_t> ids;
    const int64_t strides[] = {reshape[1] * reshape[2], reshape[2], 1};
    const auto at = [&](int64_t i) { return static_cast<size_t>(transpose[i]); };
    for (int64_t i = 0; i < reshape[at(0)]; ++i) {
      for (int64_t j = 0; j < reshape[at(1)]; ++j) {
        for (int64_t k = 0; k < reshape[at(2)]; ++k) {
          ids.push_back(i * strides[at(0)] + j * strides[at(1)] + k * strides[at(2)]);
        }
      }
    }
    const std::string tiles = "{devices=[" + list({t0, t1, 24 / t0 / t1}) + "]";
    const bool as_list = Draw(0, 1) == 1;
    const std::string text = tiles + (as_list ? list(ids) : "<=[" + list(reshape) + "]T(" + list(transpose) + ")") +
                             " last_tile_dim_replicate}";
    RC_LOG() << text << std::endl;
    const auto layout = ImportLayout(Notation::kHlo, text, mesh, shape);
    if (!layout.ok()) {
      RC_ASSERT(layout.status().code() == absl::StatusCode::kUnimplemented);
      return;
    }
    for (size_t place = 0; place < ids.size(); ++place) {
      const auto number = static_cast<int64_t>(place);
      const int64_t tile[] = {number / (24 / t0), number / (24 / t0 / t1) % t1};
      const int64_t parts[] = {t0, t1};
      for (size_t d = 0; d < 2; ++d) {
        const int64_t chunk = (shape[d] + parts[d] - 1) / parts[d];
        const Interval wanted{std::min(shape[d], tile[d] * chunk), std::min(shape[d], (tile[d] + 1) * chunk)};
        const std::vector<Interval> held = layout->Intervals(ids[place], static_cast<int>(d));
        RC_ASSERT((wanted.length() == 0 ? held.empty() : held == std::vector<Interval>{wanted}));
      }
    }
  });
}

}  // namespace
}  // namespace reshard
