// reshard plan MESH FROM TO: what it takes to get from one layout to another.
#include <cstdio>
#include <memory>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "reshard/planner/planner.h"
#include "reshard/planner/relabel.h"
#include "reshard/planner/report.h"
#include "reshard/planner/simulate.h"
#include "tools/reshard/commands.h"
#include "tools/reshard/exit_code.h"

namespace reshard::tool {
namespace {

int BadFlag(std::string_view flag, std::string_view reason) {
  return Fail(kUsage, absl::StrCat(std::string(flag), ": ", std::string(reason)));
}

}  // namespace

std::string RelabelText(const Relabeling& relabeling) {
  const int64_t before = relabeling.bytes_before, now = relabeling.bytes;
  const double saved = before == 0 ? 0.0 : 100.0 * static_cast<double>(before - now) / static_cast<double>(before);
  return absl::StrCat("devices: [", absl::StrJoin(relabeling.devices(), ","), "]\n",
                      absl::StrFormat("%.1f %% saved: all devices together lack %s instead of %s\n", saved,
                                      HumanBytes(now), HumanBytes(before)));
}

void PlanFlags::Declare(CLI::App& app, const char* default_dtype) {
  dtype = default_dtype;
  app.add_option("MESH", mesh, "the mesh, like {X:4,Y:2}");
  app.add_option("FROM", from, "the source layout, like [<X>512, 128]");
  last_positional = app.add_option("TO", to, "the target layout");
  app.add_option("--dtype", dtype, "element type")->capture_default_str();
  app.add_option("--to-mesh", to_mesh, "the target's mesh, when it is another one");
  app.add_option("--shape", shape, "sizes, like 512,128; FROM and TO may then be layout rules");
  app.add_option("--from-format", from_format, "notation of FROM: reshard, dtensor, jax, shardy, hlo")
      ->capture_default_str();
  app.add_option("--to-format", to_format, "notation of TO")->capture_default_str();
  app.add_option("--topology", topology, "flat, dgx-h100, dgx-a100, pcie, cpu, or a JSON file")->capture_default_str();
  app.add_option("--memory-limit", memory_limit, "bytes a device may need at once, like 2GiB");
  app.add_option("--objective", objective, "time, bytes or steps")->capture_default_str();
  app.add_option("--ops", ops, "all, boxes, or a list like Slice,AllGather,AllToAll")->capture_default_str();
}

int PlanFlags::Parse(ProblemText& text, DType& parsed_dtype, PlanOptions& options) const {
  text.mesh = mesh;
  text.from = from;
  text.to = to;
  if (!to_mesh.empty()) text.to_mesh = to_mesh;
  const auto type = ParseDType(dtype);
  if (!type)
    return BadFlag("--dtype",
                   absl::StrCat("\"", Clipped(dtype), "\" is no element type (bf16, f32, i8, f8e4m3fn, ...)"));
  parsed_dtype = *type;
  if (!shape.empty()) {
    auto parsed = ParseShape(shape);
    if (!parsed.ok()) return BadFlag("--shape", std::string(parsed.status().message()));
    text.shape = *std::move(parsed);
  }
  const auto from_notation = ParseNotation(from_format);
  const auto to_notation = ParseNotation(to_format);
  constexpr const char* kNotations = "the notations are reshard, dtensor, jax, shardy, hlo";
  if (!from_notation) return BadFlag("--from-format", kNotations);
  if (!to_notation) return BadFlag("--to-format", kNotations);
  text.from_format = *from_notation;
  text.to_format = *to_notation;
  const auto goal = ParseObjective(objective);
  if (!goal) return BadFlag("--objective", absl::StrCat("\"", Clipped(objective), "\" is none of time, bytes, steps"));
  options.objective = *goal;
  if (absl::Status s = ParseOps(ops, options); !s.ok()) return BadFlag("--ops", std::string(s.message()));
  if (!memory_limit.empty()) {
    const auto limit = ParseBytes(memory_limit);
    if (!limit.ok()) return BadFlag("--memory-limit", std::string(limit.status().message()));
    options.memory_limit_bytes = *limit;
  }
  auto preset = Topology::Preset(topology);
  if (preset.ok()) {
    options.topology = *std::move(preset);
    return kOk;
  }
  const auto content = ReadFile(topology);
  if (!content.ok()) {
    const bool names_a_file = topology.find_first_of("/.") != std::string::npos;
    if (!names_a_file) {
      return BadFlag("--topology", absl::StrCat("\"", Clipped(topology),
                                                "\" is none of flat, dgx-h100, dgx-a100, pcie, cpu, and no file"));
    }
    return Fail(content.status(), Stage::kInput);
  }
  auto parsed = Topology::FromJson(*content, topology);
  if (!parsed.ok()) return Fail(parsed.status(), Stage::kInput);
  options.topology = *std::move(parsed);
  return kOk;
}

namespace {

struct State {
  PlanFlags flags;
  bool explain = false, json = false, pieces = false, simulate = false, coalesce = false, relabel = false;
  std::string svg, batch, bucket;
};

int RunBatch(const State& state, const ProblemText& text, DType dtype, const PlanOptions& options) {
  if (state.explain || state.simulate || !state.svg.empty()) {
    return Fail(kUsage, "--explain, --simulate and --svg do not go with --batch");
  }
  if (!state.coalesce) {
    if (!state.bucket.empty()) return Fail(kUsage, "--bucket goes with --coalesce");
    if (state.relabel) {
      return Fail(kUsage, "--relabel finds one order of devices for all tensors; with --batch it needs --coalesce");
    }
    return PlanEachLine(state.batch, text, dtype, options, state.pieces);
  }
  if (state.pieces) return Fail(kUsage, "--pieces does not go with --coalesce");
  CoalesceFlags flags{{options, std::nullopt}, state.json, state.relabel};
  if (!state.bucket.empty()) {
    const auto bytes = ParseBytes(state.bucket);
    if (!bytes.ok()) return BadFlag("--bucket", std::string(bytes.status().message()));
    flags.options.bucket_bytes = *bytes;
  }
  return PlanCoalesced(state.batch, text, dtype, flags);
}

int Run(const State& state) {
  ProblemText text;
  DType dtype = DType::kBF16;
  PlanOptions options;
  if (int code = state.flags.Parse(text, dtype, options); code != kOk) return code;
  if (!state.batch.empty()) {
    if (state.flags.has_problem())
      return Fail(kUsage, "--batch takes its problems from the file; leave out MESH FROM TO");
    return RunBatch(state, text, dtype, options);
  }
  if (state.coalesce || !state.bucket.empty()) return Fail(kUsage, "--coalesce and --bucket need --batch FILE");
  if (state.simulate && (state.json || state.pieces)) return Fail(kUsage, "--simulate does not go with --json");
  if (!state.flags.has_problem()) return Fail(kUsage, "plan needs MESH FROM TO (or --batch FILE)");

  auto problem = ReadProblem(text);
  if (!problem.ok()) return Fail(problem.status(), Stage::kInput);
  std::string devices;
  if (state.relabel) {
    auto relabelled = Relabel(problem->source, problem->target, dtype);
    if (!relabelled.ok()) return Fail(relabelled.status(), Stage::kPlan);
    auto target = OnMesh(problem->target, relabelled->target_mesh);
    if (!target.ok()) return Fail(target.status(), Stage::kPlan);
    problem->target = *std::move(target);
    devices = RelabelText(*relabelled);
  }
  auto plan = MakePlan(problem->source, problem->target, dtype, options);
  if (!plan.ok()) {
    // Without a memory limit, a limit that was met is one on the input's size.
    const bool over_input_limit = absl::IsResourceExhausted(plan.status()) && !options.memory_limit_bytes;
    return Fail(plan.status(), over_input_limit ? Stage::kInput : Stage::kPlan);
  }
  std::string out;
  if (state.json || state.pieces) {
    auto json = PlanToJson(*plan, state.pieces);
    if (!json.ok()) return Fail(json.status(), Stage::kPlan);
    out = *std::move(json) + "\n";
    if (state.explain) std::fputs((devices + ExplainPlan(*plan)).c_str(), stderr);
  } else {
    out = devices + (state.explain ? ExplainPlan(*plan) : PlanToText(*plan));
    if (state.simulate) {
      const auto simulation = Simulate(*plan);
      if (!simulation.ok()) return Fail(simulation.status(), Stage::kPlan);
      out += SimulationToText(*plan, *simulation);
    }
  }
  if (!state.svg.empty()) {
    if (absl::Status s = WriteFile(state.svg, PlanToSvg(*plan)); !s.ok()) return Fail(s, Stage::kInput);
    std::fprintf(stderr, "wrote %s\n", state.svg.c_str());
  }
  if (std::fwrite(out.data(), 1, out.size(), stdout) != out.size() || std::fflush(stdout) != 0) {
    return Fail(kIo, "cannot write to standard output");
  }
  return kOk;
}

}  // namespace

Action AddPlan(CLI::App& app) {
  auto state = std::make_shared<State>();
  CLI::App& plan = *app.add_subcommand("plan", "Plan the cheapest way from one layout to another");
  state->flags.Declare(plan, "bf16");
  plan.add_flag("--explain", state->explain, "every step, the bound, and what else was tried");
  plan.add_flag("--json", state->json, "one object, schema reshard.plan/1");
  plan.add_flag("--pieces", state->pieces, "JSON with every box that travels");
  plan.add_flag("--simulate", state->simulate, "in text: how long it takes when every message is followed");
  plan.add_option("--svg", state->svg, "write a picture of the plan to this file");
  plan.add_option("--batch", state->batch, "plan one problem a line of this file (- is standard input)");
  plan.add_flag("--coalesce", state->coalesce, "plan the batch as one schedule: shared exchanges, balanced senders");
  plan.add_option("--bucket", state->bucket, "bytes a device that one exchange of the batch may touch, like 1GiB");
  plan.add_flag("--relabel", state->relabel,
                "any device of the target may take any shard: use the order that moves least");
  return [state] { return Run(*state); };
}

}  // namespace reshard::tool
