// The hard cases A-P and the golden cases of the field, with exact numbers: cases.json (made by make_cases.py). Each
// goes through the C++ API and through the command, which must say the same.
#include <array>
#include <cstdio>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "reshard/check/check.h"
#include "reshard/layout/text.h"
#include "reshard/planner/planner.h"
#include "reshard/planner/report.h"
#include "tests/catch.h"

namespace {

using nlohmann::json;

json Cases() {
  std::ifstream in(RESHARD_SOURCE_DIR "/tests/golden/cases.json");
  REQUIRE(in);
  return json::parse(in);
}

std::string Quoted(const std::string& word) { return "'" + word + "'"; }

std::string Output(const std::string& command) {
  std::string out;
  FILE* pipe = popen(command.c_str(), "r");
  REQUIRE(pipe != nullptr);
  std::array<char, 4096> buffer;
  for (size_t n = 0; (n = fread(buffer.data(), 1, buffer.size(), pipe)) > 0;) out.append(buffer.data(), n);
  REQUIRE(pclose(pipe) == 0);
  return out;
}

reshard::PlanOptions OptionsOf(const json& args) {
  reshard::PlanOptions options;
  for (size_t i = 0; i + 1 < args.size(); i += 2) {
    const auto value = args[i + 1].get<std::string>();
    if (args[i] == "--objective") options.objective = *reshard::ParseObjective(value);
    if (args[i] == "--ops") {
      REQUIRE(value == "Slice,AllGather,AllToAll,AllPermute");
      options.ops = reshard::OpSet::None();
      for (auto op : {reshard::Op::kSlice, reshard::Op::kAllGather, reshard::Op::kAllToAll, reshard::Op::kAllPermute}) {
        options.ops = options.ops.with(op);
      }
    }
  }
  return options;
}

json PlanByApi(const json& c) {
  const auto mesh = *reshard::ParseMesh(c["mesh"].get<std::string>());
  auto to_mesh = mesh;
  if (c.contains("to_mesh")) {
    to_mesh = *reshard::ParseMesh(c["to_mesh"].get<std::string>());
  }
  const auto source = reshard::ParseLayout(c["from"].get<std::string>(), mesh);
  const auto target = reshard::ParseLayout(c["to"].get<std::string>(), to_mesh);
  INFO(source.status() << target.status());
  REQUIRE((source.ok() && target.ok()));
  const auto plan =
      reshard::MakePlan({*source, *target, reshard::DType::kBF16}, OptionsOf(c.value("args", json::array())));
  INFO(plan.status());
  REQUIRE(plan.ok());
  return json::parse(*reshard::PlanToJson(*plan));
}

json PlanByCommand(const json& c) {
  std::string command = RESHARD_COMMAND " plan";
  for (const char* key : {"mesh", "from", "to"}) command += " " + Quoted(c[key].get<std::string>());
  if (c.contains("to_mesh")) command += " --to-mesh " + Quoted(c["to_mesh"].get<std::string>());
  for (const json& arg : c.value("args", json::array())) command += " " + Quoted(arg.get<std::string>());
  return json::parse(Output(command + " --json"));
}

}  // namespace

TEST_CASE("golden cases have their exact numbers", "[golden]") {
  for (const json& c : Cases()) {
    DYNAMIC_SECTION(c["name"].get<std::string>()) {
      const json plan = PlanByApi(c);
      INFO(plan.dump(2));
      json ops = json::array();
      for (const json& step : plan["steps"]) ops.push_back(step["op"]);
      CHECK(plan["totals"]["recv_bytes_max"] == c["recv"]);
      CHECK(plan["bounds"]["recv_bytes_max"] == c.value("bound", c["recv"]));
      if (c.contains("ops")) CHECK(ops == c["ops"]);
      if (c.contains("steps_max")) CHECK(ops.size() <= c["steps_max"].get<size_t>());
      if (c.contains("largest")) CHECK(plan["totals"]["intermediate_bytes_max"] <= c["largest"]);
      if (c.contains("total")) CHECK(plan["totals"]["recv_bytes_total"] == c["total"]);
      CHECK(plan["totals"]["intermediate_bytes_max"] <= plan["bounds"]["intermediate_bytes_max"]);
      CHECK(PlanByCommand(c) == plan);
      const auto report = reshard::CheckPlans(plan.dump());
      REQUIRE(report.ok());
      INFO(reshard::CheckToText(*report));
      CHECK(report->agrees());
    }
  }
}

TEST_CASE("nested uneven cuts are ceil by ceil", "[golden]") {
  const auto mesh = *reshard::ParseMesh("{X:2}");
  const auto layout = reshard::ParseLayout("[<2,X>5]", mesh);
  REQUIRE(layout.ok());
  using Intervals = std::vector<reshard::Interval>;
  CHECK(layout->Intervals(0, 0) == Intervals{{0, 2}, {3, 4}});
  CHECK(layout->Intervals(1, 0) == Intervals{{2, 3}, {4, 5}});
}
