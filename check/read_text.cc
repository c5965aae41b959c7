// A text as plans: one object, a batch, or one plan a line.
#include <algorithm>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "check/json_ref.h"
#include "check/plan_text.h"
#include "reshard/layout/json_depth.h"

namespace reshard::check {

absl::StatusOr<ReadPlans> ReadText(std::string_view text) {
  if (text.size() > kMaxPlanText) {
    return absl::ResourceExhaustedError(absl::StrCat("the text has more than ", kMaxPlanText, " bytes"));
  }
  if (NestsTooDeep(text)) return absl::InvalidArgumentError("the text nests too deep for a plan");
  ReadPlans out;
  if (const auto parsed = JsonText::Parse(text)) {
    const JsonRef whole = parsed->root();
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
  // One plan a line, as `reshard plan --batch` prints them.
  out.batch = true;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    const std::string_view line = text.substr(begin, end - begin);
    begin = end + 1;
    if (line.find_first_not_of(" \t\r") == std::string_view::npos) continue;
    const auto parsed = JsonText::Parse(line);
    if (!parsed) {
      if (out.plans.empty()) return absl::InvalidArgumentError("the text is neither JSON nor lines of JSON");
      out.plans.push_back({absl::InvalidArgumentError("the line is not JSON"), {}, {}});
      continue;
    }
    out.plans.push_back(ReadOne(parsed->root()));
  }
  if (out.plans.empty()) return absl::InvalidArgumentError("the text holds no plan");
  return out;
}

}  // namespace reshard::check
