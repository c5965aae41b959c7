#include <algorithm>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "reshard/layout/text.h"
#include "reshard/planner/report.h"
#include "reshard/planner/version.h"
#include "reshard/runtime/executor.h"
#include "tools/reshard/run/run_command.h"

namespace reshard::tool {
namespace {

nlohmann::ordered_json JsonOf(const Plan& plan, const RunReport& report, const RunCommand& command) {
  nlohmann::ordered_json out;
  out["schema"] = "reshard.run/1";
  out["reshard_version"] = Version();
  out["mesh"] = ToString(plan.source.mesh());
  if (!(plan.source.mesh() == plan.target.mesh())) out["target_mesh"] = ToString(plan.target.mesh());
  out["dtype"] = std::string(Name(plan.dtype));
  out["shape"] = plan.source.shape();
  out["source"] = ToString(plan.source);
  out["target"] = ToString(plan.target);
  out["over"] = command.over;
  out["ranks"] = report.ranks;
  out["ops"] = nlohmann::ordered_json::array();
  for (const Step& step : plan.steps) out["ops"].push_back(std::string(Name(step.op)));
  out["repeat"] = command.repeat;
  out["seconds_median"] = report.seconds_median;
  out["bytes_moved"] = report.bytes_moved;
  out["gb_per_s"] = report.gb_per_s;
  out["memcpy_ratio"] = report.memcpy_ratio;
  out["recv_bytes_max"] = report.received_bytes_max;
  out["recv_bytes_total"] = report.received_bytes_total;
  if (command.verify) {
    out["verified"] = report.verified;
  } else {
    out["verified"] = nullptr;
  }
  out["elements_checked"] = report.elements_checked;
  out["mismatches"] = report.mismatches;
  return out;
}

std::string VerdictLine(const RunReport& report, const RunCommand& command) {
  if (!command.verify) return "not verified\n";
  if (report.verified) return absl::StrCat("verified: ", report.elements_checked, " elements checked, all correct\n");
  return absl::StrCat("WRONG: ", report.mismatches, " of ", report.elements_checked,
                      " elements; first: ", report.first_mismatch, "\n");
}

// GB/s
double Bandwidth(int64_t bytes, double seconds) { return seconds > 0 ? static_cast<double>(bytes) / seconds / 1e9 : 0; }

}  // namespace

std::string Printed(const Plan& plan, const RunReport& report, const RunCommand& command) {
  if (command.json) return JsonOf(plan, report, command).dump() + "\n";
  std::string out = PlanToText(plan);
  absl::StrAppendFormat(&out,
                        "ran on %d ranks: median %.3g ms of %d, %s moved, %.2f GB/s, %.2fx memcpy of the same bytes\n",
                        report.ranks, report.seconds_median * 1e3, command.repeat, HumanBytes(report.bytes_moved),
                        report.gb_per_s, report.memcpy_ratio);
  absl::StrAppend(&out, "the busiest rank received ", HumanBytes(report.received_bytes_max), ", as planned\n");
  return out + VerdictLine(report, command);
}

std::string Printed(const Plan& plan, const MpiReport& report, const RunCommand& command) {
  const RunReport& run = report.run;
  const double algbw = Bandwidth(report.size_bytes, run.seconds_median);
  const double busbw = Bandwidth(run.received_bytes_max, run.seconds_median);
  if (command.json) {
    nlohmann::ordered_json out = JsonOf(plan, run, command);
    out["memcpy_ratio"] = nullptr;
    out["processes"] = report.processes;
    out["size_bytes"] = report.size_bytes;
    out["algbw"] = algbw;
    out["busbw"] = busbw;
    return out.dump() + "\n";
  }
  std::string out = PlanToText(plan);
  absl::StrAppendFormat(&out, "# %d processes of an MPI program, median of %d, agreement %s\n", report.processes,
                        command.repeat, DefaultAgreement() == Agreement::kOff ? "off" : "included");
  absl::StrAppend(&out, "# size: the larger of a rank's source and target; busbw: what the busiest rank received\n");
  absl::StrAppendFormat(&out, "#%11s %12s %8s %9s %8s %8s %7s\n", "size", "count", "type", "time", "algbw", "busbw",
                        "#wrong");
  absl::StrAppendFormat(&out, "#%11s %12s %8s %9s %8s %8s %7s\n", "(B)", "(elements)", "", "(us)", "(GB/s)", "(GB/s)",
                        "");
  absl::StrAppendFormat(&out, "%12d %12d %8s %9.1f %8.2f %8.2f %7s\n", report.size_bytes,
                        report.size_bytes / SizeOf(plan.dtype), std::string(Name(plan.dtype)), run.seconds_median * 1e6,
                        algbw, busbw, command.verify ? absl::StrCat(run.mismatches) : "N/A");
  return out + VerdictLine(run, command);
}

}  // namespace reshard::tool
