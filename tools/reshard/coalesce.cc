// reshard plan --batch FILE --coalesce: plans all tensors of the file as one schedule, or names the line that is wrong.
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <unordered_map>

#include "absl/strings/str_cat.h"
#include "reshard/planner/batch.h"
#include "reshard/planner/html.h"
#include "reshard/planner/option_text.h"
#include "reshard/planner/relabel.h"
#include "tools/reshard/batch_line.h"
#include "tools/reshard/commands.h"
#include "tools/reshard/exit_code.h"

namespace reshard::tool {
namespace {

// What errors call a line: "line 3 (model.norm.weight)".
std::string NameOf(int64_t number, const BatchLine& line) {
  if (line.id == "null") return absl::StrCat("line ", number);
  return absl::StrCat("line ", number, " (", Clipped(line.name.empty() ? line.id : line.name), ")");
}

}  // namespace

int PlanCoalesced(const std::string& path, const ProblemText& defaults, DType dtype, const ScheduleFlags& flags) {
  std::ifstream file;
  if (path != "-") {
    file.open(path, std::ios::binary);
    if (!file || std::filesystem::is_directory(path)) return Fail(kIo, absl::StrCat("cannot read ", path));
  }
  std::istream& in = path == "-" ? std::cin : file;
  std::vector<Problem> problems;
  ScheduleNames names;
  // Equal lines (a model has few distinct shapes) are read once, and share their meshes.
  std::unordered_map<std::string, size_t> first_of;
  std::string line;
  for (int64_t number = 1; std::getline(in, line); ++number) {
    if (IsBlank(line)) continue;
    BatchLine read = ReadBatchLine(line, defaults, dtype);
    const std::string name = NameOf(number, read);
    const auto refused = [&](const absl::Status& status) {
      return Fail(ExitCodeOf(status, Stage::kInput), absl::StrCat(name, ": ", status.message()));
    };
    if (!read.status.ok()) return refused(read.status);
    const auto [known, added] = first_of.emplace(read.Key(), problems.size());
    if (added) {
      auto problem = ReadProblem(read.text, read.dtype, "to_mesh");
      if (!problem.ok()) return refused(problem.status());
      problems.push_back(*problem);
    } else {
      problems.push_back(problems[known->second]);
    }
    names.names.push_back(name);
    names.shown.push_back(read.name.empty() ? name : read.name);
    names.ids.push_back(std::move(read.id));
  }
  if (in.bad()) return Fail(kIo, absl::StrCat("cannot read ", path));
  return PlanSchedule(std::move(problems), names, flags);
}

int PlanSchedule(std::vector<Problem> problems, const ScheduleNames& names, const ScheduleFlags& flags) {
  std::string devices;
  if (flags.relabel && !problems.empty()) {
    const auto relabelled = Relabel(problems, names.names);
    if (!relabelled.ok()) return Fail(relabelled.status(), Stage::kPlan);
    for (Problem& problem : problems) {
      auto target = OnMesh(problem.target, relabelled->target_mesh);
      if (!target.ok()) return Fail(target.status(), Stage::kPlan);
      problem.target = *std::move(target);
    }
    devices = RelabelText(*relabelled);
  }
  auto batch = PlanBatch(problems, flags.options, names.names);
  if (!batch.ok()) {
    const bool over_input_limit = absl::IsResourceExhausted(batch.status()) && !flags.options.plan.memory_limit_bytes;
    return Fail(batch.status(), over_input_limit ? Stage::kInput : Stage::kPlan);
  }
  batch->names = names.shown;
  std::string out;
  if (flags.json) {
    auto json = BatchToJson(*batch, names.ids);
    if (!json.ok()) return Fail(json.status(), Stage::kPlan);
    out = *std::move(json) + "\n";
    std::fputs(devices.c_str(), stderr);
  } else {
    out = devices + (flags.explain ? ExplainBatch(*batch) : BatchToText(*batch) + CostliestTensors(*batch));
  }
  if (!flags.html.empty()) {
    if (const int code = WritePage(flags.html, BatchToHtml(*batch, names.shown)); code != kOk) return code;
  }
  return Print(out);
}

}  // namespace reshard::tool
