#include <optional>
#include <string>
#include <vector>

#include "reshard/layout/shard_map.h"
#include "reshard/layout/text.h"
#include "tests/catch.h"
#include "tests/layout/gen.h"

namespace reshard {
namespace {

using testing::FirstLine;
using testing::LayoutOf;

// EPLB's own example: 12 experts in 16 slots of 8 devices.
constexpr char kMesh[] = "{ep:8}";
constexpr char kTable[] = "[<ep={5,6|5,7|8,4|3,4|10,9|10,2|0-1|11,1}>12, 64]";

TEST_CASE("a slot table says what each device holds, in slot order") {
  const Layout layout = LayoutOf(kTable, kMesh);
  CHECK(layout.slot_dim() == 0);
  CHECK(layout.Intervals(0, 0) == std::vector<Interval>{{5, 7}});
  CHECK(layout.Intervals(2, 0) == std::vector<Interval>{{8, 9}, {4, 5}});
  CHECK(layout.LocalShape(2) == std::vector<int64_t>{2, 64});
  CHECK(layout.MaxLocalElements() == 128);
  CHECK(layout.num_elements() == 768);
  CHECK(ToString(layout) == "[2<ep={5-6|5,7|8,4|3-4|10,9|10,2|0-1|11,1}>12, 64]");
  CHECK(LayoutOf(ToString(layout), kMesh) == layout);

  const std::vector<std::vector<int64_t>> slots = {{5, 6}, {5, 7}, {8, 4}, {3, 4}, {10, 9}, {10, 2}, {0, 1}, {11, 1}};
  const AxisRef axis{0, 1, 8};
  const auto made = EvenLayout(layout.mesh(), {12, 64}, 0, {Factor::Slots(axis, slots)});
  REQUIRE(made.ok());
  CHECK(*made == layout);
}

TEST_CASE("devices may have any number of slots, and an index in several") {
  const Layout layout = LayoutOf("[4, <ep={0-3||2,2,1|3}>4]", "{dp:2,ep:4}");
  CHECK(layout.slot_dim() == 1);
  CHECK(layout.LocalShape(1) == std::vector<int64_t>{4, 0});
  CHECK(layout.LocalShape(2) == std::vector<int64_t>{4, 3});
  CHECK(layout.Intervals(6, 1) == std::vector<Interval>{{2, 3}, {2, 3}, {1, 2}});
  const auto map = ShardMap::Create(layout);
  REQUIRE(map.ok());
  CHECK(map->dim(1).slots);
  CHECK(!map->dim(0).slots);
  for (int64_t p = 0; p < 8; ++p) CHECK(map->LocalElements(p) == 4 * layout.LocalShape(p)[1]);
}

TEST_CASE("layouts with slot tables are equivalent if all slots hold the same") {
  const auto same = [](const char* a, const char* b) {
    return *Equivalent(LayoutOf(a, "{ep:2}"), LayoutOf(b, "{ep:2}"));
  };
  CHECK(same("[<ep={0-1|2-3}>4]", "[<ep>4]"));
  CHECK(same("[<ep={0-3|0-3}>4]", "[4]"));
  CHECK(same("[<ep={0,1|2,3}>4]", "[<ep={0-1|2-3}>4]"));
  CHECK(!same("[<ep={0-1|2-3}>4]", "[<ep={1,0|2-3}>4]"));
  CHECK(!same("[<ep={0-1|2-3}>4]", "[<ep={0-1|2-3,0}>4]"));
  CHECK(!same("[<ep={0-3|0-3}>4]", "[<ep={0-3|0-2,0}>4]"));
  CHECK(*Equivalent(LayoutOf("[<ep={1|0}>2]", "{ep:2}"), LayoutOf("[<ep>2]", "{ep:2}@[1,0]")));
  CHECK(*Equivalent(LayoutOf("[<one={1,0}>2]", "{one:1}"), LayoutOf("[2]", "{one:1}")) == false);
}

TEST_CASE("bad slot tables are refused with the reason and the column") {
  const std::pair<const char*, const char*> cases[] = {
      {"[<X={0}>1]", "axis X has size 2 but 1 lists of slots are given at column 3"},
      {"[<X={0|1}>3]", "no slot of axis X holds the index 2 at column 3"},
      {"[<X={1|1}>2]", "no slot of axis X holds the index 0 at column 3"},
      {"[<X={0-1|2}>2]",
       "the slot table of axis X has the index 2, but the indices of the dimension are 0 .. 1 at "
       "column 3"},
      {"[<X={0,0,1|1}>2]", "coordinate 0 of axis X has more slots than the dimension has indices, 2 at column 3"},
      {"[<X={0|1},Y>2]", "a slot table is the only factor of its dimension at column 11"},
      {"[<Y,X={0|1}>2]", "a slot table is the only factor of its dimension at column 5"},
      {"[<X={0|1}>2, <Y={0|1}>2]", "a layout has at most one slot table at column 15"},
      {"[<X={1-0|1}>2]", "the range 1-0 is empty at column 6"},
      {"[<X={0|1}2]", "expected '>', found '2' at column 10"},
      {"[<X={0|}>1]", ""},
      {"[<X={0,|0}>1]", "expected an index, found '|' at column 8"},
      {"[<X={0|0-9223372036854775807}>1]", "the index 9223372036854775807 is too large at column 8"},
      {"[<X={|}>0]", ""},
      {"[<X={0|}>0]",
       "the slot table of axis X has the index 0, but the indices of the dimension are 0 .. -1 at column "
       "3"},
  };
  const auto mesh = testing::MeshOf("{X:2,Y:2}");
  for (const auto& [text, reason] : cases) {
    INFO(text);
    const auto layout = ParseLayout(text, mesh);
    CHECK(FirstLine(layout.status()) == reason);
  }
}

}  // namespace
}  // namespace reshard
