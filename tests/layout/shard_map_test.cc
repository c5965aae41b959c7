#include "reshard/layout/shard_map.h"

#include <algorithm>
#include <set>

#include "reshard/layout/text.h"
#include "tests/layout/gen.h"
#include "tests/property.h"

namespace reshard {
namespace {

using testing::AnyLayout;
using testing::AnyMesh;
using testing::Draw;
using testing::LayoutGen;
using testing::LayoutOf;
using testing::MeshOf;

std::vector<Interval> RowIntervals(const DimShards& dim, int64_t row) {
  return {dim.intervals.begin() + dim.first[row], dim.intervals.begin() + dim.first[static_cast<size_t>(row) + 1]};
}

// The elements a device holds, by row-major number; the definition of equivalence is that these sets are equal.
std::set<int64_t> Elements(const Layout& layout, int64_t position) {
  std::set<int64_t> elements = {0};
  for (int d = 0; d < layout.rank(); ++d) {
    std::set<int64_t> next;
    for (const Interval& interval : layout.Intervals(position, d)) {
      for (int64_t i = interval.begin; i < interval.end; ++i) {
        for (const int64_t e : elements) next.insert(e * layout.dim(d).size + i);
      }
    }
    elements = std::move(next);
  }
  return elements;
}

// By definition, for layouts without partial values.
bool SameElements(const Layout& a, const Layout& b) {
  if (a.shape() != b.shape()) return false;
  const int64_t world = std::max(a.mesh().world(), b.mesh().world());
  for (int64_t device = 0; device < world; ++device) {
    const auto p = a.mesh().Position(device);
    const auto q = b.mesh().Position(device);
    const std::set<int64_t> in_a = p ? Elements(a, *p) : std::set<int64_t>();
    const std::set<int64_t> in_b = q ? Elements(b, *q) : std::set<int64_t>();
    if (in_a != in_b) return false;
  }
  return true;
}

bool Same(const Layout& a, const Layout& b) {
  const absl::StatusOr<bool> same = Equivalent(a, b);
  REQUIRE(same.ok());
  const absl::StatusOr<bool> mirrored = Equivalent(b, a);
  REQUIRE(mirrored.ok());
  REQUIRE(*same == *mirrored);
  return *same;
}

TEST_CASE("the shard map keeps its invariants and agrees with Intervals") {
  rc::prop("any layout", [] {
    const Layout layout = AnyLayout(AnyMesh());
    const absl::StatusOr<ShardMap> map = ShardMap::Create(layout);
    RC_ASSERT(map.ok());
    RC_ASSERT(map->rank() == layout.rank());
    for (int d = 0; d < map->rank(); ++d) {
      const DimShards& dim = map->dim(d);
      int64_t rows = 1;
      for (const AxisRef& ref : dim.digits) rows *= ref.size;
      RC_ASSERT(dim.num_rows() == rows);
      RC_ASSERT(static_cast<int64_t>(dim.first.size()) == rows + 1);
      RC_ASSERT(dim.first.front() == 0);
      RC_ASSERT(dim.first.back() == static_cast<int64_t>(dim.intervals.size()));
      std::vector<int> covered(static_cast<size_t>(dim.size));
      for (int64_t r = 0; r < rows; ++r) {
        int64_t last_end = -1;
        int64_t length = 0;
        for (const Interval& interval : RowIntervals(dim, r)) {
          RC_ASSERT(last_end < interval.begin && interval.begin < interval.end);
          last_end = interval.end;
          length += interval.length();
          for (int64_t i = interval.begin; i < interval.end; ++i) ++covered[i];
        }
        RC_ASSERT(length == dim.length[r]);
      }
      RC_ASSERT(std::all_of(covered.begin(), covered.end(), [](int times) { return times == 1; }));
      const auto begins = [](const Interval& a, const Interval& b) { return a.begin < b.begin; };
      std::vector<Interval> in_order;
      for (const DimShards::IntervalOfRow& place : dim.ascending) {
        RC_ASSERT(dim.first[place.row] <= place.interval && place.interval < dim.first[place.row + 1]);
        in_order.push_back(dim.intervals[place.interval]);
      }
      RC_ASSERT(in_order.empty() == std::is_sorted(dim.intervals.begin(), dim.intervals.end(), begins));
      RC_ASSERT(in_order.empty() || in_order.size() == dim.intervals.size());
      RC_ASSERT(std::is_sorted(in_order.begin(), in_order.end(), begins));
    }
    for (int64_t p = 0; p < layout.mesh().size(); ++p) {
      int64_t elements = 1;
      for (int d = 0; d < map->rank(); ++d) {
        RC_ASSERT(RowIntervals(map->dim(d), map->Row(p, d)) == layout.Intervals(p, d));
        elements *= layout.LocalShape(p)[d];
      }
      RC_ASSERT(map->LocalElements(p) == elements);
    }
  });
}

TEST_CASE("few elements over many devices and intervals are little work") {
  const Layout layout = LayoutOf("[<1048576,X>8]", "{X:4194304}");
  const auto map = ShardMap::Create(layout);
  REQUIRE(map.ok());
  CHECK(map->LocalElements(0) == 8);
  CHECK(map->LocalElements(1) == 0);
}

TEST_CASE("too many intervals are refused") {
  const auto map = ShardMap::Create(LayoutOf("[<1048576,X>1099511627776]", "{X:64}"));
  REQUIRE_FALSE(map.ok());
  CHECK(map.status().code() == absl::StatusCode::kResourceExhausted);
  // Digits behind the last axis cut nothing apart.
  CHECK(ShardMap::Create(LayoutOf("[<X,1048576>1099511627776]", "{X:64}")).ok());
}

TEST_CASE("different texts of the same layout are equivalent") {
  const auto mesh = MeshOf("{X:4,Y:2,Z:1}");
  const auto same = [&](std::string_view a, std::string_view b) { return Same(LayoutOf(a, mesh), LayoutOf(b, mesh)); };
  CHECK(same("[<X>8]", "[<X:(1)2,X:(2)2>8]"));
  CHECK(same("[<X,Z>8]", "[<Z,X>8]"));
  CHECK(same("[<X,3>8]", "[<X>8]"));
  CHECK(same("[<X=[2,2,2,2]>8]", "[<X>8]"));
  CHECK(same("[<2,3,X>24]", "[<6,X>24]"));
  CHECK(same("[<X>8] sum<Z>", "[<X>8]"));
  CHECK(same("[<X>8] sum<Z>", "[<X>8] max<Z>"));
  CHECK(same("[8] sum<X,Y>", "[8] sum<Y,X:(2)2,X:(1)2>"));
  CHECK_FALSE(same("[<X,Y>8]", "[<Y,X>8]"));
  CHECK_FALSE(same("[8] sum<X>", "[8]"));
  CHECK_FALSE(same("[8] sum<X>", "[8] avg<X>"));
  CHECK_FALSE(same("[8] sum<X>", "[8] sum<X:(1)2>"));
  CHECK_FALSE(same("[8]", "[8, 1]"));
  CHECK_FALSE(same("[8]", "[9]"));
  CHECK_FALSE(same("[<2,X>8]", "[<X>8]"));
  CHECK_FALSE(same("[<Y=[1,3]>4]", "[<Y=[2,2]>4]"));
  CHECK_FALSE(same("[<Y=[1,3],X>4]", "[<X,Y>4]"));
}

TEST_CASE("devices that hold nothing do not differ") {
  const auto mesh = MeshOf("{X:4,Y:2}");
  // Only X=0 holds anything, whatever Y makes of it.
  CHECK(Same(LayoutOf("[<X>0, <Y>4]", mesh), LayoutOf("[0, 4]", mesh)));
  CHECK(Same(LayoutOf("[<X=[1,0,0,0]>1, <Y>4]", mesh), LayoutOf("[<X>1, <Y>4]", mesh)));
  CHECK_FALSE(Same(LayoutOf("[<X>1, <Y>4]", mesh), LayoutOf("[<X>1, 4]", mesh)));
}

TEST_CASE("other meshes are compared by device") {
  CHECK(Same(LayoutOf("[<A>8]", "{A:4}"), LayoutOf("[<B>8]", "{B:4}")));
  CHECK(Same(LayoutOf("[<A>8]", "{A:4}"), LayoutOf("[<B,C>8]", "{B:2,C:2}")));
  CHECK_FALSE(Same(LayoutOf("[<A>8]", "{A:4}"), LayoutOf("[<A>8]", "{A:4}@1")));
  CHECK_FALSE(Same(LayoutOf("[<A>8]", "{A:2}"), LayoutOf("[<A>8]", "{A:2}@[1,0]")));
  // Devices 2 and 3 hold nothing, as devices outside the mesh do.
  CHECK(Same(LayoutOf("[<A>2]", "{A:4}"), LayoutOf("[<A>2]", "{A:2}")));
  CHECK_FALSE(Same(LayoutOf("[2]", "{A:4}"), LayoutOf("[2]", "{A:2}")));
  CHECK_FALSE(Same(LayoutOf("[2] sum<A>", "{A:2}"), LayoutOf("[2] sum<B>", "{B:2}")));
}

TEST_CASE("equivalence is equality of the elements that each device holds") {
  LayoutGen small;
  small.max_size = 6;
  small.max_rank = 2;
  small.partial = false;
  rc::prop("layouts over one mesh", [&] {
    const auto mesh = AnyMesh();
    const Layout a = AnyLayout(mesh, small);
    Layout b = AnyLayout(mesh, small);
    // The same shape, where the factors allow it.
    std::vector<DimLayout> dims = b.dims();
    if (b.rank() == a.rank()) {
      for (size_t d = 0; d < dims.size(); ++d) dims[d].size = a.dims()[d].size;
      if (const auto reshaped = Layout::Create(mesh, dims); reshaped.ok()) b = *reshaped;
    }
    RC_ASSERT(*Equivalent(a, b) == SameElements(a, b));
    RC_ASSERT(*Equivalent(a, a));
  });
  rc::prop("a layout and one a little different", [&] {
    const Layout a = AnyLayout(AnyMesh(), small);
    std::vector<DimLayout> dims = a.dims();
    for (DimLayout& dim : dims) {
      for (Factor& factor : dim.factors) {
        if (Draw(0, 2) > 0) continue;
        if (factor.kind == Factor::Kind::kBlocks) factor.blocks = Draw(1, 3);
        // Where the sizes are explicit, others; where they are not, the usual ones or others, as far as they add up.
        if (factor.kind == Factor::Kind::kAxis) factor.sizes.assign(static_cast<size_t>(factor.axis.size), 0);
        if (factor.kind != Factor::Kind::kSizes && factor.kind != Factor::Kind::kAxis) continue;
        factor.kind = Factor::Kind::kSizes;
        int64_t left = dim.size;
        for (int64_t& size : factor.sizes) left -= size = std::min(left, Draw(0, 3));
        factor.sizes.back() += left;
      }
      if (Draw(0, 2) == 0) std::reverse(dim.factors.begin(), dim.factors.end());
    }
    const absl::StatusOr<Layout> b = Layout::Create(a.mesh(), dims);
    if (b.ok()) RC_ASSERT(*Equivalent(a, *b) == SameElements(a, *b));
  });
  rc::prop("layouts over different meshes", [&] {
    const Layout a = AnyLayout(AnyMesh(), small);
    const auto mesh = AnyMesh();
    std::vector<DimLayout> dims;
    for (const int64_t size : a.shape()) dims.push_back({size, {}});
    for (int i = 0; i < mesh.num_axes() && !dims.empty(); ++i) {
      const auto d = static_cast<size_t>(Draw(0, static_cast<int64_t>(dims.size()) - 1));
      dims[d].factors.push_back(Factor::Along({i, 1, mesh.axis(i).size}));
    }
    const Layout b = *Layout::Create(mesh, dims);
    RC_ASSERT(*Equivalent(a, b) == SameElements(a, b));
    RC_ASSERT(*Equivalent(b, a) == SameElements(a, b));
  });
}

}  // namespace
}  // namespace reshard
