// mpirun reshard calibrate: measures the network between the processes of an MPI program.
#include <memory>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "reshard/planner/option_text.h"
#include "reshard/planner/units.h"
#include "tools/reshard/commands.h"
#include "tools/reshard/exit_code.h"
#include "tools/reshard/run/calibrate_command.h"
#include "tools/reshard/terminal.h"

namespace reshard::tool {
namespace {

struct CalibrateFlags {
  std::string nodes, size = "64MiB";
  CalibrateCommand command;
};

int Calibrate(CalibrateFlags& flags) {
  if (!flags.nodes.empty()) {
    const auto sizes = ParseShape(flags.nodes);
    if (!sizes.ok() || sizes->size() != 2) return Fail(kUsage, "--nodes takes nodes and devices of each, like 4x8");
    flags.command.nodes = {(*sizes)[0], (*sizes)[1]};
  }
  const auto bytes = ParseBytes(flags.size);
  if (!bytes.ok()) return Fail(kUsage, absl::StrCat("--size: ", bytes.status().message()));
  flags.command.bytes = *bytes;
  if (flags.command.repeat < 1 || flags.command.repeat > 1'000'000) {
    return Fail(kUsage, "--repeat must be between 1 and 1000000");
  }
  return CalibrateOverMpi(flags.command);
}

std::string CalibrationText(const CalibratedJob& job, absl::Span<const Probe> probes, absl::Span<const double> seconds,
                            const Topology& topology) {
  std::string out =
      absl::StrFormat("# %d node%s of %d processes\n#%14s %10s %6s %12s %12s\n", job.nodes, job.nodes == 1 ? "" : "s",
                      job.devices, "links", "received", "peers", "time", "GB/s");
  for (size_t i = 0; i < probes.size(); ++i) {
    const Probe& probe = probes[i];
    const std::string rate =
        probe.peers == 0 ? "-" : absl::StrFormat("%.3f", static_cast<double>(probe.received) / seconds[i] / 1e9);
    absl::StrAppendFormat(&out, "%15s %10s %6d %12s %12s\n",
                          probe.peers == 0   ? "no messages"
                          : probe.is_between ? "between nodes"
                                             : "inside nodes",
                          HumanBytes(probe.received), probe.peers, HumanTime(static_cast<int64_t>(seconds[i] * 1e9)),
                          rate);
  }
  return out + TopologyToJson(topology);
}

}  // namespace

int PrintCalibration(const CalibrateCommand& command, const CalibratedJob& job, absl::Span<const Probe> probes,
                     absl::Span<const double> seconds, const Topology& topology) {
  if (!command.output.empty()) {
    const absl::Status written = WriteFile(command.output, TopologyToJson(topology));
    if (!written.ok()) return Fail(written, Stage::kInput);
    Note(absl::StrCat("reshard: wrote ", command.output, "; plan with --topology ", command.output));
  }
  return Print(command.json ? TopologyToJson(topology) : CalibrationText(job, probes, seconds, topology));
}

Action AddCalibrate(CLI::App& app) {
  auto flags = std::make_shared<CalibrateFlags>();
  CLI::App& calibrate = *app.add_subcommand("calibrate", "Measure the network, and write it as a topology");
  calibrate.group(kOfLayouts);
  calibrate.option_defaults()->group("What is measured");
  calibrate
      .add_option("--nodes", flags->nodes,
                  "how many nodes of how many processes there are, like 4x8 (default: the hosts of the processes)")
      ->type_name("NxD");
  calibrate.add_option("--size", flags->size, "what each process holds when bandwidth is measured")
      ->capture_default_str()
      ->type_name("BYTES");
  calibrate
      .add_option("--repeat", flags->command.repeat,
                  "number of timed executions of which the median counts; ten times as many of few bytes")
      ->capture_default_str()
      ->type_name("N");
  calibrate.option_defaults()->group("Output");
  calibrate.add_option("--output,-o", flags->command.output, "write the topology to this file, for --topology")
      ->type_name("FILE");
  calibrate.add_flag("--json", flags->command.json, "print the topology alone");
  calibrate.footer(
      "# On four hosts of eight; then a plan for them\n"
      "# mpirun -n 32 reshard calibrate --output network.json\n"
      "reshard plan '{dp:4,tp:8}' '[<dp>64, 64]' '[64, <tp>64]' --topology dgx-h100\n");
  return [flags] { return Calibrate(*flags); };
}

}  // namespace reshard::tool
