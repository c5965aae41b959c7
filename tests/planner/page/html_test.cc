// What a page has to say, without a browser: its data. tests/browser opens pages.
#include "reshard/planner/html.h"

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "reshard/planner/planner.h"
#include "reshard/planner/traffic.h"
#include "tests/catch.h"
#include "tests/layouts.h"

namespace reshard {
namespace {

using Json = nlohmann::json;
using testing::LayoutOf;
using testing::ProblemOf;

Json DataOf(const std::string& page) {
  const std::string begin = "<script type=\"application/json\" id=\"data\">";
  const size_t from = page.find(begin) + begin.size();
  return Json::parse(page.substr(from, page.find("</script>", from) - from));
}

Plan PlanFor(const Problem& problem, const char* topology = "flat") {
  PlanOptions options;
  options.topology = *Topology::Preset(topology);
  auto plan = MakePlan(problem, options);
  REQUIRE(plan.ok());
  return *std::move(plan);
}

// [value, times...] as one value a device.
std::vector<size_t> Expanded(const Json& runs) {
  std::vector<size_t> out;
  for (size_t i = 0; i < runs.size(); i += 2) out.insert(out.end(), runs[i + 1].get<size_t>(), runs[i].get<size_t>());
  return out;
}

}  // namespace

TEST_CASE("a page gives every device the load and the peers that its step gives it", "[page]") {
  const auto [mesh, from, to, topology] = GENERATE(table<const char*, const char*, const char*, const char*>({
      {"{x:4,y:4}", "[<x>16, <y>16]", "[<y>16, <x>16]", "flat"},
      {"{x:4,y:8}", "[<x>64, <y>64]", "[<y>64, <x>64]", "dgx-h100"},
      {"{x:3}", "[<x>7, 5]", "[7, <x>5]", "flat"},
      {"{x:2,y:2}@[9,2,5,0]", "[<x,y>12]", "[<y>12]", "flat"},
      {"{x:4,y:2}", "[<x>16] sum<y>", "[<x,y>16]", "flat"},
  }));
  CAPTURE(mesh, from, to);
  const Plan plan = PlanFor(ProblemOf(mesh, from, to), topology);
  const auto page = PlanToHtml(plan);
  REQUIRE(page.ok());
  const Json data = DataOf(*page);
  REQUIRE(data["plans"].size() == 1 + plan.alternatives.size());
  std::vector<int64_t> devices;
  const Json& ranges = data["plans"][0]["devices"];
  for (size_t i = 0; i < ranges.size(); i += 2) {
    for (int64_t k = 0; k < ranges[i + 1].get<int64_t>(); ++k) devices.push_back(ranges[i].get<int64_t>() + k);
  }
  REQUIRE(static_cast<int64_t>(devices.size()) == plan.source.mesh().size());
  for (size_t s = 0; s < plan.steps.size(); ++s) {
    const auto transfers = TransferSchedule::Create(plan.steps[s], plan.options.topology);
    REQUIRE(transfers.ok());
    const int64_t element = SizeOf(plan.dtype);
    const Json& step = data["plans"][0]["steps"][s];
    const std::vector<int64_t> taking_part = (*transfers)->Devices();
    const std::vector<DeviceLoad> loads = (*transfers)->Loads();
    const auto load_of = Expanded(step["loads"]["of"]);
    for (const bool receives : {true, false}) {
      const auto peers_of = Expanded(step["peers"][receives ? "receives" : "sends"]);
      REQUIRE(peers_of.size() == devices.size());
      for (size_t i = 0; i < devices.size(); ++i) {
        std::vector<std::pair<int64_t, int64_t>> expected, told;
        for (const Message& m : receives ? (*transfers)->Receives(devices[i]) : (*transfers)->Sends(devices[i])) {
          if (m.sender == m.receiver) continue;
          expected.emplace_back(receives ? m.sender : m.receiver, m.elements() * element);
        }
        for (const Json& run : step["peers"]["values"][peers_of[i]]) {
          for (int64_t k = 0; k < run[2].get<int64_t>(); ++k) {
            told.emplace_back(devices[i] + run[0].get<int64_t>() + k * run[1].get<int64_t>(), run[3].get<int64_t>());
          }
        }
        CHECK(told == expected);
        const auto at = std::find(taking_part.begin(), taking_part.end(), devices[i]) - taking_part.begin();
        const DeviceLoad& load = loads[at];
        const Json& value = step["loads"]["values"][load_of[i]];
        CHECK(value[0] == load.before * element);
        CHECK(value[1] == load.after * element);
        CHECK(value[2] == load.recv * element);
        CHECK(value[3] == load.send * element);
      }
    }
  }
}

TEST_CASE("a page stays below its size and lists what there is room for", "[page]") {
  const auto [mesh, from, to] = GENERATE(table<const char*, const char*, const char*>({
      {"{x:4096}", "[<x>8192, 8192]", "[8192, <x>8192]"},
      {"{x:1024,y:1024}", "[<x>65536, <y>8192]", "[<y>65536, <x>8192]"},
      {"{x:61,y:67}", "[<x>4099, <y>5003]", "[<y>4099, <x>5003]"},
      {"{x:256}", "[<1024,x>262144]", "[<x>262144]"},
  }));
  CAPTURE(mesh, from, to);
  const auto page = PlanToHtml(PlanFor(ProblemOf(mesh, from, to)));
  REQUIRE(page.ok());
  CHECK(page->size() < 1'000'000);
  CHECK(LayoutToHtml(LayoutOf(from, mesh)).size() < 1'000'000);
}

TEST_CASE("tensors without elements and without dimensions have pages", "[page]") {
  const auto [from, to] = GENERATE(table<const char*, const char*>({{"[] sum<X>", "[]"}, {"[<X>0, 4]", "[0, 4]"}}));
  CHECK(PlanToHtml(PlanFor(ProblemOf("{X:4}", from, to))).ok());
  CHECK(!LayoutToHtml(LayoutOf(from, "{X:4}")).empty());
}

TEST_CASE("of a slot table a page has the indices in each device's slots", "[page]") {
  const auto page = PlanToHtml(PlanFor(ProblemOf("{x:2,y:2}", "[<x>9, 4]", "[<y={8,0-4|5-7,1}>9, 4]")));
  REQUIRE(page.ok());
  const Json data = DataOf(*page);
  bool found = false;
  for (const Json& layout : data["layouts"]) {
    if (!layout["dims"][0].contains("slots")) continue;
    found = true;
    CHECK(layout["dims"][0]["slots"] == Json({"8,0-4", "5-7,1"}));
    CHECK(layout["dims"][0]["edges"] == Json({0, 6, 10}));
  }
  CHECK(found);
}

TEST_CASE("names are data, whatever they hold", "[page]") {
  const std::string hostile = "</script><!--<script>\u2028&\"'\\\x01";
  const std::vector<Plan> plans = {PlanFor(ProblemOf("{X:4}", "[<X>16]", "[16]"))};
  const auto page = PlansToHtml(plans, std::vector<PageTensor>{{hostile, 0, ""}, {"other", std::nullopt, hostile}});
  REQUIRE(page.ok());
  CHECK(page->find("</script><!--") == std::string::npos);
  const Json data = DataOf(*page);
  CHECK(data["rows"][0][0] == hostile);
  CHECK(data["rows"][1][2] == hostile);
  const auto none = PlansToHtml(plans, std::vector<PageTensor>{{"a", 1, ""}});
  CHECK(absl::IsInvalidArgument(none.status()));
}

TEST_CASE("a page about thousands of tensors fits", "[page]") {
  std::vector<Plan> plans;
  std::vector<PageTensor> tensors;
  for (int64_t i = 0; i < 60; ++i) {
    const std::string size = std::to_string(64 * (i + 1));
    plans.push_back(PlanFor(ProblemOf("{x:16,y:16}", "[<x>" + size + ", <y>1024]", "[<y>" + size + ", <x>1024]")));
  }
  // Few plans have all their steps, many have what there is room for, very many have figures only.
  const size_t copies = GENERATE(1, 20, 100);
  for (size_t i = 60; i < 60 * copies; ++i) plans.push_back(plans[i % 60]);
  CAPTURE(copies);
  for (size_t i = 0; i < 6000; ++i) tensors.push_back({"layers." + std::to_string(i), i % plans.size(), ""});
  const auto page = PlansToHtml(plans, tensors);
  REQUIRE(page.ok());
  CHECK(page->size() < 1'000'000);
  const Json data = DataOf(*page);
  CHECK(data["plans"].size() == plans.size());
  CHECK(!data["plans"][0].is_null());
  CHECK(data["total"] == 6000);
  CHECK(data["rows"].size() == 3000);
}

}  // namespace reshard
