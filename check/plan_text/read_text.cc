// A text as plans: one object, a batch, or one plan per line.
#include <algorithm>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "check/plan_text/plan_text.h"
#include "json/document.h"

namespace reshard::plan_text {

absl::StatusOr<ReadPlans> ReadText(std::string_view text) {
  ReadPlans out;
  const absl::StatusOr<json::Document> parsed = json::Document::Parse(text);
  if (parsed.ok()) {
    const json::Value whole = parsed->root();
    const auto schema = whole.Find("schema");
    const bool is_batch = schema && schema->Text() == "reshard.batch/1";
    if (!is_batch) {
      out.plans.push_back(ReadOne(whole));
      return out;
    }
    const auto plans = whole.Find("plans");
    if (!plans || !plans->is_array()) {
      return absl::InvalidArgumentError("a batch needs \"plans\", a list");
    }
    out.batch = true;
    for (size_t i = 0; i < plans->size(); ++i) out.plans.push_back(ReadOne(plans->at(i)));
    return out;
  }
  // One plan per line, as `reshard plan --batch` prints them.
  out.batch = true;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    const std::string_view line = text.substr(begin, end - begin);
    begin = end + 1;
    if (line.find_first_not_of(" \t\r") == std::string_view::npos) continue;
    const absl::StatusOr<json::Document> one = json::Document::Parse(line);
    if (!one.ok()) {
      if (out.plans.empty()) {
        return absl::InvalidArgumentError(
            absl::StrCat("the text is neither JSON nor lines of JSON: ", parsed.status().message()));
      }
      out.plans.push_back({absl::InvalidArgumentError(one.status().message()), {}, {}});
      continue;
    }
    out.plans.push_back(ReadOne(one->root()));
  }
  if (out.plans.empty()) return absl::InvalidArgumentError("the text holds no plan");
  return out;
}

}  // namespace reshard::plan_text
