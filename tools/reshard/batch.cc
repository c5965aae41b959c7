// reshard plan --batch FILE: JSON lines in, JSON lines out, order kept, flushed line by line.
//   {"id":1,"mesh":"{X:2}","from":"[<X>4]","to":"[4]","dtype":"f32","to_mesh":null}
//   -> the plan object plus "id", or {"id":1,"error":{"code":"INVALID_ARGUMENT","message":"..."}}
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>
#include <optional>
#include <unordered_map>
#include <vector>

#include "absl/strings/str_cat.h"
#include "reshard/planner/html.h"
#include "reshard/planner/planner.h"
#include "reshard/planner/report.h"
#include "tools/reshard/batch_line.h"
#include "tools/reshard/commands.h"
#include "tools/reshard/exit_code.h"
#include "tools/reshard/terminal.h"

namespace reshard::tool {
namespace {

using Json = nlohmann::json;

// The answer to one line: the plan object without its opening brace, or the status.
struct Answer {
  absl::Status status;
  Stage stage = Stage::kInput;
  std::string body;
  int64_t recv_bytes_max = 0;
  int64_t bound = 0;
  std::optional<Plan> plan;  // if a page wants it
};

// What the page of a batch is made of.
struct Page {
  std::vector<Plan> plans;
  std::unordered_map<std::string, size_t> plan_of;  // by the key of a problem
  std::vector<PageTensor> tensors;

  void Add(const BatchLine& line, const Answer& answer) {
    PageTensor tensor{line.name.empty() ? line.id : line.name, std::nullopt, ""};
    if (tensor.name == "null") tensor.name = absl::StrCat("line ", tensors.size() + 1);
    if (answer.status.ok()) {
      const auto [known, is_new] = plan_of.emplace(line.Key(), plans.size());
      if (is_new) plans.push_back(*answer.plan);
      tensor.plan = known->second;
    } else {
      tensor.error = std::string(answer.status.message());
    }
    tensors.push_back(std::move(tensor));
  }
};

Answer Solve(const ProblemText& text, DType dtype, const PlanOptions& options, const EachLineFlags& flags) {
  Answer out;
  auto problem = ReadProblem(text, dtype, "to_mesh");
  if (!problem.ok()) {
    out.status = problem.status();
    return out;
  }
  auto plan = MakePlan(*problem, options);
  if (!plan.ok()) {
    out.status = plan.status();
    const bool over_input_limit = absl::IsResourceExhausted(plan.status()) && !options.memory_limit_bytes;
    out.stage = over_input_limit ? Stage::kInput : Stage::kPlan;
    return out;
  }
  auto json = PlanToJson(*plan, flags.pieces);
  if (!json.ok()) {
    out.status = json.status();
    out.stage = Stage::kPlan;
    return out;
  }
  out.body = json->substr(1);
  out.recv_bytes_max = plan->totals.recv_bytes_max;
  out.bound = plan->bounds.recv_bytes_max;
  if (!flags.html.empty()) out.plan = *std::move(plan);
  return out;
}

}  // namespace

int PlanEachLine(const std::string& path, const ProblemText& defaults, DType dtype, const PlanOptions& options,
                 const EachLineFlags& flags) {
  std::ifstream file;
  if (path != "-") {
    file.open(path, std::ios::binary);
    if (!file || std::filesystem::is_directory(path)) return Fail(kIo, absl::StrCat("cannot read ", path));
  }
  std::istream& in = path == "-" ? std::cin : file;
  int first_error = kOk;
  int64_t plans = 0, errors = 0, received = 0, bound = 0;
  // Equal problems (a model has few distinct shapes) are planned once.
  constexpr size_t kMaxCached = 4096;
  std::unordered_map<std::string, Answer> cache;
  Page page;
  std::string line;
  while (std::getline(in, line)) {
    if (IsBlank(line)) continue;
    BatchLine problem = ReadBatchLine(line, defaults, dtype);
    Answer answer;
    if (!problem.status.ok()) {
      answer.status = problem.status;
    } else {
      const std::string key = problem.Key();
      const auto it = cache.find(key);
      if (it != cache.end()) {
        answer = it->second;
      } else {
        answer = Solve(problem.text, problem.dtype, options, flags);
        if (cache.size() < kMaxCached) cache.emplace(key, answer);
      }
    }
    if (!flags.html.empty()) page.Add(problem, answer);
    std::string out;
    if (answer.status.ok()) {
      out = absl::StrCat("{\"id\":", problem.id, ",", answer.body, "\n");
      ++plans;
      received += answer.recv_bytes_max;
      bound += answer.bound;
    } else {
      Json error;
      error["code"] = absl::StatusCodeToString(answer.status.code());
      error["message"] = std::string(answer.status.message());
      out = absl::StrCat("{\"id\":", problem.id,
                         ",\"error\":", error.dump(-1, ' ', false, Json::error_handler_t::replace), "}\n");
      ++errors;
      if (first_error == kOk) first_error = ExitCodeOf(answer.status, answer.stage);
    }
    if (const int code = Print(out); code != kOk) return code;
  }
  if (in.bad()) return Fail(kIo, absl::StrCat("cannot read ", path));
  Note(absl::StrCat(plans, " plans, ", errors, " errors; one device receives at most ", HumanBytes(received), " (",
                    received, " bytes) in total, lower bound ", HumanBytes(bound), " (", bound, " bytes)"));
  if (!flags.html.empty()) {
    if (const int code = WritePage(flags.html, PlansToHtml(page.plans, page.tensors)); code != kOk) return code;
  }
  return first_error;
}

}  // namespace reshard::tool
