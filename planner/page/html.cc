#include "reshard/planner/html.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "page/page.h"
#include "planner/page/detail.h"
#include "planner/page/layout_data.h"
#include "planner/page/step_data.h"
#include "planner/report/view.h"
#include "reshard/planner/report.h"
#include "reshard/planner/version.h"
#include "status/macros.h"

namespace reshard {
namespace {

using Json = nlohmann::ordered_json;

// Rows of a table of tensors; more would be slow to sort and to scroll, and large.
constexpr size_t kMostRows = 3000;
// Longer names and errors are cut.
constexpr size_t kNameChars = 160;
constexpr size_t kErrorChars = 400;
// About the size of a document without its data, and of the place of a plan without steps.
constexpr size_t kTemplateBytes = 80'000;
constexpr size_t kNull = 8;

std::string Quoted(const std::string& text) { return Json(text).dump(-1, ' ', false, Json::error_handler_t::replace); }

std::string OpsText(const std::vector<Step>& steps) {
  std::vector<std::string> ops;
  for (const Step& step : steps) ops.emplace_back(Name(step.op));
  return absl::StrJoin(ops, ", ");
}

std::string PlanTitle(const Plan& plan) {
  return absl::StrCat(plan.steps.empty() ? "Nothing to do" : OpsText(plan.steps), " – ", std::string(Name(plan.dtype)),
                      "[", absl::StrJoin(plan.source.shape(), ","), "]");
}

// A plan with what its devices do: {"plan": reshard.plan/1, "explained": text, "devices": [first, count...],
// "lost": why it lost, or null, "source", "target", "steps": [...]}; layouts by their index in the table.
absl::StatusOr<std::string> PlanData(const Plan& plan, const page::Detail& detail, page::LayoutTable& layouts,
                                     const std::string& lost = "") {
  std::vector<const Layout*> all{&plan.source, &plan.target};
  for (const Step& step : plan.steps) all.insert(all.end(), {&step.from, &step.to});
  const std::vector<int> drawn = report::DrawnDims(all);
  ASSIGN_OR_RETURN(auto json, PlanToJson(plan));
  const std::vector<int64_t> devices = page::ListedDevices(plan.source.mesh(), plan.target.mesh(), detail);
  std::vector<std::string> ranges;
  for (size_t i = 0, j = 0; i < devices.size(); i = j) {
    while (j < devices.size() && devices[j] == devices[i] + static_cast<int64_t>(j - i)) ++j;
    ranges.push_back(absl::StrCat(devices[i], ",", j - i));
  }
  std::vector<std::string> steps;
  for (const Step& step : plan.steps) {
    ASSIGN_OR_RETURN(auto data, page::StepData(step, plan, devices, detail));
    steps.push_back(absl::StrCat("{\"from\":", layouts.Add(step.from, drawn), ",\"to\":", layouts.Add(step.to, drawn),
                                 ",", data, "}"));
  }
  return absl::StrCat("{\"plan\":", json, ",\"lost\":", lost.empty() ? "null" : Quoted(lost),
                      ",\"explained\":", Quoted(ExplainPlan(plan)), ",\"source\":", layouts.Add(plan.source, drawn),
                      ",\"target\":", layouts.Add(plan.target, drawn), ",\"devices\":[", absl::StrJoin(ranges, ","),
                      "],\"steps\":[", absl::StrJoin(steps, ","), "]}");
}

// An alternative as the plan that it would have been.
Plan PlanOf(const Alternative& alternative, const Plan& chosen) {
  Plan plan;
  plan.source = chosen.source;
  plan.target = chosen.target;
  plan.dtype = chosen.dtype;
  plan.options = chosen.options;
  plan.bounds = chosen.bounds;
  plan.steps = alternative.steps;
  plan.totals = alternative.totals;
  return plan;
}

absl::StatusOr<std::string> PlanPage(const Plan& plan, const page::Detail& detail) {
  page::LayoutTable layouts(detail);
  ASSIGN_OR_RETURN(auto chosen, PlanData(plan, detail, layouts));
  std::vector<std::string> plans{chosen};
  std::vector<std::string> opens;  // for each alternative the index of its plan, or null
  for (const Alternative& alternative : plan.alternatives) {
    if (!detail.others) {
      opens.emplace_back("null");
      continue;
    }
    ASSIGN_OR_RETURN(auto data, PlanData(PlanOf(alternative, plan), detail, layouts, alternative.rejected_because));
    opens.push_back(absl::StrCat(plans.size()));
    plans.push_back(std::move(data));
  }
  return page::Document(
      PlanTitle(plan),
      absl::StrCat("{\"kind\":\"plan\",\"version\":", Quoted(Version()), ",\"plans\":[", absl::StrJoin(plans, ","),
                   "],\"opens\":[", absl::StrJoin(opens, ","), "],\"layouts\":", layouts.Text(), "}"));
}

// What the table says about a plan, and all that a page without room for more says about it.
std::string Brief(const Plan& plan) {
  Json ops = Json::array();
  for (const Step& step : plan.steps) ops.push_back(std::string(Name(step.op)));
  Json out{{"shape", plan.source.shape()},
           {"dtype", std::string(Name(plan.dtype))},
           {"ops", std::move(ops)},
           {"recv_bytes_max", plan.totals.recv_bytes_max},
           {"bound", plan.bounds.recv_bytes_max},
           {"peak_bytes", plan.totals.peak_bytes},
           {"time_ns", plan.totals.time_ns}};
  return out.dump();
}

// nullopt if this much detail does not fit.
absl::StatusOr<std::optional<std::string>> BatchPage(absl::Span<const Plan> plans, absl::Span<const PageTensor> tensors,
                                                     const BatchPlan* batch, const page::Detail& detail) {
  std::vector<std::string> rows;
  std::vector<bool> listed(plans.size());
  for (const PageTensor& tensor : tensors.subspan(0, kMostRows)) {
    const std::string name = Quoted(report::Clip(tensor.name, kNameChars));
    if (!tensor.plan) {
      rows.push_back(absl::StrCat("[", name, ",null,", Quoted(report::Clip(tensor.error, kErrorChars)), "]"));
      continue;
    }
    if (*tensor.plan >= plans.size()) {
      return absl::InvalidArgumentError(
          absl::StrCat("tensor ", tensor.name, " has plan ", *tensor.plan, " of ", plans.size()));
    }
    listed[*tensor.plan] = true;
    rows.push_back(absl::StrCat("[", name, ",", *tensor.plan, "]"));
  }
  std::vector<std::string> briefs, views;
  page::LayoutTable layouts(detail);
  size_t bytes = kTemplateBytes;
  for (const std::string& row : rows) bytes += row.size() + 1;
  for (size_t p = 0; p < plans.size(); ++p) {
    briefs.push_back(listed[p] ? Brief(plans[p]) : "null");
    bytes += briefs.back().size() + kNull;
  }
  for (size_t p = 0; p < plans.size(); ++p) {
    // Where there is no room for all, the first plans have it; but less of all plans is preferred to all of some.
    const bool full = bytes >= page::kMostBytes * 9 / 10;
    if (full || !listed[p]) {
      views.emplace_back("null");
      if (full && !detail.last()) break;
      continue;
    }
    const size_t layouts_before = layouts.bytes();
    ASSIGN_OR_RETURN(auto data, PlanData(plans[p], detail, layouts));
    bytes += data.size() + layouts.bytes() - layouts_before;
    views.push_back(std::move(data));
  }
  if (views.size() < plans.size()) return std::nullopt;
  std::string schedule = "null";
  if (batch != nullptr) {
    const Json json{{"text", BatchToText(*batch)},
                    {"buckets", batch->buckets.size()},
                    {"recv_bytes_max", batch->totals.recv_bytes_max},
                    {"bound", batch->bounds.recv_bytes_max},
                    {"send_imbalance", batch->totals.send_imbalance},
                    {"time_ns", batch->totals.time_ns}};
    schedule = json.dump(-1, ' ', false, Json::error_handler_t::replace);
  }
  return page::Document(absl::StrCat(tensors.size(), tensors.size() == 1 ? " tensor" : " tensors"),
                        absl::StrCat("{\"kind\":\"batch\",\"version\":", Quoted(Version()), ",\"schedule\":", schedule,
                                     ",\"total\":", tensors.size(), ",\"rows\":[", absl::StrJoin(rows, ","),
                                     "],\"briefs\":[", absl::StrJoin(briefs, ","), "],\"plans\":[",
                                     absl::StrJoin(views, ","), "],\"layouts\":", layouts.Text(), "}"));
}

// With as much detail as there is room for.
absl::StatusOr<std::string> Fitting(absl::Span<const Plan> plans, absl::Span<const PageTensor> tensors,
                                    const BatchPlan* batch) {
  std::string out;
  for (const page::Detail& detail : page::kDetails) {
    ASSIGN_OR_RETURN(auto page, BatchPage(plans, tensors, batch, detail));
    if (!page) continue;
    out = *std::move(page);
    if (out.size() < page::kMostBytes) break;
  }
  return out;
}

}  // namespace

absl::StatusOr<std::string> PlanToHtml(const Plan& plan) {
  std::string out;
  for (const page::Detail& detail : page::kDetails) {
    ASSIGN_OR_RETURN(out, PlanPage(plan, detail));
    if (out.size() < page::kMostBytes) break;
  }
  return out;
}

std::string LayoutToHtml(const Layout& layout, std::optional<int64_t> device) {
  std::string out;
  for (const page::Detail& detail : page::kDetails) {
    page::LayoutTable layouts(detail);
    layouts.Add(layout, report::DrawnDims({&layout}));
    const std::vector<int64_t> devices = page::ListedDevices(layout.mesh(), layout.mesh(), detail);
    out = page::Document(
        absl::StrCat("Layout [", absl::StrJoin(layout.shape(), ","), "]"),
        absl::StrCat("{\"kind\":\"layout\",\"version\":", Quoted(Version()), ",\"listed\":", devices.size(),
                     ",\"device\":", device ? absl::StrCat(*device) : "null", ",\"layouts\":", layouts.Text(), "}"));
    if (out.size() < page::kMostBytes) break;
  }
  return out;
}

absl::StatusOr<std::string> PlansToHtml(absl::Span<const Plan> plans, absl::Span<const PageTensor> tensors) {
  return Fitting(plans, tensors, nullptr);
}

absl::StatusOr<std::string> BatchToHtml(const BatchPlan& batch, absl::Span<const std::string> names) {
  if (names.empty()) names = batch.names;
  if (!names.empty() && names.size() != batch.tensors.size()) {
    return absl::InvalidArgumentError(absl::StrCat(names.size(), " names for ", batch.tensors.size(), " tensors"));
  }
  std::vector<PageTensor> tensors;
  for (size_t t = 0; t < batch.tensors.size(); ++t) {
    const std::string name = names.empty() ? "" : names[t];
    tensors.push_back({name.empty() ? absl::StrCat(t) : name, static_cast<size_t>(batch.tensors[t].plan), ""});
  }
  return Fitting(batch.plans, tensors, &batch);
}

}  // namespace reshard
