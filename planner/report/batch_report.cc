// Batches for people and programs.
#include <algorithm>
#include <nlohmann/json.hpp>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "reshard/planner/batch.h"
#include "reshard/planner/report.h"
#include "reshard/planner/version.h"
#include "status/macros.h"

namespace reshard {
namespace {

using Json = nlohmann::ordered_json;

std::string Text(const Json& json) { return json.dump(-1, ' ', false, Json::error_handler_t::replace); }

// The options as plans print them: of a plan that does nothing.
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

std::string Counted(int64_t count, const char* one) { return absl::StrCat(count, " ", one, count == 1 ? "" : "s"); }

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
    absl::StrAppend(&out, "level ", level, ": a device receives at most ", HumanBytes(figures.recv_bytes_max),
                    " and sends at most ", HumanBytes(figures.send_bytes_max), ", the busiest link carries ",
                    HumanBytes(figures.nic_bytes_max), ", all together ", HumanBytes(figures.recv_bytes_total), "\n");
  }
  int64_t exchanges = 0;
  for (const BatchBucket& bucket : batch.buckets) exchanges += static_cast<int64_t>(bucket.steps.size());
  absl::StrAppend(&out, Counted(exchanges, "exchange"), ", estimated ", HumanTime(totals.time_ns),
                  "; the largest bucket needs ", HumanBytes(totals.peak_bytes), " a device at once\n");
  return out;
}

}  // namespace reshard
