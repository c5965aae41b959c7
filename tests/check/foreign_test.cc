// Plans that no planner of ours made: written by hand as another tool would, wrong in ways that count, and hostile.
#include <limits>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "reshard/check/check.h"
#include "tests/catch.h"
#include "tests/check/plans.h"
#include "tests/sanitized.h"

namespace reshard::testing {
namespace {

using nlohmann::json;

json PlanOf(const Case& c, bool with_pieces) { return json::parse(PlanText(c, with_pieces)); }
std::string WrongWith(const json& plan) { return testing::WrongWith(plan.dump()); }

json Bare(const std::string& mesh, const std::vector<int64_t>& shape, const std::string& source,
          const std::string& target, const std::vector<json>& steps) {
  return {{"mesh", mesh}, {"dtype", "f32"}, {"shape", shape}, {"source", source}, {"target", target}, {"steps", steps}};
}

json StepOf(const std::string& op, const std::string& from, const std::string& to) {
  return {{"op", op}, {"from", from}, {"to", to}};
}

PlanVerdict Judged(const json& plan) {
  const auto report = CheckPlans(plan.dump());
  INFO(plan.dump() << " " << report.status());
  REQUIRE(report.ok());
  REQUIRE(report->plans.size() == 1);
  return report->plans[0];
}

}  // namespace

TEST_CASE("a bare plan of another tool is judged, and what it leaves out is derived") {
  const json plan = Bare("{X:4}", {16, 8}, "[<X>16, 8]", "[16, <X>8]",
                         {StepOf("AllGather", "[4<X>16, 8]", "[16, 8]"), StepOf("Slice", "[16, 8]", "[16, 2<X>8]")});
  const PlanVerdict verdict = Judged(plan);
  CHECK(verdict.findings.empty());
  REQUIRE(verdict.derived);
  CHECK(verdict.derived->recv_bytes_max == 384);
  CHECK(verdict.derived->recv_bytes_total == 1536);
  CHECK(verdict.derived->bound_recv_bytes_max == 96);
  CHECK(verdict.derived->bound_recv_bytes_total == 384);
  CHECK(verdict.derived->intermediate_bytes_max == 512);
  CHECK(verdict.derived->steps[0].group_size.exact());
  CHECK(verdict.derived->steps[0].group_size.low == 4);
  CHECK(verdict.derived->steps[0].send_bytes_max.low == 384);
  CHECK(verdict.derived->steps[0].peers_max.low == 3);
  const std::string text = CheckToText(*CheckPlans(plan.dump()));
  CHECK(text.find("4.000 x the lower bound") != std::string::npos);
  CHECK(text.find("agrees") != std::string::npos);
}

TEST_CASE("figures that another tool does print are held against what is derived") {
  json plan = Bare("{X:4}", {16}, "[<X>16]", "[16]", {StepOf("AllGather", "[<X>16]", "[16]")});
  plan["steps"][0]["recv_bytes_max"] = 48;
  plan["totals"] = {{"recv_bytes_total", 192}};
  plan["comment"] = "keys of its own are its own business";
  CHECK(WrongWith(plan) == "");
  plan["totals"]["recv_bytes_total"] = 191;
  CHECK(WrongWith(plan) ==
        "totals.recv_bytes_total: claimed 191, actual 192\n" + WrongWith(plan).substr(WrongWith(plan).find('\n') + 1));
}

TEST_CASE("steps that are not what they are called are found") {
  const std::vector<std::pair<const char*, json>> wrong = {
      {"a Slice that receives", Bare("{X:2}", {4}, "[<X>4]", "[4]", {StepOf("Slice", "[<X>4]", "[4]")})},
      {"a gather of replicas",
       Bare("{X:2,Y:2}", {4}, "[<X>4]", "[4]",
            {json{{"op", "AllGather"}, {"axes", {"X", "Y"}}, {"from", "[<X>4]"}, {"to", "[4]"}}})},
      {"a gather that gathers too little",
       Bare("{X:2,Y:2}", {8}, "[<X,Y>8]", "[8]",
            {json{{"op", "AllGather"}, {"axes", {"Y"}}, {"from", "[<X,Y>8]"}, {"to", "[8]"}}})},
      {"uneven parts as an AllToAll",
       Bare("{X:4}", {10, 6}, "[<X>10, 6]", "[10, <X>6]", {StepOf("AllToAll", "[<X>10, 6]", "[10, <X>6]")})},
      {"one device that sends its shard to two as an AllPermute",
       Bare("{X:4,Y:4}", {8}, "[<X>8]", "[<Y>8]",
            {json{{"op", "AllPermute"}, {"axes", {"X"}}, {"from", "[<X>8]"}, {"to", "[<Y>8]"}}})},
      {"an AllPermute that changes the shape",
       Bare("{X:2}", {8, 8}, "[<X>8, 8]", "[8, <X>8]", {StepOf("AllPermute", "[<X>8, 8]", "[8, <X>8]")})},
      {"a reduction of what is not partial",
       Bare("{X:2}", {8}, "[8]", "[<X>8]", {StepOf("ReduceScatter", "[8]", "[<X>8]")})},
      {"a reduction over half of the axes",
       Bare("{X:2,Y:2}", {8}, "[8] sum<X,Y>", "[8]",
            {json{{"op", "AllReduce"}, {"axes", {"X"}}, {"from", "[8] sum<X,Y>"}, {"to", "[8]"}}})},
      {"a reduction that forgets a contribution",
       Bare("{X:2,Y:2}", {8}, "[8] sum<X,Y>", "[8]",
            {StepOf("AllReduce", "[8] sum<X,Y>", "[8] sum<Y>"), StepOf("Exchange", "[8] sum<Y>", "[8]")})},
      {"a sum that becomes a maximum",
       Bare("{X:2,Y:2}", {8}, "[8] sum<X,Y>", "[8] max<Y>", {StepOf("AllReduce", "[8] sum<X,Y>", "[8] max<Y>")})},
      {"values that become partial",
       Bare("{X:2}", {8}, "[<X>8]", "[8] sum<X>", {StepOf("Exchange", "[<X>8]", "[8] sum<X>")})},
      {"parts that do not make up the whole",
       Bare("{X:2,Y:2}", {8}, "[8] sum<X>", "[<Y>8]", {StepOf("ReduceScatter", "[8] sum<X>", "[<Y>8]")})},
      {"a chain that is broken",
       Bare("{X:2}", {8, 8}, "[<X>8, 8]", "[8, <X>8]",
            {StepOf("AllGather", "[<X>8, 8]", "[8, 8]"), StepOf("AllToAll", "[<X>8, 8]", "[8, <X>8]")})},
      {"a chain that ends elsewhere",
       Bare("{X:2}", {8, 8}, "[<X>8, 8]", "[8, <X>8]", {StepOf("AllGather", "[<X>8, 8]", "[8, 8]")})},
      {"no steps at all", Bare("{X:2}", {8, 8}, "[<X>8, 8]", "[8, <X>8]", {})},
  };
  for (const auto& [what, plan] : wrong) {
    INFO(what);
    const PlanVerdict verdict = Judged(plan);
    CHECK_FALSE(verdict.findings.empty());
  }
}

TEST_CASE("what is right though unusual agrees") {
  const std::vector<std::pair<const char*, json>> right = {
      {"a layout written in another way between steps",
       Bare("{X:2}", {8}, "[<X>8]", "[8]", {StepOf("AllGather", "[4<X:(1)2>8]", "[8]")})},
      {"a step that does nothing", Bare("{X:2}", {8}, "[8]", "[8]", {StepOf("Slice", "[8]", "[8]")})},
      {"an Exchange that could have another name",
       Bare("{X:2}", {8}, "[<X>8]", "[8]", {StepOf("Exchange", "[<X>8]", "[8]")})},
      {"an empty tensor", Bare("{X:2}", {0}, "[<X>0]", "[0]", {StepOf("AllGather", "[<X>0]", "[0]")})},
      {"a scalar", Bare("{X:2}", {}, "[]", "[]", {})},
      {"an intermediate larger than both ends",
       Bare("{X:2}", {8, 8}, "[<X>8, 8]", "[8, <X>8]",
            {StepOf("AllGather", "[<X>8, 8]", "[8, 8]"), StepOf("Slice", "[8, 8]", "[8, <X>8]")})},
      {"parts of an axis that do not nest",
       Bare("{X:6}", {12}, "[<X:(1)2>12]", "[<X:(1)3>12]", {StepOf("Exchange", "[<X:(1)2>12]", "[<X:(1)3>12]")})},
  };
  for (const auto& [what, plan] : right) {
    INFO(what << " " << plan.dump());
    CHECK(WrongWith(plan) == "");
  }
}

TEST_CASE("a figure outside of what holders allow is found without pieces") {
  json plan = PlanOf(Cases()[3], false);
  const int64_t total = plan["steps"][0]["recv_bytes_total"];
  for (const int64_t send : {int64_t{0}, total / 6 - 1, total + 1, std::numeric_limits<int64_t>::max()}) {
    json edited = plan;
    edited["steps"][0]["send_bytes_max"] = send;
    INFO(send);
    CHECK(WrongWith(edited) != "");
  }
}

TEST_CASE("batches and lines of plans are judged plan by plan") {
  const json good = PlanOf(Cases()[0], false);
  json bad = good;
  bad["totals"]["recv_bytes_max"] = 1;
  const json batch = {{"schema", "reshard.batch/1"}, {"plans", {good, bad, 7}}};
  const auto report = CheckPlans(batch.dump());
  REQUIRE(report.ok());
  REQUIRE(report->plans.size() == 3);
  CHECK(report->batch);
  CHECK(report->plans[0].agrees());
  CHECK_FALSE(report->plans[1].agrees());
  CHECK(report->plans[1].status.ok());
  CHECK_FALSE(report->plans[2].status.ok());
  CHECK_FALSE(report->agrees());
  CHECK_FALSE(report->status().ok());

  json named = good;
  named["id"] = "layer.0";
  const std::string error = R"({"id":3,"error":{"code":"INVALID_ARGUMENT","message":"x"}})";
  const auto lines = CheckPlans(named.dump() + "\n\n" + bad.dump() + "\n" + error + "\n{not json\n");
  REQUIRE(lines.ok());
  REQUIRE(lines->plans.size() == 4);
  CHECK(lines->plans[0].agrees());
  CHECK(lines->plans[0].name == "\"layer.0\"");
  CHECK_FALSE(lines->plans[1].agrees());
  CHECK(lines->plans[2].status.code() == absl::StatusCode::kInvalidArgument);
  CHECK(lines->plans[3].status.code() == absl::StatusCode::kInvalidArgument);
  CHECK(CheckToText(*lines).find("plans[1]: totals.recv_bytes_max: claimed 1") != std::string::npos);
}

TEST_CASE("what holds no plan is refused") {
  const json good = PlanOf(Cases()[0], false);
  std::vector<std::string> refused = {"",
                                      "\n \n",
                                      "{",
                                      "[]",
                                      "7",
                                      "null",
                                      "\"plan\"",
                                      "{}",
                                      "[{}]",
                                      "{\"steps\":[]}",
                                      "\xff\xfe",
                                      std::string(100000, '['),
                                      "{\"a\":" + std::string(5000, '[') + std::string(5000, ']') + "}",
                                      R"({"schema":"reshard.batch/1"})",
                                      R"({"schema":"reshard.batch/1","plans":7})"};
  const auto with = [&](const char* key, const json& value) {
    json edited = good;
    edited[key] = value;
    refused.push_back(edited.dump());
  };
  with("schema", "reshard.plan/2");
  with("schema", 1);
  with("mesh", 3);
  with("mesh", "{X:4194304,Y:4194304}");
  with("source", nullptr);
  with("dtype", "f31");
  with("shape", {64});
  with("shape", {1e300, 8});
  with("shape", {-64, 8});
  with("shape", "64");
  with("steps", {1});
  with("steps", {{{"op", "Slice"}}});
  with("steps", json::object());
  with("steps", json::array_t(2000, StepOf("Slice", "[]", "[]")));
  for (const std::string& text : refused) {
    INFO(text.substr(0, 200));
    const auto report = CheckPlans(text);
    CHECK(report.status().code() == absl::StatusCode::kInvalidArgument);
    CHECK(report.status().message().size() > 5);
  }
}

TEST_CASE("huge plans are judged in one way or another, or refused") {
  const std::string most = absl::StrCat(std::numeric_limits<int64_t>::max());
  const auto refused = [](const json& plan) {
    const auto report = CheckPlans(plan.dump());
    INFO(plan.dump());
    return !report.ok() && (absl::IsResourceExhausted(report.status()) || absl::IsInvalidArgument(report.status()));
  };
  CHECK(refused(
      Bare("{X:4194304}", {4194304}, "[<X>4194304]", "[4194304]", {StepOf("AllGather", "[<X>4194304]", "[4194304]")})));
  CHECK(refused(Bare("{X:2}", {std::numeric_limits<int64_t>::max()}, "[<X>" + most + "]", "[" + most + "]",
                     {StepOf("AllGather", "[<X>" + most + "]", "[" + most + "]")})));
  CHECK(refused(Bare("{X:1024}", {1 << 30}, "[<1048576,X>1073741824]", "[1073741824]",
                     {StepOf("AllGather", "[<1048576,X>1073741824]", "[1073741824]")})));

  // 65,536 devices are no trouble.
  const PlanVerdict verdict = Judged(Bare("{X:256,Y:256}", {65536, 256}, "[<X,Y>65536, 256]", "[<X>65536, <Y>256]",
                                          {StepOf("AllToAll", "[<X,Y>65536, 256]", "[<X>65536, <Y>256]")}));
  CHECK(verdict.findings.empty());
  REQUIRE(verdict.derived);
  CHECK(verdict.derived->recv_bytes_max == 255 * 4);

  json plan = PlanOf(Cases()[9], true);
  const json flat = plan.flatten();
  int number = 0;
  for (const auto& [path, value] : flat.items()) {
    if (!value.is_number_integer() || (testing::kSanitized && ++number % 4 != 0)) continue;
    for (const json& huge : {json(std::numeric_limits<int64_t>::max()), json(std::numeric_limits<uint64_t>::max()),
                             json(std::numeric_limits<int64_t>::min()), json(1e308)}) {
      json edited = plan;
      edited[json::json_pointer(path)] = huge;
      INFO(path << " " << huge);
      const std::string wrong = WrongWith(edited);
      if (path.starts_with("/alternatives") && huge == std::numeric_limits<int64_t>::max()) continue;
      CHECK(wrong != "");
    }
  }
}

TEST_CASE("what is printed does not command a terminal, and its JSON is JSON") {
  json plan = PlanOf(Cases()[0], false);
  plan["steps"][0]["op"] = "\x1b[2J\n";
  plan["id"] = "\x1b]0;title";
  const auto report = CheckPlans(plan.dump());
  REQUIRE(report.ok());
  CHECK(CheckToText(*report).find('\x1b') == std::string::npos);
  const json parsed = json::parse(CheckToJson(*report));
  CHECK(parsed["schema"] == "reshard.check/1");
  CHECK(parsed["agrees"] == false);
  CHECK(CheckToJson(*report).find('\n') == std::string::npos);
}

}  // namespace reshard::testing
