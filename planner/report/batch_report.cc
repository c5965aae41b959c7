// Batches for people and programs.
#include <algorithm>
#include <nlohmann/json.hpp>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "planner/report/levels.h"
#include "planner/report/why.h"
#include "reshard/layout/text.h"
#include "reshard/planner/batch.h"
#include "reshard/planner/report.h"
#include "reshard/planner/version.h"
#include "status/macros.h"

namespace reshard {
namespace {

using Json = nlohmann::ordered_json;

std::string Text(const Json& json) { return json.dump(-1, ' ', false, Json::error_handler_t::replace); }

// The options as plans print them, taken from a plan that does nothing.
absl::StatusOr<Json> OptionsJson(const BatchOptions& options) {
  Plan nothing;
  nothing.options = options.plan;
  ASSIGN_OR_RETURN(const auto text, PlanToJson(nothing));
  Json out = Json::parse(text, nullptr, /*allow_exceptions=*/false)["options"];
  out["bucket_bytes"] = options.bucket_bytes ? Json(*options.bucket_bytes) : Json(nullptr);
  return out;
}

Json LevelsJson(const std::vector<LevelFigures>& levels) {
  Json out = Json::array();
  for (const LevelFigures& level : levels) {
    out.push_back(Json{{"recv_bytes_max", level.recv_bytes_max},
                       {"send_bytes_max", level.send_bytes_max},
                       {"recv_bytes_total", level.recv_bytes_total},
                       {"nic_bytes_max", level.nic_bytes_max},
                       {"peers_max", level.peers_max}});
  }
  return out;
}

Json BucketJson(const BatchBucket& bucket) {
  Json steps = Json::array();
  for (const BatchStep& step : bucket.steps) {
    steps.push_back(Json{{"op", std::string(Name(step.op))},
                         {"stage", step.stage},
                         {"tensors", step.tensors},
                         {"recv_bytes_max", step.recv_bytes_max},
                         {"recv_bytes_total", step.recv_bytes_total},
                         {"send_bytes_max", step.send_bytes_max},
                         {"peers_max", step.peers_max},
                         {"time_ns", step.time_ns},
                         {"levels", LevelsJson(step.levels)}});
  }
  return Json{{"first", bucket.first},           {"tensors", bucket.count},   {"bytes", bucket.bytes},
              {"peak_bytes", bucket.peak_bytes}, {"time_ns", bucket.time_ns}, {"steps", std::move(steps)}};
}

Json TotalsJson(const BatchTotals& totals) {
  return Json{{"recv_bytes_max", totals.recv_bytes_max},
              {"recv_bytes_total", totals.recv_bytes_total},
              {"send_bytes_max", totals.send_bytes_max},
              {"send_bytes_mean", totals.send_bytes_mean},
              {"send_between_meshes_bytes_max", totals.send_between_meshes_max},
              {"send_between_meshes_bytes_mean", totals.send_between_meshes_mean},
              {"send_imbalance", totals.send_imbalance},
              {"peak_bytes", totals.peak_bytes},
              {"time_ns", totals.time_ns},
              {"levels", LevelsJson(totals.levels)}};
}

// A batch may have tens of thousands of tensors: written as text at once.
std::string TensorsText(const BatchPlan& batch, absl::Span<const std::string> ids) {
  std::string out = "[";
  for (size_t t = 0; t < batch.tensors.size(); ++t) {
    const BatchTensor& tensor = batch.tensors[t];
    std::string id = "null";
    if (!ids.empty()) {
      id = ids[t];
    } else if (!batch.names.empty()) {
      id = Text(batch.names[t]);
    }
    absl::StrAppend(&out, t == 0 ? "" : ",", "{\"id\":", id, ",\"plan\":", tensor.plan, ",\"bucket\":", tensor.bucket,
                    ",\"first_holders\":[");
    const std::vector<Step>& steps = batch.plans[tensor.plan].steps;
    for (size_t s = 0; s < steps.size(); ++s) {
      absl::StrAppend(&out, s == 0 ? "" : ",", steps[s].crosses_meshes() ? tensor.first_holder : 0);
    }
    out += "]}";
  }
  return out + "]";
}

std::string DevicesText(const BatchPlan& batch) {
  std::string out = "[";
  for (const BatchDevice& device : batch.devices) {
    absl::StrAppend(&out, out.size() == 1 ? "" : ",", "{\"device\":", device.device, ",\"recv_bytes\":", device.recv,
                    ",\"recv_bytes_bound\":", device.recv_bound, ",\"send_bytes\":", device.send,
                    ",\"send_between_meshes_bytes\":", device.send_between_meshes, "}");
  }
  return out + "]";
}

// The tensors of one plan.
struct SamePlan {
  int64_t plan = 0;
  int64_t count = 0;
  int64_t first = 0;   // the first of them
  double time_ns = 0;  // of all of them, one after the other
};

// Of every plan, those that take the most time first.
std::vector<SamePlan> ByTime(const BatchPlan& batch) {
  std::vector<SamePlan> all(batch.plans.size());
  for (size_t t = batch.tensors.size(); t-- > 0;) {
    SamePlan& same = all[batch.tensors[t].plan];
    same.plan = batch.tensors[t].plan;
    same.first = static_cast<int64_t>(t);
    ++same.count;
    same.time_ns += static_cast<double>(batch.plans[same.plan].totals.time_ns);
  }
  std::stable_sort(all.begin(), all.end(), [](const SamePlan& a, const SamePlan& b) { return a.time_ns > b.time_ns; });
  return all;
}

// Where the batch is above its bound: what the plans with the fewest bytes would cost.
std::string FewerBytesText(const BatchPlan& batch) {
  if (batch.totals.recv_bytes_max == batch.bounds.recv_bytes_max) return "";
  double bytes = 0, fewer_bytes = 0, time = 0, its_time = 0;
  for (const SamePlan& same : ByTime(batch)) {
    const Plan& plan = batch.plans[same.plan];
    const Alternative* const fewest = report::FewestBytes(plan);
    const Totals& fewer = fewest == nullptr ? plan.totals : fewest->totals;
    const auto count = static_cast<double>(same.count);
    bytes += count * static_cast<double>(plan.totals.recv_bytes_max);
    fewer_bytes += count * static_cast<double>(fewer.recv_bytes_max);
    time += same.time_ns;
    its_time += count * static_cast<double>(fewer.time_ns);
  }
  if (fewer_bytes >= bytes || time == 0)
    return "no plans that receive less were found; the bound may be out of reach\n";
  return absl::StrFormat("plans that receive %.3gx fewer bytes would take %.3gx as long on this network\n",
                         bytes / fewer_bytes, its_time / time);
}

}  // namespace

absl::StatusOr<std::string> BatchToJson(const BatchPlan& batch, absl::Span<const std::string> ids) {
  if (!ids.empty() && ids.size() != batch.tensors.size()) {
    return absl::InvalidArgumentError(absl::StrCat(ids.size(), " ids for ", batch.tensors.size(), " tensors"));
  }
  const auto options = OptionsJson(batch.options);
  if (!options.ok()) return options.status();
  std::string out = absl::StrCat("{\"schema\":\"reshard.batch/1\",\"reshard_version\":\"", Version(),
                                 "\",\"options\":", Text(*options), ",\"plans\":[");
  for (size_t p = 0; p < batch.plans.size(); ++p) {
    ASSIGN_OR_RETURN(const auto plan, PlanToJson(batch.plans[p]));
    absl::StrAppend(&out, p == 0 ? "" : ",", plan);
  }
  absl::StrAppend(&out, "],\"tensors\":", TensorsText(batch, ids), ",\"buckets\":[");
  for (size_t b = 0; b < batch.buckets.size(); ++b) {
    absl::StrAppend(&out, b == 0 ? "" : ",", Text(BucketJson(batch.buckets[b])));
  }
  const Json bounds{{"recv_bytes_max", batch.bounds.recv_bytes_max},
                    {"recv_bytes_total", batch.bounds.recv_bytes_total}};
  absl::StrAppend(&out, "],\"devices\":", DevicesText(batch), ",\"totals\":", Text(TotalsJson(batch.totals)),
                  ",\"bounds\":", Text(bounds), "}");
  return out;
}

std::string BatchToText(const BatchPlan& batch) {
  const BatchTotals& totals = batch.totals;
  std::string out = absl::StrCat(Counted(static_cast<int64_t>(batch.tensors.size()), "tensor"), ", ",
                                 Counted(static_cast<int64_t>(batch.plans.size()), "distinct plan"), ", ",
                                 Counted(static_cast<int64_t>(batch.buckets.size()), "bucket"), ", ",
                                 Counted(static_cast<int64_t>(batch.devices.size()), "device"), "\n");
  std::string against = "exactly the lower bound";
  if (totals.recv_bytes_max != batch.bounds.recv_bytes_max) {
    against = batch.bounds.recv_bytes_max == 0 ? "nothing would have to move"
                                               : absl::StrFormat("%.3fx the lower bound of %s",
                                                                 static_cast<double>(totals.recv_bytes_max) /
                                                                     static_cast<double>(batch.bounds.recv_bytes_max),
                                                                 HumanBytes(batch.bounds.recv_bytes_max));
  }
  absl::StrAppend(&out, "received by the worst device ", HumanBytes(totals.recv_bytes_max), " (", totals.recv_bytes_max,
                  " bytes, ", against, "), by all ", HumanBytes(totals.recv_bytes_total), " (bound ",
                  HumanBytes(batch.bounds.recv_bytes_total), ")\n");
  const bool between = totals.send_between_meshes_max > 0;
  const double mean = between ? totals.send_between_meshes_mean : totals.send_bytes_mean;
  absl::StrAppend(&out, "sent", between ? " between meshes" : "", " by the busiest device ",
                  HumanBytes(between ? totals.send_between_meshes_max : totals.send_bytes_max), ", mean ",
                  HumanBytes(static_cast<int64_t>(mean)), absl::StrFormat(" (%.3fx)", totals.send_imbalance));
  if (between) absl::StrAppend(&out, "; over all steps the busiest sends ", HumanBytes(totals.send_bytes_max));
  out += "\n";
  for (size_t level = 0; totals.levels.size() > 1 && level < totals.levels.size(); ++level) {
    const LevelFigures& figures = totals.levels[level];
    if (figures.recv_bytes_total == 0) continue;
    absl::StrAppend(&out, "level ", level, ", ", report::LevelName(batch.options.plan.topology, level),
                    ": a device receives at most ", HumanBytes(figures.recv_bytes_max), " and sends at most ",
                    HumanBytes(figures.send_bytes_max), ", the busiest link carries ",
                    HumanBytes(figures.nic_bytes_max), ", all together ", HumanBytes(figures.recv_bytes_total), "\n");
  }
  int64_t exchanges = 0;
  for (const BatchBucket& bucket : batch.buckets) exchanges += static_cast<int64_t>(bucket.steps.size());
  absl::StrAppend(&out, Counted(exchanges, "exchange"), ", estimated ", HumanTime(totals.time_ns),
                  "; the largest bucket needs ", HumanBytes(totals.peak_bytes), " a device at once\n");
  return out + FewerBytesText(batch);
}

namespace {

// "model.layers.0.mlp.up_proj.weight and 159 more"
std::string TensorsOf(const BatchPlan& batch, const SamePlan& same) {
  const bool has_name = !batch.names.empty() && !batch.names[same.first].empty();
  const std::string name = has_name ? batch.names[same.first] : absl::StrCat("tensor ", same.first);
  return same.count == 1 ? name : absl::StrCat(name, " and ", same.count - 1, " more");
}

std::string ShapeText(const Plan& plan) {
  return absl::StrCat(std::string(Name(plan.dtype)), " [", absl::StrJoin(plan.source.shape(), ", "), "]");
}

}  // namespace

std::string CostliestTensors(const BatchPlan& batch, size_t most) {
  const std::vector<SamePlan> all = ByTime(batch);
  double sum = 0;
  for (const SamePlan& same : all) sum += same.time_ns;
  std::string out;
  for (size_t i = 0; i < all.size() && i < most && all[i].time_ns > 0; ++i) {
    const Plan& plan = batch.plans[all[i].plan];
    absl::StrAppend(&out, absl::StrFormat("%5.1f %%  ", 100 * all[i].time_ns / sum), TensorsOf(batch, all[i]), ", ",
                    ShapeText(plan), ": ", report::OpsText(plan.steps, plan.chunks), ", ",
                    HumanBytes(plan.totals.recv_bytes_max), " received by the worst device",
                    all[i].count == 1 ? "" : " for each", "\n");
  }
  return out.empty() ? out : absl::StrCat("tensors that take the most time:\n", out);
}

std::string ExplainBatch(const BatchPlan& batch) {
  std::string out = BatchToText(batch);
  for (const SamePlan& same : ByTime(batch)) {
    const Plan& plan = batch.plans[same.plan];
    absl::StrAppend(&out, "\n", TensorsOf(batch, same), ", ", ShapeText(plan), "\n  ", ToString(plan.source), " on ",
                    ToString(plan.source.mesh()), "\n");
    for (const Step& step : plan.steps) {
      absl::StrAppend(&out, "  ", std::string(Name(step.op)), " to ", ToString(step.to), ", ",
                      HumanBytes(step.recv_bytes_max), " received by the worst device, ", HumanTime(step.time_ns),
                      "\n");
    }
    if (!(plan.source.mesh() == plan.target.mesh())) {
      absl::StrAppend(&out, "  on ", ToString(plan.target.mesh()), "\n");
    }
    absl::StrAppend(&out, "  ", report::WhyChosen(plan), "\n");
  }
  return out;
}

}  // namespace reshard
