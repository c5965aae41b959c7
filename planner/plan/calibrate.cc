#include "reshard/planner/calibrate.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "status/macros.h"

namespace reshard {
namespace {

constexpr int64_t kFewBytes = 8;  // to each peer

// Every device holds one row, and afterwards one block of columns of the rows of its group: the messages are
// contiguous.
absl::StatusOr<Probe> MakeProbe(const CalibratedJob& job, bool is_between, int64_t to_each, bool is_large) {
  const int64_t group = is_between ? job.nodes : job.devices;
  ASSIGN_OR_RETURN(const Mesh mesh, Mesh::Create({{"node", job.nodes}, {"device", job.devices}}));
  const Factor node = Factor::Along({0, 1, job.nodes}), device = Factor::Along({1, 1, job.devices});
  // The axes that stay cut the rows first.
  const Factor& stays = is_between ? device : node;
  const Factor& moves = is_between ? node : device;
  const int64_t rows = job.nodes * job.devices, columns = group * to_each;
  ASSIGN_OR_RETURN(const Layout source, Layout::Create(mesh, {{rows, {stays, moves}}, {columns, {}}}));
  ASSIGN_OR_RETURN(const Layout target, Layout::Create(mesh, {{rows, {stays}}, {columns, {moves}}}));
  return Probe{{source, target, DType::kU8}, is_large, is_between, group - 1, to_each * (group - 1)};
}

// A call that has nothing to move.
absl::StatusOr<Probe> MakeIdleProbe(const CalibratedJob& job) {
  ASSIGN_OR_RETURN(Probe probe, MakeProbe(job, job.devices == 1, kFewBytes, false));
  probe.problem.target = probe.problem.source;
  probe.peers = probe.received = 0;
  return probe;
}

}  // namespace

absl::StatusOr<std::vector<Probe>> CalibrationProbes(const CalibratedJob& job) {
  if (job.nodes < 1 || job.devices < 1 || job.nodes > kMaxDevices / job.devices) {
    return absl::InvalidArgumentError(
        absl::StrCat("there cannot be ", job.nodes, " nodes of ", job.devices, " devices"));
  }
  if (job.nodes * job.devices < 2) {
    return absl::InvalidArgumentError("calibration needs at least two ranks: one alone has no network");
  }
  constexpr int64_t kLeast = int64_t{1} << 16, kMost = int64_t{1} << 36;
  if (job.bytes < kLeast || job.bytes > kMost) {
    return absl::InvalidArgumentError(
        absl::StrCat("the size must be from ", kLeast, " to ", kMost, " bytes, not ", job.bytes));
  }
  std::vector<Probe> probes;
  ASSIGN_OR_RETURN(Probe idle, MakeIdleProbe(job));
  probes.push_back(std::move(idle));
  for (const bool is_between : {false, true}) {
    const int64_t group = is_between ? job.nodes : job.devices;
    if (group == 1) continue;
    ASSIGN_OR_RETURN(Probe small, MakeProbe(job, is_between, kFewBytes, false));
    ASSIGN_OR_RETURN(Probe large, MakeProbe(job, is_between, std::max(job.bytes / group, kFewBytes), true));
    probes.push_back(std::move(small));
    probes.push_back(std::move(large));
  }
  return probes;
}

absl::StatusOr<Topology> FitTopology(const CalibratedJob& job, absl::Span<const double> seconds) {
  ASSIGN_OR_RETURN(const std::vector<Probe> probes, CalibrationProbes(job));
  if (seconds.size() != probes.size()) {
    return absl::InvalidArgumentError(absl::StrCat(seconds.size(), " times for ", probes.size(), " probes"));
  }
  for (const double time : seconds) {
    if (!(time > 0) || !std::isfinite(time)) return absl::InvalidArgumentError(absl::StrCat(time, " s is not a time"));
  }
  Topology topology{"measured", {}};
  for (size_t i = 1; i + 1 < probes.size(); i += 2) {
    const Probe& large = probes[i + 1];
    // A few bytes flow at once: what is left is one latency for each message, and one until the last has arrived. Noise
    // must not make it zero.
    const double latency = std::max(seconds[i] - seconds[0], seconds[i] / 100) / static_cast<double>(1 + large.peers);
    // Bytes flow while messages are posted, except during two latencies. Noise must not make bandwidth infinite.
    const double flowing = std::max(seconds[i + 1] - seconds[0] - 2 * latency, seconds[i + 1] / 16);
    Topology::Level level;
    level.devices = large.is_between || job.nodes == 1 ? 0 : job.devices;
    level.latency_ns = std::llround(latency * 1e9);
    level.bytes_per_second = std::max<int64_t>(1, std::llround(static_cast<double>(large.received) / flowing));
    topology.levels.push_back(level);
  }
  RETURN_IF_ERROR(topology.Validate());
  return topology;
}

std::string TopologyToJson(const Topology& topology) {
  std::string out = "{\"levels\":[";
  for (size_t i = 0; i < topology.levels.size(); ++i) {
    const Topology::Level& level = topology.levels[i];
    absl::StrAppend(&out, i == 0 ? "{" : ",{");
    if (level.devices > 0) absl::StrAppend(&out, "\"devices\":", level.devices, ",");
    absl::StrAppendFormat(&out, "\"gb_per_s\":%.4g,\"latency_us\":%.4g",
                          static_cast<double>(level.bytes_per_second) / 1e9,
                          static_cast<double>(level.latency_ns) / 1e3);
    if (level.nics > 0) absl::StrAppend(&out, ",\"nics\":", level.nics);
    out += "}";
  }
  return out + "]}\n";
}

}  // namespace reshard
