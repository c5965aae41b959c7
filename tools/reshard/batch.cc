// reshard plan --batch FILE: JSON lines in, JSON lines out, order kept, flushed line by line.
//   {"id":1,"mesh":"{X:2}","from":"[<X>4]","to":"[4]","dtype":"f32","to_mesh":null}
//   -> the plan object plus "id", or {"id":1,"error":{"code":"INVALID_ARGUMENT","message":"..."}}
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>
#include <unordered_map>

#include "absl/strings/str_cat.h"
#include "reshard/planner/planner.h"
#include "reshard/planner/report.h"
#include "tools/reshard/commands.h"
#include "tools/reshard/exit_code.h"

namespace reshard::tool {
namespace {

using Json = nlohmann::json;

// A problem is a flat object; an id may be anything short of a tower of brackets, which would exhaust the stack of
// whoever copies or prints it.
bool NestsTooDeep(std::string_view line) {
  constexpr int kMostLevels = 64;
  int level = 0;
  bool quoted = false;
  for (size_t i = 0; i < line.size(); ++i) {
    const char c = line[i];
    if (quoted) {
      if (c == '\\') ++i;
      if (c == '"') quoted = false;
      continue;
    }
    quoted = c == '"';
    if (c == '[' || c == '{') ++level;
    if (c == ']' || c == '}') --level;
    if (level > kMostLevels) return true;
  }
  return false;
}

// One line's problem, or why it is none.
absl::StatusOr<ProblemText> ReadLine(const Json& line, const ProblemText& defaults, DType& dtype) {
  static const auto* keys =
      new std::vector<std::string>{"id", "mesh", "from", "to", "dtype", "shape", "to_mesh", "from_format", "to_format"};
  ProblemText out = defaults;
  auto bad = [](const std::string& reason) { return absl::InvalidArgumentError(reason); };
  for (const auto& [key, value] : line.items()) {
    if (std::find(keys->begin(), keys->end(), key) == keys->end()) {
      const auto near = Nearest(key, *keys);
      return bad(
          absl::StrCat("unknown key \"", key, "\"", near ? absl::StrCat("; did you mean \"", *near, "\"?") : ""));
    }
    if (key == "id" || value.is_null()) continue;
    if (key == "shape") {
      if (!value.is_array()) return bad("\"shape\" is a list of sizes");
      out.shape.emplace();
      for (const Json& size : value) {
        const bool fits = size.is_number_unsigned() && size.get<uint64_t>() <= INT64_MAX;
        if (!fits) return bad("\"shape\" is a list of sizes, whole numbers of at least 0");
        out.shape->push_back(size.get<int64_t>());
      }
      continue;
    }
    if (!value.is_string()) return bad(absl::StrCat("\"", key, "\" is a string"));
    const auto text = value.get<std::string>();
    if (key == "mesh") out.mesh = text;
    if (key == "from") out.from = text;
    if (key == "to") out.to = text;
    if (key == "to_mesh") out.to_mesh = text;
    if (key == "dtype") {
      const auto parsed = ParseDType(text);
      if (!parsed) return bad(absl::StrCat("\"", text, "\" is no element type"));
      dtype = *parsed;
    }
    if (key == "from_format" || key == "to_format") {
      const auto notation = ParseNotation(text);
      if (!notation) return bad(absl::StrCat("\"", text, "\" is no notation (reshard, dtensor, jax, shardy, hlo)"));
      (key == "from_format" ? out.from_format : out.to_format) = *notation;
    }
  }
  for (const char* key : {"mesh", "from", "to"}) {
    if (!line.contains(key) || line[key].is_null()) return bad(absl::StrCat("\"", key, "\" is missing"));
  }
  return out;
}

// What one line is answered with: the plan object without its opening brace, or the status.
struct Answer {
  absl::Status status;
  Stage stage = Stage::kInput;
  std::string body;
  int64_t recv_bytes_max = 0;
  int64_t bound = 0;
};

Answer Solve(const ProblemText& text, DType dtype, const PlanOptions& options, bool with_pieces) {
  Answer out;
  auto problem = ReadProblem(text);
  if (!problem.ok()) {
    out.status = problem.status();
    return out;
  }
  auto plan = MakePlan(problem->source, problem->target, dtype, options);
  if (!plan.ok()) {
    out.status = plan.status();
    const bool over_input_limit = absl::IsResourceExhausted(plan.status()) && !options.memory_limit_bytes;
    out.stage = over_input_limit ? Stage::kInput : Stage::kPlan;
    return out;
  }
  auto json = PlanToJson(*plan, with_pieces);
  if (!json.ok()) {
    out.status = json.status();
    out.stage = Stage::kPlan;
    return out;
  }
  out.body = json->substr(1);
  out.recv_bytes_max = plan->totals.recv_bytes_max;
  out.bound = plan->bounds.recv_bytes_max;
  return out;
}

// Everything that decides the answer but the options, which are the same for all lines.
std::string KeyOf(const ProblemText& text, DType dtype) {
  std::string key =
      absl::StrCat(text.mesh, "\n", text.from, "\n", text.to, "\n", text.to_mesh ? *text.to_mesh : "\n", "\n",
                   static_cast<int>(dtype), static_cast<int>(text.from_format), static_cast<int>(text.to_format), "\n");
  if (text.shape) {
    for (int64_t size : *text.shape) absl::StrAppend(&key, size, ",");
    key += "s";
  }
  return key;
}

}  // namespace

int PlanBatch(const std::string& path, const ProblemText& defaults, DType dtype, const PlanOptions& options,
              bool with_pieces) {
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
  std::string line;
  while (std::getline(in, line)) {
    if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
    const bool deep = NestsTooDeep(line);
    const Json parsed = deep ? Json() : Json::parse(line, nullptr, /*allow_exceptions=*/false);
    Json id = nullptr;
    Answer answer;
    if (deep) {
      answer.status = absl::InvalidArgumentError("the line is not JSON that a problem can be: it nests too deep");
    } else if (parsed.is_discarded()) {
      answer.status = absl::InvalidArgumentError("the line is not JSON");
    } else if (!parsed.is_object()) {
      answer.status = absl::InvalidArgumentError("the line is not a JSON object");
    } else {
      if (parsed.contains("id")) id = parsed["id"];
      DType line_dtype = dtype;
      auto text = ReadLine(parsed, defaults, line_dtype);
      if (!text.ok()) {
        answer.status = text.status();
      } else {
        const std::string key = KeyOf(*text, line_dtype);
        const auto it = cache.find(key);
        if (it != cache.end()) {
          answer = it->second;
        } else {
          answer = Solve(*text, line_dtype, options, with_pieces);
          if (cache.size() < kMaxCached) cache.emplace(key, answer);
        }
      }
    }
    const std::string id_text = id.dump(-1, ' ', false, Json::error_handler_t::replace);
    std::string out;
    if (answer.status.ok()) {
      out = absl::StrCat("{\"id\":", id_text, ",", answer.body, "\n");
      ++plans;
      received += answer.recv_bytes_max;
      bound += answer.bound;
    } else {
      Json error;
      error["code"] = absl::StatusCodeToString(answer.status.code());
      error["message"] = std::string(answer.status.message());
      out = absl::StrCat("{\"id\":", id_text, ",\"error\":", error.dump(-1, ' ', false, Json::error_handler_t::replace),
                         "}\n");
      ++errors;
      if (first_error == kOk) first_error = ExitCodeOf(answer.status, answer.stage);
    }
    if (std::fwrite(out.data(), 1, out.size(), stdout) != out.size() || std::fflush(stdout) != 0) {
      return Fail(kIo, "cannot write to standard output");
    }
  }
  if (in.bad()) return Fail(kIo, absl::StrCat("cannot read ", path));
  std::fprintf(
      stderr,
      "%lld plans, %lld errors; in all a device receives at most %s (%lld bytes), lower bound %s (%lld bytes)\n",
      static_cast<long long>(plans), static_cast<long long>(errors), HumanBytes(received).c_str(),
      static_cast<long long>(received), HumanBytes(bound).c_str(), static_cast<long long>(bound));
  return first_error;
}

}  // namespace reshard::tool
