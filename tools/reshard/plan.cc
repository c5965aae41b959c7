// reshard plan MESH FROM TO: prints the cheapest plan from one layout to another.
#include <algorithm>
#include <cstdio>
#include <memory>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "reshard/layout/text.h"
#include "reshard/planner/html.h"
#include "reshard/planner/option_text.h"
#include "reshard/planner/planner.h"
#include "reshard/planner/relabel.h"
#include "reshard/planner/report.h"
#include "reshard/planner/simulate.h"
#include "tools/reshard/commands.h"
#include "tools/reshard/exit_code.h"
#include "tools/reshard/terminal.h"

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
                      absl::StrFormat("%.1f %% saved: all devices together receive %s instead of %s\n", saved,
                                      HumanBytes(now), HumanBytes(before)));
}

int WritePage(const std::string& path, const absl::StatusOr<std::string>& page) {
  if (!page.ok()) return Fail(page.status(), Stage::kPlan);
  if (absl::Status s = WriteFile(path, *page); !s.ok()) return Fail(s, Stage::kInput);
  Note("wrote " + path);
  return kOk;
}

std::string NotationValues() { return absl::StrJoin(absl::StrSplit(KnownNotations(), ", "), "|"); }

void PlanFlags::Declare(CLI::App& app, const char* default_dtype) {
  dtype = default_dtype;
  app.add_option("MESH", mesh, "the mesh, like {X:4,Y:2}");
  app.add_option("FROM", from, "the source layout, like [<X>512, 128]");
  last_positional = app.add_option("TO", to, "the target layout");
  app.option_defaults()->group("What moves");
  app.add_option("--dtype", dtype, "element type")->capture_default_str()->type_name("DTYPE");
  app.add_option("--to-mesh", to_mesh, "mesh of the target, if it is a different one")->type_name("MESH");
  app.add_option("--shape", shape, "global sizes, like 512,128; FROM and TO may then be layout rules")
      ->type_name("SIZES");
  app.add_option("--format", format, "notation of FROM and TO")->type_name(NotationValues());
  app.add_option("--from-format", from_format, "notation of FROM, if it is another one")->type_name(NotationValues());
  app.add_option("--to-format", to_format, "notation of TO, if it is another one")->type_name(NotationValues());
  app.option_defaults()->group("Network and goal");
  app.add_option("--topology", topology, "the network: a preset, or a JSON file as `reshard help topologies` has it")
      ->capture_default_str()
      ->type_name("flat|dgx-a100|dgx-h100|dgx-h200|dgx-b200|gb200|mi300x|pcie|cpu|FILE");
  app.add_option("--nodes", nodes,
                 "how many nodes of how many devices there are, like 8x8, in place of the topology's domains")
      ->type_name("NxD");
  app.add_option("--memory-limit", memory_limit, "most bytes that a device may need at once, like 2GiB")
      ->type_name("BYTES");
  app.add_option("--objective", objective, "what to minimize")->capture_default_str()->type_name("time|bytes|steps");
  app.add_option("--ops", ops, "all, boxes (contiguous intermediates, no Exchange), or a list like Slice,AllGather")
      ->capture_default_str()
      ->type_name("all|boxes|LIST");
  app.add_flag("--no-overlap", no_overlap, "run steps one after the other, not overlapped on chunks of the tensor");
}

int PlanFlags::Parse(ProblemText& text, DType& parsed_dtype, PlanOptions& options) const {
  text.mesh = mesh;
  text.from = from;
  text.to = to;
  if (!to_mesh.empty()) text.to_mesh = to_mesh;
  const auto type = FindDType(dtype);
  if (!type) {
    return BadFlag("--dtype", absl::StrCat("\"", Clipped(dtype), "\" is not an element type: ", KnownDTypes()));
  }
  parsed_dtype = *type;
  if (!shape.empty()) {
    auto parsed = ParseShape(shape);
    if (!parsed.ok()) return BadFlag("--shape", std::string(parsed.status().message()));
    text.shape = *std::move(parsed);
  }
  const std::string both = format.value_or(Name(Notation::kReshard));
  if (!ParseNotation(both)) return BadFlag("--format", absl::StrCat("must be one of ", KnownNotations()));
  const auto from_notation = ParseNotation(from_format.value_or(both));
  const auto to_notation = ParseNotation(to_format.value_or(both));
  if (!from_notation) return BadFlag("--from-format", absl::StrCat("must be one of ", KnownNotations()));
  if (!to_notation) return BadFlag("--to-format", absl::StrCat("must be one of ", KnownNotations()));
  text.from_format = *from_notation;
  text.to_format = *to_notation;
  const auto goal = ParseObjective(objective);
  if (!goal) return BadFlag("--objective", absl::StrCat("\"", Clipped(objective), "\" is not time, bytes or steps"));
  options.objective = *goal;
  options.overlap = !no_overlap;
  if (absl::Status s = ParseOps(ops, options); !s.ok()) return BadFlag("--ops", std::string(s.message()));
  if (!memory_limit.empty()) {
    const auto limit = ParseBytes(memory_limit);
    if (!limit.ok()) return BadFlag("--memory-limit", std::string(limit.status().message()));
    options.memory_limit_bytes = *limit;
  }
  if (const int bad = ReadTopology(options.topology); bad != kOk) return bad;
  return ApplyNodes(text, options.topology);
}

