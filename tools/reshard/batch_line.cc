#include "tools/reshard/batch_line.h"

#include <algorithm>
#include <optional>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "json/document.h"
#include "reshard/planner/option_text.h"

namespace reshard::tool {
namespace {

// The problem of one line, or why there is none.
absl::StatusOr<ProblemText> ReadProblemText(const json::Value& line, const ProblemText& defaults, DType& dtype) {
  static const auto* keys =
      new std::vector<std::string>{"id", "mesh", "from", "to", "dtype", "shape", "to_mesh", "from_format", "to_format"};
  ProblemText out = defaults;
  auto bad = [](const std::string& reason) { return absl::InvalidArgumentError(reason); };
  for (const std::string& key : line.Keys()) {
    const json::Value value = *line.Find(key);
    if (std::find(keys->begin(), keys->end(), key) == keys->end()) {
      const auto near = Nearest(key, *keys);
      return bad(absl::StrCat("unknown key \"", key, "\"",
                              near ? absl::StrCat("; did you mean \"", *near, "\"?")
                                   : absl::StrCat("; there are ", absl::StrJoin(*keys, ", "))));
    }
    if (key == "id" || value.is_null()) continue;
    if (key == "shape") {
      if (!value.is_array()) return bad("\"shape\" is a list of sizes");
      out.shape.emplace();
      for (size_t i = 0; i < value.size(); ++i) {
        const std::optional<int64_t> size = value.at(i).Count();
        if (!size) return bad("\"shape\" is a list of sizes, whole numbers of at least 0");
        out.shape->push_back(*size);
      }
      continue;
    }
    if (!value.is_string()) return bad(absl::StrCat("\"", key, "\" is a string"));
    const std::string text = *value.Text();
    if (key == "mesh") out.mesh = text;
    if (key == "from") out.from = text;
    if (key == "to") out.to = text;
    if (key == "to_mesh") out.to_mesh = text;
    if (key == "dtype") {
      const auto parsed = FindDType(text);
      if (!parsed) return bad(absl::StrCat("\"", text, "\" is not an element type: ", KnownDTypes()));
      dtype = *parsed;
    }
    if (key == "from_format" || key == "to_format") {
      const auto notation = ParseNotation(text);
      if (!notation) return bad(absl::StrCat("\"", text, "\" is not a notation (", KnownNotations(), ")"));
      (key == "from_format" ? out.from_format : out.to_format) = *notation;
    }
  }
  for (const char* key : {"mesh", "from", "to"}) {
    const std::optional<json::Value> value = line.Find(key);
    if (!value || value->is_null()) return bad(absl::StrCat("\"", key, "\" is missing"));
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
  const absl::StatusOr<json::Document> parsed = json::Document::Parse(line);
  if (!parsed.ok()) {
    out.status = absl::InvalidArgumentError(parsed.status().message());
  } else if (!parsed->root().is_object()) {
    out.status = absl::InvalidArgumentError("the line is not a JSON object");
  } else {
    const std::optional<json::Value> id = parsed->root().Find("id");
    if (id) out.id = id->Written();
    if (id && id->is_string()) out.name = *id->Text();
    auto text = ReadProblemText(parsed->root(), defaults, out.dtype);
    out.status = text.status();
    if (text.ok()) out.text = *std::move(text);
  }
  return out;
}

}  // namespace reshard::tool
