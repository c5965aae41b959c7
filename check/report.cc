// Prints a report as text and as JSON.
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "page/page.h"
#include "reshard/check/check.h"
#include "reshard/layout/characters.h"

namespace reshard {
namespace {

using Json = nlohmann::ordered_json;

// How far from the bound; nullopt if nothing has to be received.
std::optional<double> Ratio(int64_t bytes, int64_t bound) {
  if (bound == 0) return std::nullopt;
  return static_cast<double>(bytes) / static_cast<double>(bound);
}

std::string Text(const Derived& figure) {
  return figure.exact() ? absl::StrCat(figure.low) : absl::StrCat(figure.low, " to ", figure.high);
}

std::string FindingText(const Finding& finding) {
  std::string out = finding.where + ": ";
  if (!finding.said.empty()) absl::StrAppend(&out, "claimed ", finding.said);
  if (!finding.is.empty()) absl::StrAppend(&out, finding.said.empty() ? "" : ", ", "actual ", finding.is);
  if (!finding.why.empty()) {
    const bool alone = finding.said.empty() && finding.is.empty();
    absl::StrAppend(&out, alone ? "" : " (", finding.why, alone ? "" : ")");
  }
  return out;
}

void AppendPlan(std::string& out, const std::string& prefix, const PlanVerdict& plan) {
  const auto line = [&](const std::string& text) { absl::StrAppend(&out, prefix, text, "\n"); };
  if (!plan.status.ok()) return line(absl::StrCat("unchecked: ", plan.status.message()));
  for (const Finding& finding : plan.findings) line(FindingText(finding));
  for (const Unjudged& item : plan.unjudged) line(absl::StrCat("unchecked: ", item.where, ": ", item.why));
  if (plan.derived) {
    const DerivedPlan& derived = *plan.derived;
    for (size_t s = 0; s < derived.steps.size(); ++s) {
      const DerivedStep& step = derived.steps[s];
      line(absl::StrFormat(
          "%d. %s  %s -> %s: receives at most %d bytes per device, %d in total; sends at most %s; peers %s", s + 1,
          step.op, step.from, step.to, step.recv_bytes_max, step.recv_bytes_total, Text(step.send_bytes_max),
          Text(step.peers_max)));
    }
    const auto ratio = Ratio(derived.recv_bytes_max, derived.bound_recv_bytes_max);
    line(absl::StrFormat("worst device receives %d bytes, the lower bound is %d%s", derived.recv_bytes_max,
                         derived.bound_recv_bytes_max,
                         ratio ? absl::StrFormat(": %.3f x the lower bound", *ratio) : ""));
    const auto all = Ratio(derived.recv_bytes_total, derived.bound_recv_bytes_total);
    line(absl::StrFormat("all devices receive %d bytes, the lower bound is %d%s", derived.recv_bytes_total,
                         derived.bound_recv_bytes_total, all ? absl::StrFormat(": %.3f x", *all) : ""));
    line(absl::StrFormat("largest layout %d bytes per device, source and target at most %d; peak %s bytes",
                         derived.intermediate_bytes_max, derived.bound_intermediate_bytes_max,
                         Text(derived.peak_bytes)));
  }
  line(plan.findings.empty()
           ? std::string("agrees")
           : absl::StrCat("disagrees: ", plan.findings.size(), plan.findings.size() == 1 ? " finding" : " findings"));
}

Json RangeJson(const Derived& figure) {
  return figure.exact() ? Json(figure.low) : Json{{"low", figure.low}, {"high", figure.high}};
}

Json DerivedJson(const DerivedPlan& derived) {
  Json steps = Json::array();
  for (const DerivedStep& step : derived.steps) {
    steps.push_back({{"op", step.op},
                     {"from", step.from},
                     {"to", step.to},
                     {"group_size", RangeJson(step.group_size)},
                     {"recv_bytes_max", step.recv_bytes_max},
                     {"recv_bytes_total", step.recv_bytes_total},
                     {"send_bytes_max", RangeJson(step.send_bytes_max)},
                     {"local_bytes_before_max", step.local_bytes_before_max},
                     {"local_bytes_after_max", step.local_bytes_after_max},
                     {"peers_max", RangeJson(step.peers_max)}});
  }
  const auto ratio = [](int64_t bytes, int64_t bound) {
    const auto value = Ratio(bytes, bound);
    return value ? Json(*value) : Json(nullptr);
  };
  return {{"steps", std::move(steps)},
          {"totals",
           {{"recv_bytes_max", derived.recv_bytes_max},
            {"recv_bytes_total", derived.recv_bytes_total},
            {"intermediate_bytes_max", derived.intermediate_bytes_max},
            {"peak_bytes", RangeJson(derived.peak_bytes)}}},
          {"bounds",
           {{"recv_bytes_max", derived.bound_recv_bytes_max},
            {"recv_bytes_total", derived.bound_recv_bytes_total},
            {"intermediate_bytes_max", derived.bound_intermediate_bytes_max}}},
          {"ratios",
           {{"recv_bytes_max", ratio(derived.recv_bytes_max, derived.bound_recv_bytes_max)},
            {"recv_bytes_total", ratio(derived.recv_bytes_total, derived.bound_recv_bytes_total)}}}};
}

Json PlanJson(const PlanVerdict& plan) {
  Json out;
  if (!plan.name.empty()) out["name"] = plan.name;
  out["agrees"] = plan.agrees();
  if (!plan.status.ok()) {
    out["error"] = {{"code", absl::StatusCodeToString(plan.status.code())},
                    {"message", std::string(plan.status.message())}};
    return out;
  }
  out["findings"] = Json::array();
  for (const Finding& finding : plan.findings) {
    Json entry = {{"where", finding.where}};
    if (!finding.said.empty()) entry["said"] = finding.said;
    if (!finding.is.empty()) entry["is"] = finding.is;
    if (!finding.why.empty()) entry["why"] = finding.why;
    out["findings"].push_back(std::move(entry));
  }
  out["unjudged"] = Json::array();
  for (const Unjudged& item : plan.unjudged) out["unjudged"].push_back({{"where", item.where}, {"why", item.why}});
  out["derived"] = plan.derived ? DerivedJson(*plan.derived) : Json(nullptr);
  return out;
}

}  // namespace

std::string CheckToText(const CheckReport& report) {
  std::string out;
  for (size_t i = 0; i < report.plans.size(); ++i) {
    std::string prefix;
    if (report.batch) {
      const std::string& name = report.plans[i].name;
      prefix = absl::StrCat("plans[", i, "]", name.empty() ? "" : " ", name, ": ");
    }
    AppendPlan(out, prefix, report.plans[i]);
  }
  // Names and texts come from a file that anyone may have written, and must not contain control sequences.
  return VisibleLines(out);
}

std::string CheckToJson(const CheckReport& report) {
  Json out = {{"schema", "reshard.check/1"}, {"agrees", report.agrees()}};
  out["plans"] = Json::array();
  for (const PlanVerdict& plan : report.plans) out["plans"].push_back(PlanJson(plan));
  return out.dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::string CheckToHtml(const CheckReport& report) {
  return page::Document(
      report.agrees() ? "The plan agrees with its layouts" : "The plan does not agree with its layouts",
      absl::StrCat("{\"kind\":\"check\",\"report\":", CheckToJson(report), "}"));
}

}  // namespace reshard