// The topology of --topology.
int PlanFlags::ReadTopology(Topology& out) const {
  auto preset = Topology::Preset(topology);
  if (preset.ok()) {
    out = *std::move(preset);
    return kOk;
  }
  const auto content = ReadFile(topology);
  if (!content.ok()) {
    const bool names_a_file = topology.find_first_of("/.") != std::string::npos;
    if (!names_a_file) {
      const absl::Status unknown = Topology::Preset(Clipped(topology)).status();
      return BadFlag("--topology", absl::StrCat(unknown.message(), ", and there is no such file"));
    }
    return Fail(content.status(), Stage::kInput);
  }
  auto parsed = Topology::FromJson(*content, topology);
  if (!parsed.ok()) return Fail(parsed.status(), Stage::kInput);
  out = *std::move(parsed);
  return kOk;
}

// --nodes NxD: domains of D, and N * D devices in every mesh.
int PlanFlags::ApplyNodes(const ProblemText& text, Topology& out) const {
  if (!nodes) return kOk;
  const auto sizes = ParseShape(*nodes);
  if (!sizes.ok() || sizes->size() != 2) {
    return BadFlag("--nodes",
                   absl::StrCat("\"", Clipped(*nodes), "\" is not a number of nodes and one of devices, like 8x8"));
  }
  if (absl::Status s = out.SetNodes((*sizes)[0], (*sizes)[1]); !s.ok()) {
    return BadFlag("--nodes", std::string(s.message()));
  }
  for (const std::string& mesh_text : {text.mesh, text.to_mesh.value_or(text.mesh)}) {
    const auto used = ParseMesh(mesh_text);
    if (!used.ok() || used->world() <= (*sizes)[0] * (*sizes)[1]) continue;  // a later check says what is wrong with it
    return BadFlag("--nodes", absl::StrCat(*nodes, " are ", (*sizes)[0] * (*sizes)[1], " devices, but ",
                                           ToString(*used), " has one with the number ", used->world() - 1));
  }
  return kOk;
}

namespace {

struct PlanCommand {
  PlanFlags flags;
  bool explain = false, json = false, pieces = false, simulate = false, coalesce = false, relabel = false;
  std::string svg, html, batch, bucket;
  ModelFlags model;  // MODEL itself is the first positional argument

  bool has_model() const { return !model.from.empty() || !model.to.empty() || !model.mesh.empty(); }
};

int RunBatch(const PlanCommand& state, const ProblemText& text, DType dtype, const PlanOptions& options) {
  if (state.simulate || !state.svg.empty()) {
    return Fail(kUsage, "--simulate and --svg are for the plan of one tensor");
  }
  if (!state.coalesce && !state.has_model()) {
    if (state.explain) return Fail(kUsage, "--explain with --batch requires --coalesce: one schedule for all of them");
    if (!state.bucket.empty()) return Fail(kUsage, "--bucket requires --coalesce");
    if (state.relabel) {
      return Fail(kUsage, "--relabel finds one order of devices for all tensors; with --batch it requires --coalesce");
    }
    return PlanEachLine(state.batch, text, dtype, options, {state.pieces, state.html});
  }
  if (state.pieces) return Fail(kUsage, "--pieces is for the plan of one tensor");
  if (state.json && state.explain) return Fail(kUsage, "--json and --explain: give one of them");
  ScheduleFlags flags{{options, std::nullopt}, state.json, state.explain, state.relabel, state.html};
  if (!state.bucket.empty()) {
    const auto bytes = ParseBytes(state.bucket);
    if (!bytes.ok()) return BadFlag("--bucket", std::string(bytes.status().message()));
    flags.options.bucket_bytes = *bytes;
  }
  if (state.has_model()) return PlanModel(state.flags.mesh, state.model, dtype, flags);
  return PlanCoalesced(state.batch, text, dtype, flags);
}

// MODEL --mesh MESH --from RULES --to RULES.
int RunModel(PlanCommand state) {
  if (state.flags.mesh.empty() || !state.flags.from.empty() || !state.batch.empty()) {
    return Fail(kUsage,
                "--mesh, --from and --to are for a model, as in: reshard plan MODEL --mesh '{dp:4,tp:8}' --from fsdp "
                "--to tp:llama; for one tensor give MESH FROM TO without flags");
  }
  PlanFlags flags = state.flags;
  flags.mesh = state.model.mesh;
  state.model.to_mesh = state.flags.to_mesh;
  ProblemText text;
  DType dtype = DType::kBF16;
  PlanOptions options;
  if (int code = flags.Parse(text, dtype, options); code != kOk) return code;
  return RunBatch(state, text, dtype, options);
}

int RunPlan(const PlanCommand& state) {
  if (state.has_model()) return RunModel(state);
  ProblemText text;
  DType dtype = DType::kBF16;
  PlanOptions options;
  if (int code = state.flags.Parse(text, dtype, options); code != kOk) return code;
  if (!state.batch.empty()) {
    if (state.flags.has_problem())
      return Fail(kUsage, "--batch reads its problems from the file; leave out MESH FROM TO");
    return RunBatch(state, text, dtype, options);
  }
  if (state.coalesce || !state.bucket.empty())
    return Fail(kUsage, "--coalesce and --bucket require --batch FILE, or a model");
  if (state.simulate && (state.json || state.pieces))
    return Fail(kUsage, "--simulate cannot be used with --json or --pieces");
  if (!state.flags.has_problem()) {
    return Fail(kUsage, "plan requires MESH FROM TO, or MODEL --mesh MESH --from RULES --to RULES, or --batch FILE");
  }

  auto problem = ReadProblem(text, dtype, "--to-mesh");
  if (!problem.ok()) return Fail(problem.status(), Stage::kInput);
  std::string devices;
  if (state.relabel) {
    auto relabelled = Relabel(*problem);
    if (!relabelled.ok()) return Fail(relabelled.status(), Stage::kPlan);
    auto target = OnMesh(problem->target, relabelled->target_mesh);
    if (!target.ok()) return Fail(target.status(), Stage::kPlan);
    problem->target = *std::move(target);
    devices = RelabelText(*relabelled);
  }
  auto plan = MakePlan(*problem, options);
  if (!plan.ok()) {
    // Without --memory-limit the only limits are those on the size of the input, so the input is at fault.
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
    // What --topology means for these devices: ids and the order of axes decide, which no cluster confirms.
    if (!state.explain) out += DescribeDomains(*plan);
    if (state.simulate) {
      const auto simulation = Simulate(*plan);
      if (!simulation.ok()) return Fail(simulation.status(), Stage::kPlan);
      out += SimulationToText(*plan, *simulation);
    }
  }
  if (!state.svg.empty()) {
    if (const int code = WritePage(state.svg, PlanToSvg(*plan)); code != kOk) return code;
  }
  if (!state.html.empty()) {
    if (const int code = WritePage(state.html, PlanToHtml(*plan)); code != kOk) return code;
  }
  return Print(out);
}

}  // namespace

