#include "reshard/layout/layout.h"

#include "absl/hash/hash.h"
#include "reshard/layout/text.h"
#include "tests/layout/gen.h"
#include "tests/layouts.h"
#include "tests/property.h"

namespace reshard {
namespace {

using testing::AnyLayout;
using testing::AnyMesh;
using testing::Draw;
using testing::HoldsByDefinition;
using testing::LayoutOf;
using testing::MeshOf;
using testing::Message;

// The indices that each device holds along dimension 0.
std::vector<std::vector<int64_t>> Held(const Layout& layout) {
  std::vector<std::vector<int64_t>> held;
  for (int64_t p = 0; p < layout.mesh().size(); ++p) {
    held.emplace_back();
    for (const Interval& interval : layout.Intervals(p, 0)) {
      for (int64_t i = interval.begin; i < interval.end; ++i) held.back().push_back(i);
    }
  }
  return held;
}
using Indices = std::vector<std::vector<int64_t>>;

TEST_CASE("lists are major first") {
  CHECK(Held(LayoutOf("[<X,Y>4]", "{X:2,Y:2}")) == Indices{{0}, {1}, {2}, {3}});
  CHECK(Held(LayoutOf("[<Y,X>4]", "{X:2,Y:2}")) == Indices{{0}, {2}, {1}, {3}});
}

TEST_CASE("cuts go ceil by ceil, trailing shards may be short or empty") {
  CHECK(Held(LayoutOf("[<X>6]", "{X:4}")) == Indices{{0, 1}, {2, 3}, {4, 5}, {}});
  CHECK(Held(LayoutOf("[<X,Y>5]", "{X:2,Y:2}")) == Indices{{0, 1}, {2}, {3}, {4}});
  CHECK(Held(LayoutOf("[<X>0]", "{X:2}")) == Indices{{}, {}});
}

TEST_CASE("a digit in front of an axis is DTensor's strided shard") {
  // [0..4] over two devices as pytorch #168134 has it.
  CHECK(Held(LayoutOf("[<2,X>5]", "{X:2}")) == Indices{{0, 1, 3}, {2, 4}});
}

TEST_CASE("a digit and a reflected axis are the zigzag order") {
  CHECK(Held(LayoutOf("[<2,~X>8]", "{X:4}")) == Indices{{0, 7}, {1, 6}, {2, 5}, {3, 4}});
  // Interval numbers count empty ones: the halves are 0 and 1 also where they are shorter than the axis.
  CHECK(Held(LayoutOf("[<2,~X>5]", "{X:4}")) == Indices{{0}, {1}, {2, 4}, {3}});
}

TEST_CASE("the middle digit of an axis") {
  CHECK(Held(LayoutOf("[<X:(2)3>3]", "{X:12}")) == Indices{{0}, {0}, {1}, {1}, {2}, {2}, {0}, {0}, {1}, {1}, {2}, {2}});
  CHECK(Held(LayoutOf("[<X:(1)2,X:(2)2>4]", "{X:4}")) == Held(LayoutOf("[<X>4]", "{X:4}")));
}

TEST_CASE("explicit sizes cut every interval") {
  CHECK(Held(LayoutOf("[<X=[1,0,3]>4]", "{X:3}")) == Indices{{0}, {}, {1, 2, 3}});
  CHECK(Held(LayoutOf("[<2,X=[1,2]>6]", "{X:2}")) == Indices{{0, 3}, {1, 2, 4, 5}});
  CHECK(Held(LayoutOf("[<X=[0,0]>0]", "{X:2}")) == Indices{{}, {}});
}

TEST_CASE("an axis that appears nowhere replicates") {
  CHECK(Held(LayoutOf("[2]", "{X:2}")) == Indices{{0, 1}, {0, 1}});
}

TEST_CASE("0-d tensors, sizes of zero, the default layout") {
  CHECK(LayoutOf("[]", "{X:2}").num_elements() == 1);
  CHECK(LayoutOf("[0, 5]", "{X:2}").num_elements() == 0);
  CHECK(Layout().rank() == 0);
  CHECK(Layout().mesh().size() == 1);
  CHECK(Layout() == LayoutOf("[]", "{}"));
}

TEST_CASE("who holds what is the definition") {
  rc::prop("any layout", [] {
    const Layout layout = AnyLayout(AnyMesh());
    std::vector<int64_t> largest(static_cast<size_t>(layout.rank()));
    for (int64_t p = 0; p < layout.mesh().size(); ++p) {
      const std::vector<int64_t> local = layout.LocalShape(p);
      for (int d = 0; d < layout.rank(); ++d) {
        const std::vector<Interval> intervals = layout.Intervals(p, d);
        std::vector<bool> held(static_cast<size_t>(layout.dim(d).size));
        int64_t last_end = -1;
        int64_t length = 0;
        for (const Interval& interval : intervals) {
          RC_ASSERT(last_end < interval.begin && interval.begin < interval.end);
          last_end = interval.end;
          length += interval.length();
          for (int64_t i = interval.begin; i < interval.end; ++i) held[i] = true;
        }
        for (int64_t i = 0; i < layout.dim(d).size; ++i) {
          RC_ASSERT(held[i] == HoldsByDefinition(layout, p, d, i));
        }
        RC_ASSERT(length == local[d]);
        largest[d] = std::max(largest[d], length);
      }
    }
    RC_ASSERT(layout.MaxLocalShape() == largest);
    int64_t product = 1;
    for (const int64_t size : largest) product *= size;
    RC_ASSERT(layout.MaxLocalElements() == product);
  });
}

TEST_CASE("the largest shard with digits, reflections and odd sizes") {
  const std::vector<int64_t> sizes[] = {{2, 3, 4}, {7}, {5, 7}, {11}, {2, 9}};
  rc::prop("one dimension, many factors", [&] {
    std::vector<Mesh::Axis> axes;
    for (const int64_t size : sizes[Draw(0, 4)]) axes.push_back({"A" + std::to_string(axes.size()), size});
    const auto mesh = *Mesh::Create(axes);
    DimLayout dim;
    dim.size = Draw(0, 200);
    for (int a = 0; a < mesh.num_axes(); ++a) {
      if (Draw(0, 3) > 0) dim.factors.push_back(Factor::Blocks(Draw(1, 5)));
      const AxisRef ref{a, 1, mesh.axis(a).size};
      dim.factors.push_back(Draw(0, 1) == 1 ? Factor::Reflected(ref) : Factor::Along(ref));
    }
    const auto layout = Layout::Create(mesh, {dim});
    RC_ASSERT(layout.ok());
    int64_t largest = 0;
    for (int64_t p = 0; p < mesh.size(); ++p) largest = std::max(largest, layout->LocalShape(p)[0]);
    RC_ASSERT(layout->MaxLocalShape()[0] == largest);
  });
}

TEST_CASE("large meshes and sizes cost nothing for plain axes") {
  const Layout layout = LayoutOf("[<X,Y>9223372036854775807]", "{X:2048,Y:2048}");
  CHECK(layout.MaxLocalShape()[0] == 2199023255552);
  CHECK(layout.Intervals(4194303, 0).back().end == INT64_MAX);
  CHECK(LayoutOf("[<1048576,X>9223372036854775807]", "{X:4194304}").MaxLocalShape()[0] == 2199023255552);
}

TEST_CASE("rules of the algebra") {
  const auto mesh = MeshOf("{X:4,Y:6}");
  const AxisRef x{0, 1, 4};
  const auto axis = [](AxisRef ref) { return Factor::Along(ref); };
  const auto digit = [](int64_t n) { return Factor::Blocks(n); };
  const auto reason = [&](std::vector<DimLayout> dims, std::optional<Partial> partial = std::nullopt) {
    const auto layout = Layout::Create(mesh, std::move(dims), std::move(partial));
    if (layout.ok()) return std::string("ok");
    CHECK(layout.status().code() == absl::StatusCode::kInvalidArgument);
    return Message(layout.status());
  };
  CHECK(reason({{8, {axis(x)}}}) == "ok");
  CHECK(reason({{8, {axis(x)}}, {8, {axis(x)}}}) == "X is used twice");
  CHECK(reason({{8, {axis(x)}}}, Partial{ReduceOp::kSum, {x}}) == "X is used twice");
  CHECK(reason({{8, {axis(x), axis({0, 1, 2})}}}) == "X:(1)2 overlaps with X, which is used too");
  CHECK(reason({{8, {axis({0, 1, 2})}}}, Partial{ReduceOp::kMax, {{0, 2, 2}}}) == "ok");
  CHECK(reason({{8, {axis({1, 1, 2}), axis({1, 1, 3})}}}) == "Y:(1)3 overlaps with Y:(1)2, which is used too");
  CHECK(reason({{8, {axis({1, 3, 2}), axis({1, 2, 3})}}}) == "Y:(2)3 overlaps with Y:(3)2, which is used too");
  // A part of size 1 fits everywhere but beside the whole axis.
  CHECK(reason({{8, {axis({0, 1, 2}), axis({0, 1, 1}), axis({0, 2, 1}), axis({0, 1, 1})}}}) == "ok");
  CHECK(reason({{8, {axis({0, 4, 1})}}, {8, {axis(x)}}}) == "X overlaps with X:(4)1, which is used too");
  CHECK(reason({{8, {axis({0, 1, 3})}}}) == "the part X:(1)3 does not fit the axis: 1*3 must divide 4");
  CHECK(reason({{8, {axis({0, 0, 2})}}}) == "the part X:(0)2 does not fit the axis: 0*2 must divide 4");
  CHECK(reason({{8, {axis({0, INT64_MAX, 2})}}}).find("does not fit the axis") != std::string::npos);
  CHECK(reason({{8, {axis({2, 1, 2})}}}) == "there is no axis number 2; the mesh has X, Y");
  CHECK(reason({{8, {axis({-1, 1, 2})}}}) == "there is no axis number -1; the mesh has X, Y");
  CHECK(reason({{8, {Factor::Reflected({0, 1, 2})}}}) ==
        "only a whole axis can be reflected or have explicit sizes or slots, not X:(1)2");
  CHECK(reason({{-1, {}}}) == "the size -1 is negative");
  CHECK(reason({{INT64_MAX, {}}, {2, {}}}) == "the number of elements does not fit a signed 64-bit integer");
  CHECK(reason({{0, {}}, {INT64_MAX, {}}, {2, {}}}) == "the number of elements does not fit a signed 64-bit integer");
  CHECK(reason({{0, {}}, {INT64_MAX, {}}}) == "ok");
  CHECK(reason({{8, {digit(0)}}}) == "a block count must be at least 1, not 0");
  CHECK(reason({{8, {digit(-2)}}}) == "a block count must be at least 1, not -2");
  CHECK(reason({{8, {digit(1024), digit(1024)}}}) == "ok");
  CHECK(reason({{8, {digit(1024), digit(1025)}}}) == "the dimension is cut into more than 1048576 intervals");
  CHECK(reason({{8, {digit(INT64_MAX), digit(INT64_MAX)}}}) == "the dimension is cut into more than 1048576 intervals");
  CHECK(reason({{8, std::vector<Factor>(1025, digit(1))}}) == "the layout has more than 1024 factors");
  CHECK(reason(std::vector<DimLayout>(64)) == "ok");
  CHECK(reason(std::vector<DimLayout>(65)) == "the layout has more than 64 dimensions");
}

TEST_CASE("explicit sizes must add up to every interval they cut") {
  const auto mesh = MeshOf("{X:2,Y:2}");
  const auto reason = [&](std::string_view text) {
    const auto layout = ParseLayout(text, mesh);
    if (layout.ok()) return std::string("ok");
    const std::string message = Message(layout.status());
    return message.substr(0, message.find(" at column"));
  };
  CHECK(reason("[<X=[1,2]>3]") == "ok");
  CHECK(reason("[<X=[1,2,3]>6]") == "axis X has size 2 but 3 explicit sizes are given");
  CHECK(reason("[<X=[1,2]>4]") ==
        "the explicit sizes of axis X add up to 3 but the intervals they cut have 4 elements");
  CHECK(reason("[<Y,X=[1,2]>6]") == "ok");
  CHECK(reason("[<Y,X=[1,2]>5]") ==
        "the explicit sizes of axis X add up to 3 but the intervals they cut differ in length");
  CHECK(reason("[<2,X=[0,0]>1]") ==
        "the explicit sizes of axis X add up to 0 but the intervals they cut differ in length");
  CHECK(reason("[<X=[2,2],Y=[0,2]>4]") == "ok");
  CHECK(reason("[<X=[1,3],Y=[0,1]>4]") ==
        "the explicit sizes of axis Y add up to 1 but the intervals they cut differ in length");
  CHECK(reason("[<X=[9223372036854775807,1]>4]") == "the explicit sizes of axis X do not fit a signed 64-bit integer");
  CHECK(reason("[<X=[1,-1]>0]") == "sizes cannot be negative");
}

TEST_CASE("Create brings factors to normal form, so that equal texts are equal layouts") {
  const auto mesh = MeshOf("{X:4}");
  Factor factor{Factor::Kind::kAxis, {0, 1, 2}, true, 17, {1, 2, 3}, {{{4, 2}}}};
  const auto layout = Layout::Create(mesh, {{8, {factor}}}, Partial{ReduceOp::kMax, {}});
  REQUIRE(layout.ok());
  CHECK(*layout == LayoutOf("[<X:(1)2>8]", mesh));
  CHECK_FALSE(layout->partial().has_value());
}

TEST_CASE("layouts are equal as they are written, and equal ones hash equally") {
  const std::vector<std::string> texts = {"[8, 4]",           "[<X>8, 4]",        "[<Y>8, 4]",       "[8, <X>4]",
                                          "[<X,Y>8, 4]",      "[<Y,X>8, 4]",      "[<2,X>8, 4]",     "[<~X>8, 4]",
                                          "[<X>8, 4] sum<Y>", "[<X>8, 4] max<Y>", "[<X=[3,5]>8, 4]", "[<X=[5,3]>8, 4]",
                                          "[8, 4] sum<X,Y>"};
  std::vector<Layout> layouts;
  for (const char* mesh : {"{X:2,Y:2}", "{X:2,Y:2}@4", "{X:2,Z:2,Y:2}"}) {
    for (const std::string& text : texts) layouts.push_back(testing::LayoutOf(text, mesh));
  }
  for (size_t a = 0; a < layouts.size(); ++a) {
    for (size_t b = 0; b < layouts.size(); ++b) {
      CAPTURE(ToString(layouts[a]), ToString(layouts[b]));
      CHECK((layouts[a] == layouts[b]) == (a == b));
    }
    const Layout again = *Layout::Create(layouts[a].mesh(), layouts[a].dims(), layouts[a].partial());
    CHECK(again == layouts[a]);
    CHECK(absl::HashOf(again) == absl::HashOf(layouts[a]));
  }
  CHECK(*Layout::Create(Mesh(), {}) == Layout());
  CHECK(absl::HashOf(*Layout::Create(Mesh(), {})) == absl::HashOf(Layout()));
  Layout from = layouts[3];
  const Layout to = std::move(from);
  CHECK(from == to);  // NOLINT(bugprone-use-after-move)
}

TEST_CASE("a layout made from sizes and factors is the one that is written so") {
  const Mesh mesh = MeshOf("{X:2,Y:4}");
  const AxisRef x{0, 1, 2}, y{1, 1, 4};
  CHECK(*EvenLayout(mesh, {8, 4}) == LayoutOf("[8, 4]", mesh));
  CHECK(*EvenLayout(mesh, {}) == LayoutOf("[]", mesh));
  CHECK(*EvenLayout(mesh, {8, 4}, 1, {Factor::Along(y), Factor::Along(x)}) == LayoutOf("[8, <Y,X>4]", mesh));
  CHECK(*EvenLayout(mesh, {8, 4}, 0, {Factor::Blocks(2), Factor::Reflected(y)}) == LayoutOf("[<2,~Y>8, 4]", mesh));
  CHECK(EvenLayout(mesh, {8, 4}, 2, {Factor::Along(y)}).status().message() == "dimension 2 of a tensor of 2");
  CHECK_FALSE(EvenLayout(mesh, {-1}).ok());
}

TEST_CASE("a layout with other partial values holds the same fragments") {
  const Mesh mesh = MeshOf("{X:2,Y:4}");
  const Layout whole = LayoutOf("[<X>8, 4]", mesh);
  const Layout sum = *whole.WithPartial(Partial{ReduceOp::kSum, {{1, 1, 4}}});
  CHECK(sum == LayoutOf("[<X>8, 4] sum<Y>", mesh));
  CHECK(absl::HashOf(sum.WithoutPartial()) == absl::HashOf(whole));
  CHECK(sum.WithoutPartial() == whole);
  CHECK(whole.WithoutPartial() == whole);
  CHECK(*sum.WithPartial(std::nullopt) == whole);
  CHECK_FALSE(whole.WithPartial(Partial{ReduceOp::kSum, {{0, 1, 2}}}).ok());  // X cuts it already
}

}  // namespace
}  // namespace reshard
