#include <algorithm>
#include <memory>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "planner/report/svg.h"
#include "reshard/layout/text.h"
#include "reshard/planner/report.h"
#include "tests/catch.h"
#include "tests/layouts.h"
#include "tests/planner/report/read_picture.h"

namespace reshard {
namespace {

using testing::LayoutOf;
using testing::MeshOf;

using testing::Cell;
using testing::Columns;
using testing::Devices;
using testing::Element;
using testing::GridCells;
using testing::ParseXml;
using testing::SvgCells;

// Layouts of small meshes: every pair of these dimensions that does not use an axis twice, and some of other ranks.
std::vector<Layout> SmallLayouts() {
  const std::vector<std::string> dims = {"1",
                                         "4",
                                         "<A>4",
                                         "<A>1",
                                         "<B>7",
                                         "<B,A>13",
                                         "<2,A>9",
                                         "<2,~B>13",
                                         "<A=[1,4]>5",
                                         "<C:(1)2>6",
                                         "<C:(2)2>5",
                                         "<B,2,C>30",
                                         "<C,A>100",
                                         "<B=[0,5,0]>5",
                                         "<A>(5, 3)",
                                         "<A>(<B>7, 2)",
                                         "<A=[2,4]>(3, <C:(1)2>4)"};
  const std::string meshes[] = {"{A:2,B:3,C:4}", "{C:4,A:2,B:3}@7", "{A:2,B:3,C:1}@[9,4,5,0,1,2]"};
  std::vector<Layout> out;
  for (const std::string& mesh : meshes) {
    std::vector<std::string> texts = {
        "[]", "[] sum<A>", "[<A>4] max<B>", "[4, <A>6, 5, <B>9]", "[<A>4, <B>6, <C>8]", "[2, 3, 4]"};
    for (const std::string& a : dims) {
      texts.push_back(absl::StrCat("[", a, "]"));
      for (const std::string& b : dims) texts.push_back(absl::StrCat("[", a, ", ", b, "]"));
    }
    for (const std::string& text : texts) {
      const absl::StatusOr<Layout> layout = ParseLayout(text, MeshOf(mesh));
      if (layout.ok()) out.push_back(*layout);
    }
  }
  REQUIRE(out.size() > 200);
  return out;
}

bool Holds(const Layout& layout, int64_t position, const Cell& cell) {
  for (const auto& [d, where] : cell.where) {
    const std::vector<Interval> held = layout.Intervals(position, d);
    // Clang 14 captures no structured binding by name.
    if (std::none_of(held.begin(), held.end(),
                     [&part = where](const Interval& i) { return i.begin <= part.begin && part.end <= i.end; })) {
      return false;
    }
  }
  return true;
}

// Every device is in exactly the cells that it holds, and the cells make up the whole tensor.
void CheckCells(const Layout& layout, const std::vector<Cell>& cells) {
  std::map<int, std::set<int64_t>> covered;
  for (const Cell& cell : cells) {
    for (const auto& [d, where] : cell.where) {
      REQUIRE(where.begin < where.end);
      REQUIRE(where.end <= layout.dim(d).size);
      for (int64_t i = where.begin; i < where.end; ++i) covered[d].insert(i);
    }
    if (cell.label == "...") continue;
    const std::optional<std::set<int64_t>> devices = Devices(cell.label);
    if (!devices) continue;  // shortened
    for (int64_t position = 0; position < layout.mesh().size(); ++position) {
      const int64_t device = layout.mesh().Device(position);
      INFO("device " << device << " in cell \"" << cell.label << "\"");
      CHECK(devices->contains(device) == Holds(layout, position, cell));
    }
  }
  for (const auto& [d, indices] : covered) CHECK(static_cast<int64_t>(indices.size()) == layout.dim(d).size);
}

// Well-formed, and every text stays within the document and, in a block, within its rectangle.
void CheckSvg(const std::string& svg) {
  std::string error;
  const std::vector<Element> elements = ParseXml(svg, error);
  REQUIRE(error == "");
  REQUIRE(elements[0].name == "svg");
  CHECK(elements[0].attributes.at("xmlns") == "http://www.w3.org/2000/svg");
  for (const Element& element : elements) {
    CHECK(element.name != "script");
    if (element.name != "text" || !element.attributes.contains("x")) continue;
    const int64_t x = element.number("x");
    const int64_t width = static_cast<int64_t>(element.text.size()) * element.number("font-size") * 6 / 10;
    const auto anchor = element.attributes.find("text-anchor");
    const std::string place = anchor == element.attributes.end() ? "start" : anchor->second;
    const int64_t left = place == "start" ? x : place == "end" ? x - width : x - width / 2;
    int64_t low = 0;
    int64_t high = elements[0].number("width");
    const Element& parent = elements[element.parent];
    if (parent.name == "g") {
      const auto rect = std::find_if(elements.begin(), elements.end(), [&](const Element& other) {
        return other.name == "rect" && other.parent == element.parent;
      });
      REQUIRE(rect != elements.end());
      low = rect->number("x");
      high = low + rect->number("width");
    }
    INFO(element.text);
    CHECK(left >= low);
    CHECK(left + width <= high);
    CHECK(element.number("y") <= elements[0].number("height"));
  }
}

TEST_CASE("drawn grids show every device exactly where it holds something") {
  for (const Layout& layout : SmallLayouts()) {
    const std::string text = DrawLayout(layout);
    INFO(ToString(layout.mesh()) << "\n" << text);
    const std::vector<Cell> cells = GridCells(text);
    CHECK(cells.empty() == (layout.num_elements() == 0));
    CheckCells(layout, cells);
    CHECK(Columns(text) <= 100);
    CHECK(text.back() == '\n');
    CHECK(DrawLayout(layout) == text);
  }
}

TEST_CASE("SVG pictures show every device exactly where it holds something") {
  for (const Layout& layout : SmallLayouts()) {
    const std::string svg = LayoutToSvg(layout);
    INFO(ToString(layout) << " over " << ToString(layout.mesh()));
    CheckCells(layout, SvgCells(svg));
    CheckSvg(svg);
    CHECK(LayoutToSvg(layout) == svg);
  }
}

TEST_CASE("a small grid, as it is printed") {
  CHECK(DrawLayout(LayoutOf("[<Y>16, <X>8]", "{X:2,Y:2}")) == R"(mesh     {X:2,Y:2}, 4 devices (0-3)
layout   [8<Y>16, 4<X>8]
local    8x4, 32 of 128 elements
copies   each element is on 1 device

rows: dim 0, columns: dim 1
   0   4   8
 0 ┌───┬───┐
   │ 0 │ 2 │
 8 ├───┼───┤
   │ 1 │ 3 │
16 └───┴───┘

device  coordinates  dim 0   dim 1  elements
0       X=0 Y=0      [0,8)   [0,4)        32
1       X=0 Y=1      [8,16)  [0,4)        32
2       X=1 Y=0      [0,8)   [4,8)        32
3       X=1 Y=1      [8,16)  [4,8)        32
)");
}

TEST_CASE("tables list every device with what it holds") {
  for (const Layout& layout : SmallLayouts()) {
    const std::string text = DrawLayout(layout);
    INFO(text);
    for (int64_t position = 0; position < layout.mesh().size(); ++position) {
      int64_t elements = 1;
      for (int64_t size : layout.LocalShape(position)) elements *= size;
      const std::string line = absl::StrCat("\n", layout.mesh().Device(position), " ");
      const size_t at = text.find(line, text.find("\ndevice  coordinates"));
      REQUIRE(at != std::string::npos);
      const std::string row = text.substr(at + 1, text.find('\n', at + 1) - at - 1);
      CHECK(absl::EndsWith(row, absl::StrCat(" ", elements)));
    }
  }
}

TEST_CASE("pictures name what they leave out") {
  const std::string many = DrawLayout(LayoutOf("[<X,Y>512, 128]", "{X:4,Y:4,Z:16}"));
  CHECK(absl::StrContains(many, "256 devices (0-255)"));
  CHECK(absl::StrContains(many, "each element is on 16 devices"));
  CHECK(absl::StrContains(many, "│ 240-255 │"));
  CHECK(absl::StrContains(many, "... 224 more\n"));

  const std::string scattered = DrawLayout(LayoutOf("[<Y>64, <X>64]", "{Z:64,X:4,Y:4}"));
  CHECK(absl::StrContains(scattered, ",...,"));
  CHECK(Columns(scattered) <= 100);

  const std::string fine = DrawLayout(LayoutOf("[<X>512, <Y,Z>1024]", "{X:64,Y:64,Z:4}"));
  CHECK(absl::StrContains(fine, "dim 0 has 64 blocks; 15 are drawn"));
  CHECK(absl::StrContains(fine, "dim 1 has 256 blocks;"));
  CHECK(GridCells(fine).size() <= 16 * 16);
  CheckCells(LayoutOf("[<X>512, <Y,Z>1024]", "{X:64,Y:64,Z:4}"), GridCells(fine));

  const std::string rank4 = DrawLayout(LayoutOf("[8, <X>16, <Z>3, <Y>8]", "{X:2,Y:2,Z:2}"));
  CHECK(absl::StrContains(rank4, "rank 4: dims 1, 2 are drawn; every device has the whole of dim 0"));
  CHECK(absl::StrContains(rank4, "dim 3 is sharded too: the devices in a cell hold different parts of it"));

  CHECK(absl::StrContains(DrawLayout(LayoutOf("[<X>5]", "{X:4}")), "device 3 holds nothing"));
  CHECK(absl::StrContains(LayoutToSvg(LayoutOf("[<X>5]", "{X:4}")), "device 3 holds nothing"));
}

TEST_CASE("partial values are stated") {
  const Layout layout = LayoutOf("[<X>16, 8] sum<Y>", "{X:2,Y:4}");
  const std::string sentence = "each value is a partial sum over Y: 4 contributions";
  CHECK(absl::StrContains(DrawLayout(layout), sentence));
  CHECK(absl::StrContains(DrawLayout(layout, 3), sentence));
  CHECK(absl::StrContains(LayoutToSvg(layout), sentence));
  CHECK(absl::StrContains(DrawLayout(LayoutOf("[] avg<X,Y:(2)2>", "{X:2,Y:4}")), "a partial average over X,Y:(2)2: 4"));
}

TEST_CASE("one device") {
  const Layout layout = LayoutOf("[<2,Y>16, <X>8]", "{X:2,Y:4,Z:2}");
  CHECK(DrawLayout(layout, 10) == R"(mesh     {X:2,Y:4,Z:2}
layout   [4<2,Y>16, 4<X>8]
device   10, X=1 Y=1 Z=0
dim 0    [2,4) [10,12), 4 of 16
dim 1    [4,8), 4 of 8
holds    16 of 128 elements
copies   2 devices hold these elements: 10,11
)");
  const std::string svg = LayoutToSvg(layout, 10);
  CheckSvg(svg);
  CHECK(absl::StrContains(svg, "device 10 (X=1 Y=1 Z=0)"));
  CHECK(absl::StrContains(svg, "holds 16 of 128 elements: dim 0 [2,4) [10,12), dim 1 [4,8)"));

  for (const int64_t outsider : {int64_t{16}, int64_t{-1}, kMaxDeviceId}) {
    CHECK(absl::StrContains(DrawLayout(layout, outsider), "it holds nothing"));
    CHECK(absl::StrContains(LayoutToSvg(layout, outsider), "it holds nothing"));
  }
  CHECK(absl::StrContains(DrawLayout(LayoutOf("[<X>5]", "{X:4}"), 3), "holds    nothing\n"));

  const std::string cyclic = DrawLayout(LayoutOf("[<64,X>128]", "{X:2}"), 1);
  CHECK(absl::StrContains(cyclic, "[31,32) ... 48 more, 64 of 128"));
  CHECK(Columns(cyclic) <= 100);

  // A block that is not among those drawn.
  const std::string hidden = LayoutToSvg(LayoutOf("[<X>512]", "{X:64}"), 32);
  CHECK(absl::StrContains(hidden, "the blocks of device 32 are among those left out"));
}

TEST_CASE("tensors without elements") {
  for (const char* text : {"[0]", "[<X>0, 3]", "[3, <2,X>0] sum<Y>", "[0, 0, 0]"}) {
    const Layout layout = LayoutOf(text, "{X:4,Y:2}");
    CHECK(absl::StrContains(DrawLayout(layout), "there is nothing to hold"));
    CHECK(absl::StrContains(DrawLayout(layout, 5), "holds    nothing"));
    CHECK(absl::StrContains(LayoutToSvg(layout), "no elements"));
    CheckSvg(LayoutToSvg(layout, 5));
  }
}

TEST_CASE("pictures of the largest meshes and tensors stay small") {
  std::vector<Layout> layouts;
  for (const char* text : {"[<X>4194304]", "[<X>9223372036854775807]", "[<X>3, 2]", "[<1048576,X>900000000000]", "[]",
                           "[<X:(2048)2048>99, <X:(1)2048>1234567890123]", "[<2,~X>100000000, 7] prod<X>"}) {
    const absl::StatusOr<Layout> layout = ParseLayout(text, MeshOf("{X:4194304,Y:1}"));
    if (layout.ok()) layouts.push_back(*layout);
  }
  layouts.push_back(LayoutOf("[<Y>2048, <X>1000000007]", "{X:2048,Y:2048}@1000000000"));
  layouts.push_back(LayoutOf("[1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,<X>4,1,1,1,1,1,1,1,1,1,1,1,1,1]", "{X:3}"));
  layouts.push_back(LayoutOf("[<A>4, <B>4]", absl::StrCat("{A:2,B:2,", std::string(200, 'n'), ":2}")));
  REQUIRE(layouts.size() >= 8);
  for (const Layout& layout : layouts) {
    INFO(ToString(layout));
    const std::string text = DrawLayout(layout);
    CHECK(Columns(text) <= 100);
    CHECK(text.size() < 20000);
    CHECK(Columns(DrawLayout(layout, 1000000007)) <= 100);
    const std::string svg = LayoutToSvg(layout, 1);
    CHECK(svg.size() < 500000);
    CheckSvg(svg);
  }
}

TEST_CASE("SVG text is escaped") {
  CHECK(report::XmlEscape("a<b>&\"c'\x01\x80\n") == "a&lt;b&gt;&amp;&quot;c&#39;??\n");
  const std::string svg = LayoutToSvg(LayoutOf("[<X>4]", "{X:2}"));
  CHECK(absl::StrContains(svg, "[2&lt;X&gt;4]"));
  CHECK_FALSE(absl::StrContains(svg, "<X>"));
}

Step StepOf(Op op, const Layout& from, const Layout& to, std::vector<AxisRef> axes, int64_t bytes) {
  Step step;
  step.op = op;
  step.from = from;
  step.to = to;
  step.axes = std::move(axes);
  for (const AxisRef& ref : step.axes) step.group_size *= ref.size;
  step.recv_bytes_max = bytes;
  step.recv_bytes_total = bytes * from.mesh().size();
  step.time_ns = 5000;
  return step;
}

int CountOf(const std::string& text, const std::string& what) {
  int count = 0;
  for (size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + 1)) ++count;
  return count;
}

TEST_CASE("the picture of a plan has a panel a layout and an arrow a step") {
  const char* mesh = "{X:2,Y:4}";
  Plan plan;
  plan.source = LayoutOf("[<X>16, 8] sum<Y>", mesh);
  plan.target = LayoutOf("[<Y>16, <X>8]", mesh);
  const Layout middle = LayoutOf("[<X,Y>16, 8]", mesh);
  plan.steps.push_back(StepOf(Op::kReduceScatter, plan.source, middle, {{1, 1, 4}}, 3072));
  plan.steps.push_back(StepOf(Op::kAllToAll, middle, plan.target, {{0, 1, 2}, {1, 2, 2}}, 1536));
  plan.totals.recv_bytes_max = 4608;
  plan.bounds.recv_bytes_max = 4096;
  const std::string svg = PlanToSvg(plan);
  CheckSvg(svg);
  CHECK(PlanToSvg(plan) == svg);
  for (const char* part : {">source<", ">after step 1<", ">target<", ">ReduceScatter<", ">AllToAll<", ">over Y<",
                           ">over X,Y:(2)2<", ">3 KiB a device<", ">1.5 KiB a device<", "hatched: partial sum over Y",
                           "2 steps: 4.5 KiB received by the worst device (lower bound 4 KiB)"}) {
    INFO(part);
    CHECK(absl::StrContains(svg, part));
  }
  CHECK(CountOf(svg, "<path d=") == 2);
  CHECK(SvgCells(svg).size() == 2 + 8 + 8);
}

TEST_CASE("plans without steps, across meshes, of higher rank") {
  Plan plan;
  plan.source = LayoutOf("[<X>16]", "{X:4}");
  plan.target = plan.source;
  std::string svg = PlanToSvg(plan);
  CheckSvg(svg);
  CHECK(absl::StrContains(svg, "nothing has to move"));
  CHECK(SvgCells(svg).size() == 8);

  plan.target = LayoutOf("[<Y>16]", "{Y:2}@4");
  plan.steps = {StepOf(Op::kExchange, plan.source, plan.target, {}, 16)};
  plan.steps[0].group_size = 6;
  svg = PlanToSvg(plan);
  CheckSvg(svg);
  CHECK(absl::StrContains(svg, ">across meshes<"));
  CHECK(absl::StrContains(svg, ">6 devices<"));
  CHECK(absl::StrContains(svg, ">on {Y:2}@4<"));

  // Both panels show the dimensions that are sharded in either.
  plan.source = LayoutOf("[4, <X>16, 8]", "{X:4}");
  plan.target = LayoutOf("[4, 16, <X>8]", "{X:4}");
  plan.steps = {StepOf(Op::kAllToAll, plan.source, plan.target, {{0, 1, 4}}, 16)};
  svg = PlanToSvg(plan);
  CheckSvg(svg);
  CHECK(absl::StrContains(svg, "rank 3: drawn dims 1, 2"));
  for (const Cell& cell : SvgCells(svg)) CHECK(cell.where.size() == 2);
}

}  // namespace
}  // namespace reshard