Action AddPlan(CLI::App& app) {
  auto state = std::make_shared<PlanCommand>();
  CLI::App& plan = *app.add_subcommand("plan", "Find the cheapest plan from one layout to another");
  plan.group(kOfLayouts);
  state->flags.Declare(plan, "bf16");
  plan.add_flag("--relabel", state->relabel,
                "let any device of the target take any shard, and find the order that moves the fewest bytes");
  plan.option_defaults()->group("A model, or many tensors");
  plan.add_option(
          "--mesh", state->model.mesh,
          "plan a whole model, over this mesh: the first argument is a checkpoint, a Hugging Face folder, or names and "
          "shapes as JSON")
      ->type_name("MESH");
  plan.add_option("--from", state->model.from,
                  "where its tensors are: a file of rules, one layout rule for all, or schemes: fsdp, tp:llama, ep, "
                  "replicate, joined by +")
      ->type_name("RULES");
  plan.add_option("--to", state->model.to, "where they go, in the same form")->type_name("RULES");
  plan.add_option("--batch", state->batch, "plan one problem per line of this file (- is standard input)")
      ->type_name("FILE");
  plan.add_flag("--coalesce", state->coalesce,
                "plan the batch as one schedule, with shared exchanges and balanced senders");
  plan.add_option("--bucket", state->bucket, "most bytes per device in one exchange of the batch, like 1GiB")
      ->type_name("BYTES");
  plan.option_defaults()->group("Output");
  plan.add_flag("--explain", state->explain, "print every step, the lower bound, and what else was tried");
  plan.add_flag("--json", state->json, "print one JSON object (reshard.plan/1)");
  plan.add_flag("--pieces", state->pieces, "print the JSON with every box that travels");
  plan.add_flag("--simulate", state->simulate,
                "also follow every message over the network, and print when each step ends");
  plan.add_option("--svg", state->svg, "write a picture of the plan to this file")->type_name("FILE");
  plan.add_option("--html", state->html, "write a page about the plan, or the batch, to this file, for a browser")
      ->type_name("FILE");
  plan.footer(
      "# From rows to columns\n"
      "reshard plan '{X:4}' '[<X>512, 128]' '[512, <X>128]'\n"
      "# Why this plan, on two nodes of eight\n"
      "reshard plan '{dp:4,tp:4}' '[<dp>64, 64]' '[64, <tp>64]' --topology dgx-h100 --explain\n"
      "# A model from training to serving on four nodes, and which tensors cost most\n"
      "reshard plan step-1000 --mesh '{dp:4,tp:8}' --from fsdp+tp:llama --to tp:llama --topology dgx-h100\n"
      "# Any tensors as one schedule\n"
      "reshard plan --batch problems.jsonl --coalesce --memory-limit 1GiB\n"
      "# A page to look at\n"
      "reshard plan '{X:2,Y:2}' '[<X,Y>64]' '[<Y,X>64]' --html plan.html\n");
  return [state] { return RunPlan(*state); };
}

}  // namespace reshard::tool
