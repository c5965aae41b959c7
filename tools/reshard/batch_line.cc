#include "tools/reshard/batch_line.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <vector>

#include "absl/strings/str_cat.h"
#include "reshard/layout/json_depth.h"

namespace reshard::tool {
namespace {

using Json = nlohmann::json;

// One line's problem, or why it is none.
absl::StatusOr<ProblemText> ReadProblemText(const Json& line, const ProblemText& defaults, DType& dtype) {
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

}  // namespace

bool IsBlank(const std::string& line) { return line.find_first_not_of(" \t\r") == std::string::npos; }

std::string BatchLine::Key() const {
  std::string key =
      absl::StrCat(text.mesh, "\n", text.from, "\n", text.to, "\n", text.to_mesh ? *text.to_mesh : "\n", "\n",
                   static_cast<int>(dtype), static_cast<int>(text.from_format), static_cast<int>(text.to_format), "\n");
  if (text.shape) {
    for (int64_t size : *text.shape) absl::StrAppend(&key, size, ",");
    key += "s";
  }
  return key;
}

BatchLine ReadBatchLine(const std::string& line, const ProblemText& defaults, DType dtype) {
  BatchLine out;
  out.dtype = dtype;
  // A problem is a flat object; an id may be anything short of a tower of brackets.
  if (NestsTooDeep(line)) {
    out.status = absl::InvalidArgumentError("the line is not JSON that a problem can be: it nests too deep");
    return out;
  }
  const Json parsed = Json::parse(line, nullptr, /*allow_exceptions=*/false);
  if (parsed.is_discarded()) {
    out.status = absl::InvalidArgumentError("the line is not JSON");
  } else if (!parsed.is_object()) {
    out.status = absl::InvalidArgumentError("the line is not a JSON object");
  } else {
    if (parsed.contains("id")) out.id = parsed["id"].dump(-1, ' ', false, Json::error_handler_t::replace);
    auto text = ReadProblemText(parsed, defaults, out.dtype);
    out.status = text.status();
    if (text.ok()) out.text = *std::move(text);
  }
  return out;
}

}  // namespace reshard::tool
