// reshard convert SRC DST: rewrites a checkpoint in another layout or format.
#include <cmath>
#include <cstdio>
#include <limits>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "reshard/checkpoint/convert.h"
#include "reshard/checkpoint/leavings.h"
#include "reshard/checkpoint/report.h"
#include "reshard/checkpoint/rules.h"
#include "reshard/checkpoint/store.h"
#include "reshard/planner/option_text.h"
#include "reshard/planner/units.h"
#include "reshard/runtime/communicator.h"
#include "tools/reshard/checkpoint/launcher.h"
#include "tools/reshard/checkpoint/selection_flags.h"
#include "tools/reshard/checkpoint/what_is_meant.h"
#include "tools/reshard/commands.h"
#include "tools/reshard/exit_code.h"
#include "tools/reshard/printable.h"
#include "tools/reshard/problem.h"
#include "tools/reshard/terminal.h"

namespace reshard::tool {
namespace {

struct CheckpointFlags {
  std::string source, destination, rules, mesh, layout, format, to, memory_limit, file_size;
  int threads = 0;
  WorkerFlags workers;
  SelectionFlags what;
  bool clean = false, dry_run = false, overwrite = false, restart = false, resume = false, verify = false,
       ignore_sidecar = false, json = false, with_training_state = false, keep_names = false;
};

// Reads the rules that the flags give, if any. Returns an exit code, kOk if all is well.
int ReadRules(const CheckpointFlags& flags, std::optional<LayoutRules>* rules) {
  if (!flags.rules.empty()) {
    const absl::StatusOr<std::string> text = ReadFile(flags.rules);
    if (!text.ok()) return Fail(kIo, std::string(text.status().message()));
    absl::StatusOr<LayoutRules> parsed = LayoutRules::Parse(*text);
    if (!parsed.ok()) return Fail(kBadInput, absl::StrCat(flags.rules, ": ", parsed.status().message()));
    *rules = *std::move(parsed);
  } else if (!flags.mesh.empty()) {
    absl::StatusOr<LayoutRules> all = LayoutRules::ForAll(flags.mesh, flags.layout);
    if (!all.ok()) return Fail(kBadInput, std::string(all.status().message()));
    *rules = *std::move(all);
  }
  return kOk;
}

// What is copied along with the tensors, and what is not. Long lists are cut: --json has them.
std::string BesideText(const ConvertSummary& summary) {
  constexpr size_t kShown = 12;
  std::string text;
  const auto list = [&](const char* head, size_t count, const auto& one) {
    if (count == 0) return;
    absl::StrAppend(&text, head);
    for (size_t i = 0; i < count && i < kShown; ++i) absl::StrAppend(&text, i == 0 ? "" : ", ", one(i));
    if (count > kShown) absl::StrAppend(&text, " and ", count - kShown, " more");
    text += "\n";
  };
  list("auxiliary files: ", summary.side_files.size(), [&](size_t i) {
    const AuxiliaryFile& file = summary.side_files[i];
    return absl::StrCat(Printable(file.path), file.to == file.path ? "" : absl::StrCat(" as ", Printable(file.to)),
                        file.may_run ? " (unchecked: loading it runs code)" : "");
  });
  list("left beside the source: ", summary.left_beside.size(),
       [&](size_t i) { return Printable(summary.left_beside[i]); });
  list("only partly used: ", summary.partly_used.size(), [&](size_t i) { return Printable(summary.partly_used[i]); });
  list("cast without the scales beside them (\"dequantize\" in a recipe multiplies by them): ",
       summary.cast_unscaled.size(), [&](size_t i) { return Printable(summary.cast_unscaled[i]); });
  list("still quantized, since --dtype is about wider floats (\"dequantize\" in a recipe makes floats of them): ",
       summary.left_quantized.size(), [&](size_t i) { return Printable(summary.left_quantized[i]); });
  for (const std::string& contradiction : summary.contradictions) {
    absl::StrAppend(&text, "as it is copied, ", Printable(contradiction), "\n");
  }
  list("dropped, as it describes the source's files: ", summary.dropped_attributes.size(),
       [&](size_t i) { return Printable(summary.dropped_attributes[i]); });
  return text;
}

// What the selection leaves in the source, a line per container.
std::string NotSelectedText(const ConvertSummary& summary) {
  constexpr size_t kShown = 20;
  std::string text;
  for (size_t i = 0; i < summary.not_selected.size() && i < kShown; ++i) {
    const LeftOut& one = summary.not_selected[i];
    absl::StrAppend(&text, "not selected: ", Printable(one.container), ": ", Counted(one.tensors, "tensor"), " and ",
                    Counted(one.values, "value"), ", ", HumanBytes(one.bytes), "\n");
  }
  if (summary.not_selected.size() > kShown) {
    absl::StrAppend(&text, "not selected: ", summary.not_selected.size() - kShown, " more; --json lists them\n");
  }
  return text;
}

// One line per tensor: its name, what it is, and what it is made of.
std::string PlannedText(const std::vector<PlannedTensor>& planned) {
  std::string text;
  for (const PlannedTensor& tensor : planned) {
    absl::StrAppend(&text, Printable(tensor.name), ": ", std::string(Name(tensor.dtype)), " ",
                    tensor.layout.empty() ? absl::StrCat("[", absl::StrJoin(tensor.shape, ", "), "]") : tensor.layout,
                    ", ", HumanBytes(tensor.bytes));
    if (tensor.from != tensor.name) absl::StrAppend(&text, " = ", Printable(tensor.from));
    text += "\n";
  }
  return text;
}

// How names changed, and which ones the next program will see.
std::string NamesText(const ConvertSummary& summary) {
  std::string text;
  for (const Wrapper& wrapper : summary.taken_off) {
    absl::StrAppend(&text, "taken off names: ", Printable(wrapper.text),
                    wrapper.place == Wrapper::Position::kPart ? " wherever it stands" : " in front", ", ",
                    wrapper.names, wrapper.names == 1 ? " name\n" : " names\n");
  }
  if (!summary.first_names.empty()) {
    const std::string names = absl::StrJoin(summary.first_names, ", ",
                                            [](std::string* out, const std::string& name) { *out += Printable(name); });
    absl::StrAppend(&text, "there is no config.json; the next program will see names like ", names, "\n");
  }
  for (const std::string& warning : summary.warnings) absl::StrAppend(&text, "warning: ", warning, "\n");
  return text;
}

// Whether the destination is a store, where space has no bounds.
bool IsStore(const ConvertSummary& summary) { return summary.free_bytes == std::numeric_limits<int64_t>::max(); }

std::string ReportText(const ConvertSummary& summary, const CheckpointFlags& flags, const WorkerOf& worker) {
  const bool dry_run = flags.dry_run;
  std::string text = PlannedText(summary.planned);
  absl::StrAppend(&text, Counted(summary.tensors, "tensor"), " and ", Counted(summary.byte_items, "byte item"), ", ",
                  HumanBytes(summary.bytes), " in ", Counted(summary.pieces, "piece"), "\n",
                  Counted(summary.files, "file"), ", ", HumanBytes(summary.disk_bytes));
  text += IsStore(summary) ? " to store\n" : absl::StrCat(" on disk, ", HumanBytes(summary.free_bytes), " free\n");
  text += NamesText(summary);
  text += NotSelectedText(summary);
  text += BesideText(summary);
  if (worker.workers > 1) {
    absl::StrAppendFormat(&text, "worker %d of %d: %s in %d pieces\n", worker.id, worker.workers,
                          HumanBytes(summary.own_bytes), summary.own_pieces);
  }
  absl::StrAppendFormat(&text, "memory: %s planned", HumanBytes(summary.memory_bytes));
  if (!dry_run) absl::StrAppendFormat(&text, ", peak of the process %s", HumanBytes(PeakResidentBytes()));
  text += "\n";
  if (summary.was_complete) return text + "already complete: nothing to do\n";
  if (dry_run) return text + "dry run: nothing was written\n";
  if (summary.kept_bytes > 0)
    absl::StrAppendFormat(&text, "%s kept from the interrupted run\n", HumanBytes(summary.kept_bytes));
  // With several workers the time includes waiting for the others, which write meanwhile.
  absl::StrAppendFormat(&text, "written in %.2f s, %s/s", summary.seconds,
                        HumanBytes(std::llround(static_cast<double>(summary.bytes) / std::max(1e-9, summary.seconds))));
  if (flags.verify && summary.committed) text += ", read back and compared: equal";
  if (worker.workers > 1) text += summary.committed ? ", moved to the destination by this worker" : ", by all workers";
  text += "\n";
  return text;
}

// --to, or --format. Returns an exit code, kOk if all is well.
int ReadFormat(const CheckpointFlags& flags, ConvertOptions* options) {
  const bool is_to = !flags.to.empty();
  if (is_to && !flags.format.empty()) return Fail(kUsage, "--to and --format say the same; give one of them");
  const std::string& name = is_to ? flags.to : flags.format;
  if (name.empty()) return kOk;  // dcp
  if ((name == "hf" && !is_to) || !SetTarget(name, options)) {
    return Fail(kUsage, absl::StrCat(is_to ? "--to must be hf, dcp, safetensors or orbax, not "
                                           : "--format must be dcp, safetensors or orbax, not ",
                                     Clipped(name)));
  }
  return kOk;
}

// Names the staging directories that interrupted runs left beside the destination and that no run is using.
void SayWhatIsLeft(const std::string& destination) {
  if (!StoreSchemeOf(destination).empty()) return;  // looking takes long there
  const absl::StatusOr<std::vector<StaleStaging>> stale_staging = FindStaleStaging(destination);
  if (!stale_staging.ok()) return;  // this is only a note
  for (const StaleStaging& stale : *stale_staging) {
    if (stale.alive) continue;
    Note(absl::StrCat("reshard: an interrupted run has left ", Printable(stale.path),
                      ": the same command as then continues it, --clean removes it"));
  }
}

int RunCheckpoint(CheckpointFlags& flags) {
  ConvertOptions options;
  if (const int bad = flags.what.Parse(); bad != kOk) return bad;
  options.recipe = flags.what.recipe;
  options.side_files = flags.what.side_files;
  if (const int bad = ReadFormat(flags, &options); bad != kOk) return bad;
  if (flags.to == "hf") {
    options.unwrap = !flags.keep_names;
    if (flags.with_training_state) options.recipe.selection = flags.what.recipe.selection;
  } else if (flags.with_training_state || flags.keep_names) {
    return Fail(kUsage,
                absl::StrCat(flags.keep_names ? "--keep-names" : "--with-training-state",
                             " is for --to hf; nothing is left out or renamed without being asked for otherwise"));
  }
  if (!flags.rules.empty() && (!flags.mesh.empty() || !flags.layout.empty())) {
    return Fail(kUsage, "--rules cannot be used with --mesh and --layout");
  }
  if (flags.mesh.empty() != flags.layout.empty()) return Fail(kUsage, "--mesh and --layout must be used together");
  const bool in_recipe = flags.what.recipe.layouts.has_value();
  if (!TakesLayoutRules(options.format) && (!flags.rules.empty() || !flags.mesh.empty() || in_recipe)) {
    return Fail(kUsage, absl::StrCat(!flags.rules.empty()  ? "--rules says"
                                     : !flags.mesh.empty() ? "--mesh and --layout say"
                                                           : "\"layouts\" in the recipe says",
                                     " how tensors are cut, and ", std::string(Name(options.format)),
                                     " files have them whole; leave that out, or write --to dcp"));
  }
  if (flags.rules.empty() && flags.mesh.empty() && !in_recipe && NeedsLayoutRules(options.format)) {
    return Fail(
        kUsage,
        "say how to shard the tensors: --rules FILE, or --mesh MESH --layout RULE, or layouts in the recipe; or "
        "write them whole: --to hf (what from_pretrained loads), --to safetensors");
  }
  for (const auto& [text, into, name] : {std::tuple{&flags.memory_limit, &options.memory_limit, "--memory-limit"},
                                         std::tuple{&flags.file_size, &options.file_bytes, "--file-size"}}) {
    if (text->empty()) continue;
    const absl::StatusOr<int64_t> bytes = ParseBytes(*text);
    if (!bytes.ok()) return Fail(kUsage, absl::StrCat(name, ": ", bytes.status().message()));
    *into = *bytes;
  }
  if (flags.threads < 0 || flags.threads > 1024) return Fail(kUsage, "--threads must be between 1 and 1024");
  options.threads = flags.threads;
  const absl::StatusOr<WorkerOf> worker = FindWorker(flags.workers);
  if (!worker.ok()) return Fail(kUsage, std::string(worker.status().message()));
  options.workers = worker->workers;
  options.worker = worker->id;
  if (flags.restart && (worker->workers > 1 || flags.resume)) {
    return Fail(kUsage, flags.resume
                            ? "--restart throws away what --resume continues; give one of them"
                            : "--restart is for a single worker: another one may have just begun; before any of "
                              "them starts, --clean removes what is left");
  }
  options.stall_timeout = DefaultTimeout();
  options.overwrite = flags.overwrite;
  options.restart = flags.restart;
  options.resume = flags.resume;
  options.verify = flags.verify;
  options.ignore_sidecar = flags.ignore_sidecar;
  std::optional<LayoutRules> rules = flags.what.recipe.layouts;
  const int bad_rules = ReadRules(flags, &rules);
  if (bad_rules != kOk) return bad_rules;

  if (flags.clean && !flags.dry_run) {
    const absl::StatusOr<int> removed = RemoveStaleStaging(flags.destination);
    if (!removed.ok()) return FailCheckpoint(removed.status());
    if (*removed > 0) Note(absl::StrCat("reshard: removed what ", *removed, " interrupted runs had left"));
  }
  if (!worker->by.empty())
    Note(absl::StrCat("reshard: worker ", worker->id, " of ", worker->workers, " (", worker->by, ")"));
  SayWhatIsMeant(flags.source);
  ProgressLine line;
  options.progress = [&line](const ConvertProgress& progress) { line.Show(progress); };
  options.continuing = [](const std::string& stage, int64_t bytes) {
    Note(absl::StrCat("reshard: continuing the interrupted run in ", Printable(stage), ", ", HumanBytes(bytes),
                      " on disk; --restart would begin anew"));
  };
  absl::StatusOr<ConvertSummary> summary;
  if (flags.dry_run) {
    summary = PlanConversion(flags.source, flags.destination, rules, options);
  } else {
    const WordOnInterruption word(
        "\nreshard: interrupted. The same command continues; with --restart it begins anew\n");
    summary = Convert(flags.source, flags.destination, rules, options);
  }
  line.End();
  if (!flags.dry_run) SayWhatIsLeft(flags.destination);
  if (!summary.ok()) return FailCheckpoint(summary.status());
  const ConversionTerms terms{flags.dry_run, flags.verify, worker->workers, worker->id, PeakResidentBytes()};
  const std::string text = flags.json ? ConversionToJson(*summary, terms) : ReportText(*summary, flags, *worker);
  if (const int code = Print(text); code != kOk) return code;
  for (const std::string& left_out : summary->left_out) Fail(kDifferences, absl::StrCat("not written: ", left_out));
  if (const size_t items = summary->left_out_items.size(); items > 0) {
    Fail(kDifferences, absl::StrCat("not written: ", items, " byte items, such as ", summary->left_out_items[0],
                                    ", for which ", std::string(Name(options.format)),
                                    " has no place; --drop-byte-items leaves them out on purpose"));
  }
  if (flags.dry_run && summary->needed_bytes() > summary->free_bytes) {
    return Fail(kIo, absl::StrCat("not enough disk space for ", Printable(flags.destination), ": it needs ",
                                  HumanBytes(summary->needed_bytes()), " more on its filesystem, where ",
                                  HumanBytes(summary->free_bytes), " are free"));
  }
  return summary->left_out.empty() && summary->left_out_items.empty() ? kOk : kDifferences;
}

}  // namespace

Action AddCheckpoint(CLI::App& parent) {
  CLI::App& app = *parent.add_subcommand("convert", "Rewrite a checkpoint in another layout or format");
  app.alias("checkpoint");
  app.group(kOfCheckpoints);
  auto flags = std::make_shared<CheckpointFlags>();
  app.add_option("SRC", flags->source, "a checkpoint: a directory, a file or a URL, in any format that inspect lists")
      ->required()
      ->type_name("PATH|URL");
  app.add_option("DST", flags->destination, "the directory to create, or a URL of a store")
      ->required()
      ->type_name("PATH|URL");
  app.option_defaults()->group("Layout and format");
  app.add_option("--rules", flags->rules, "a JSON file that says which tensors get which layout")->type_name("FILE");
  app.add_option("--mesh", flags->mesh, "the mesh of --layout, like {dp:4}")->type_name("MESH");
  app.add_option("--layout", flags->layout, "one layout rule for all tensors, like [<dp>, ...]")->type_name("RULE");
  app.add_option("--format", flags->format, "the format of the result (default dcp)")
      ->type_name("dcp|safetensors|orbax");
  app.add_option("--to", flags->to,
                 "the same, or hf: what from_pretrained loads, the weights alone as safetensors with an index, under "
                 "the names of the bare model")
      ->type_name("hf|dcp|safetensors|orbax");
  app.add_flag("--keep-names", flags->keep_names,
               "with --to hf: keep what wrappers added to names (module., _orig_mod., ...)");
  app.add_flag("--with-training-state", flags->with_training_state,
               "with --to hf: also write optimizer state and the like");
  app.add_option("--file-size", flags->file_size,
                 "safetensors: most bytes per file (default 5GiB, in a store 1GiB); orbax: per chunk (64MiB)")
      ->type_name("BYTES");
  flags->what.Declare(app, "SRC");
  flags->what.DeclareAuxiliaryFiles(app, "SRC");
  app.option_defaults()->group("Run and output");
  app.add_option("--memory-limit", flags->memory_limit, "most memory that this process may use (default 1GiB)")
      ->type_name("BYTES");
  app.add_option("--threads", flags->threads, "number of threads (default: one per core)")->type_name("N");
  app.add_option("--workers", flags->workers.workers,
                 "number of processes that share the job, each started with the same flags (default: the tasks of srun "
                 "or mpirun)")
      ->type_name("N");
  app.add_option("--worker-id", flags->workers.id,
                 "the number of this process, from 0 (default: what the launcher says)")
      ->type_name("K");
  app.add_flag("--dry-run", flags->dry_run,
               "write nothing; print what each tensor would be, and whether there is room");
  app.add_flag("--overwrite", flags->overwrite, "atomically replace what is at DST");
  app.add_flag("--restart", flags->restart, "start over instead of continuing an interrupted run");
  app.add_flag("--resume", flags->resume, "succeed if this same job has already completed DST, as after a requeue");
  app.add_flag("--clean", flags->clean, "first remove what interrupted runs left beside DST");
  app.add_flag("--verify", flags->verify, "read the result back and compare it before it is moved to DST");
  app.add_flag("--ignore-sidecar", flags->ignore_sidecar, "do not read the source's reshard.json");
  app.add_flag("--json", flags->json, "print one JSON object (reshard.checkpoint/1)");
  app.footer(
      "# The weights of a training checkpoint as a Hugging Face model\n"
      "reshard convert step-1000 exported --to hf\n"
      "# From the mesh that trained to the mesh that serves; first what it would do\n"
      "reshard convert step-1000 serving --rules rules.json --dry-run\n"
      "# Two processes share the work, here or on two machines\n"
      "for k in 0 1; do reshard convert step-1000 cut --mesh '{dp:2}' --layout '[<dp>, ...]' --workers 2 --worker-id "
      "$k & done; wait\n");
  return [flags] { return RunCheckpoint(*flags); };
}

}  // namespace reshard::tool
