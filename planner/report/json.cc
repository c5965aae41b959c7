#include <nlohmann/json.hpp>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "reshard/layout/text.h"
#include "reshard/planner/report.h"
#include "reshard/planner/traffic.h"
#include "reshard/planner/version.h"
#include "status/macros.h"

namespace reshard {
namespace {

using Json = nlohmann::ordered_json;

constexpr int64_t kMaxPieces = 10'000'000;

Json AxesJson(const Mesh& mesh, const std::vector<AxisRef>& axes) {
  Json out = Json::array();
  for (const AxisRef& ref : axes) out.push_back(ToString(mesh, ref));
  return out;
}

Json TopologyJson(const Topology& topology) {
  Json levels = Json::array();
  for (const Topology::Level& level : topology.levels) {
    // Exact: both were read from decimals with at most nine and three digits after the point.
    const double gb = static_cast<double>(level.bytes_per_second) / 1e9;
    const double us = static_cast<double>(level.latency_ns) / 1e3;
    Json entry;
    entry["devices"] = level.devices == 0 ? Json(nullptr) : Json(level.devices);
    entry["gb_per_s"] = gb;
    entry["latency_us"] = us;
    if (level.nics != 0) entry["nics"] = level.nics;
    levels.push_back(std::move(entry));
  }
  return Json{{"name", topology.name}, {"levels", std::move(levels)}};
}

Json OptionsJson(const PlanOptions& options) {
  Json ops = Json::array();
  for (int i = 0; i < kNumOps; ++i) {
    if (options.ops.contains(static_cast<Op>(i))) ops.push_back(std::string(Name(static_cast<Op>(i))));
  }
  Json out;
  out["objective"] = std::string(Name(options.objective));
  out["ops"] = std::move(ops);
  if (options.boxes_only) out["boxes"] = true;
  out["memory_limit_bytes"] = options.memory_limit_bytes ? Json(*options.memory_limit_bytes) : Json(nullptr);
  out["topology"] = TopologyJson(options.topology);
  if (!options.overlap) out["overlap"] = false;
  return out;
}

// Only where there is more than one level: the figures of a single one are those of the step.
void AddLevels(const std::vector<LevelFigures>& levels, Json& out) {
  if (levels.size() < 2) return;
  out["levels"] = Json::array();
  for (const LevelFigures& level : levels) {
    out["levels"].push_back(Json{{"recv_bytes_max", level.recv_bytes_max},
                                 {"send_bytes_max", level.send_bytes_max},
                                 {"recv_bytes_total", level.recv_bytes_total},
                                 {"nic_bytes_max", level.nic_bytes_max},
                                 {"peers_max", level.peers_max}});
  }
}

Json StepJson(const Step& step) {
  Json out;
  out["op"] = std::string(Name(step.op));
  out["axes"] = AxesJson(step.from.mesh(), step.axes);
  out["from"] = ToString(step.from);
  out["to"] = ToString(step.to);
  if (step.crosses_meshes()) {
    out["from_mesh"] = ToString(step.from.mesh());
    out["to_mesh"] = ToString(step.to.mesh());
  }
  out["group_size"] = step.group_size;
  out["recv_bytes_max"] = step.recv_bytes_max;
  out["recv_bytes_total"] = step.recv_bytes_total;
  out["send_bytes_max"] = step.send_bytes_max;
  out["local_bytes_before_max"] = step.local_bytes_before_max;
  out["local_bytes_after_max"] = step.local_bytes_after_max;
  out["peers_max"] = step.peers_max;
  if (step.rounds > 1) out["rounds"] = step.rounds;
  out["time_ns"] = step.time_ns;
  if (step.first_holder != 0) out["first_holder"] = step.first_holder;
  AddLevels(step.levels, out);
  return out;
}

void AppendList(std::string& out, const std::vector<int64_t>& values) {
  absl::StrAppend(&out, "[", absl::StrJoin(values, ","), "]");
}

// The boxes of all messages of `schedule`, or more than `most`: counted before anything is written.
int64_t CountPieces(const TransferSchedule& schedule, int64_t most) {
  if (schedule.Figures().messages_total > most) return most + 1;  // a message is at least one piece
  int64_t pieces = 0;
  for (int64_t device : schedule.Devices()) {
    for (const Message& message : schedule.Receives(device)) {
      if (message.sender == message.receiver) continue;
      int64_t boxes = 1;
      for (const auto& runs : message.runs) {
        const auto count = static_cast<int64_t>(runs.size());
        if (count > 0 && boxes > (most - pieces) / count) return most + 1;
        boxes *= count;
      }
      pieces += boxes;
    }
  }
  return pieces;
}

// One entry per contiguous box of the tensor, in order of step, receiver, sender, offset. Written as text at once:
// millions of them would be gigabytes as JSON values.
absl::StatusOr<std::string> PiecesText(const Plan& plan) {
  std::vector<std::unique_ptr<TransferSchedule>> schedules(plan.steps.size());
  int64_t left = kMaxPieces;
  for (size_t s = 0; s < plan.steps.size(); ++s) {
    if (plan.steps[s].op == Op::kSlice) continue;
    ASSIGN_OR_RETURN(schedules[s], TransferSchedule::Create(plan.steps[s], plan.options.topology));
    left -= CountPieces(*schedules[s], left);
    if (left < 0) return absl::ResourceExhaustedError(absl::StrCat("the plan has more than ", kMaxPieces, " pieces"));
  }
  std::string out = "[";
  for (size_t s = 0; s < schedules.size(); ++s) {
    if (schedules[s] == nullptr) continue;
    for (int64_t device : schedules[s]->Devices()) {
      for (const Message& message : schedules[s]->Receives(device)) {
        if (message.sender == message.receiver) continue;
        std::vector<size_t> at(message.runs.size(), 0);
        std::vector<int64_t> offset(at.size()), size(at.size());
        while (true) {
          for (size_t d = 0; d < at.size(); ++d) {
            offset[d] = message.runs[d][at[d]].global;
            size[d] = message.runs[d][at[d]].length;
          }
          absl::StrAppend(&out, out.size() > 1 ? "," : "", "[", s, ",", message.sender, ",", message.receiver, ",");
          AppendList(out, offset);
          out += ",";
          AppendList(out, size);
          out += "]";
          size_t d = at.size();
          while (d > 0 && ++at[d - 1] == message.runs[d - 1].size()) at[--d] = 0;
          if (d == 0) break;
        }
      }
    }
  }
  return out + "]";
}

}  // namespace

absl::StatusOr<std::string> PlanToJson(const Plan& plan, bool with_pieces) {
  Json out;
  out["schema"] = "reshard.plan/1";
  out["reshard_version"] = Version();
  out["mesh"] = ToString(plan.source.mesh());
  if (!(plan.source.mesh() == plan.target.mesh())) out["target_mesh"] = ToString(plan.target.mesh());
  out["world"] = plan.world();
  out["dtype"] = std::string(Name(plan.dtype));
  out["shape"] = plan.source.shape();
  out["source"] = ToString(plan.source);
  out["target"] = ToString(plan.target);
  out["options"] = OptionsJson(plan.options);
  out["steps"] = Json::array();
  for (const Step& step : plan.steps) out["steps"].push_back(StepJson(step));
  if (plan.chunks.count > 1) {
    out["chunks"] = Json{{"count", plan.chunks.count}, {"dimension", plan.chunks.dim}, {"block", plan.chunks.block}};
  }
  out["totals"] = Json{{"recv_bytes_max", plan.totals.recv_bytes_max},
                       {"recv_bytes_total", plan.totals.recv_bytes_total},
                       {"intermediate_bytes_max", plan.totals.intermediate_bytes_max},
                       {"peak_bytes", plan.totals.peak_bytes},
                       {"time_ns", plan.totals.time_ns}};
  AddLevels(plan.totals.levels, out["totals"]);
  out["bounds"] = Json{{"recv_bytes_max", plan.bounds.recv_bytes_max},
                       {"recv_bytes_total", plan.bounds.recv_bytes_total},
                       {"intermediate_bytes_max", plan.bounds.intermediate_bytes_max}};
  if (!plan.bounds.levels.empty()) {
    out["bounds"]["levels"] = Json::array();
    for (const LevelBound& level : plan.bounds.levels) {
      out["bounds"]["levels"].push_back(Json{{"island_recv_bytes_max", level.island_recv_bytes_max},
                                             {"nic_recv_bytes_max", level.nic_recv_bytes_max},
                                             {"nic_bytes_max", level.nic_bytes_max},
                                             {"recv_bytes_total", level.recv_bytes_total}});
    }
  }
  out["certificate"] = Json{{"kind", std::string(Name(plan.certificate.kind))}, {"detail", plan.certificate.detail}};
  out["alternatives"] = Json::array();
  for (const Alternative& alternative : plan.alternatives) {
    Json ops = Json::array();
    for (const Step& step : alternative.steps) ops.push_back(std::string(Name(step.op)));
    Json entry{{"ops", std::move(ops)},
               {"recv_bytes_max", alternative.totals.recv_bytes_max},
               {"intermediate_bytes_max", alternative.totals.intermediate_bytes_max},
               {"time_ns", alternative.totals.time_ns},
               {"rejected_because", alternative.rejected_because}};
    if (alternative.chunks.count > 1) entry["chunks"] = alternative.chunks.count;
    out["alternatives"].push_back(std::move(entry));
  }
  std::string text = out.dump(-1, ' ', false, Json::error_handler_t::replace);
  if (with_pieces) {
    ASSIGN_OR_RETURN(auto pieces, PiecesText(plan));
    text.pop_back();
    absl::StrAppend(&text, ",\"pieces\":", pieces, "}");
  }
  return text;
}

}  // namespace reshard
