// reshard fingerprint CHECKPOINT: 128 bits of what its tensors contain.
#include "reshard/checkpoint/fingerprint.h"

#include <memory>

#include "absl/strings/str_cat.h"
#include "reshard/checkpoint/report.h"
#include "tools/reshard/checkpoint/selection_flags.h"
#include "tools/reshard/checkpoint/what_is_meant.h"
#include "tools/reshard/commands.h"
#include "tools/reshard/exit_code.h"
#include "tools/reshard/printable.h"
#include "tools/reshard/terminal.h"

namespace reshard::tool {
namespace {

struct FingerprintFlags {
  std::string checkpoint;
  int threads = 0;
  bool json = false, per_tensor = false, ignore_sidecar = false;
  SelectionFlags what;
};

// The format in which checksum tools print the sums of files.
std::string LineOf(const ContentFingerprint& fingerprint, std::string_view of) {
  return absl::StrCat(ToString(fingerprint), "  ", Printable(of), "\n");
}

std::string FingerprintText(const CheckpointFingerprint& taken, const FingerprintFlags& flags) {
  if (!flags.per_tensor) return LineOf(taken.fingerprint, flags.checkpoint);
  std::string text;
  for (const CheckpointFingerprint::Tensor& tensor : taken.tensors) {
    absl::StrAppend(&text, LineOf(tensor.fingerprint, tensor.name));
  }
  return text;
}

int RunFingerprint(FingerprintFlags& flags) {
  if (flags.threads < 0 || flags.threads > 1024) return Fail(kUsage, "--threads must be between 1 and 1024");
  if (const int bad = flags.what.Parse(); bad != kOk) return bad;
  FingerprintOptions options;
  options.threads = flags.threads;
  options.ignore_sidecar = flags.ignore_sidecar;
  options.recipe = flags.what.recipe;
  SayWhatIsMeant(flags.checkpoint);
  ProgressLine line;
  options.progress = [&line](const ConvertProgress& progress) { line.Show(progress); };
  const absl::StatusOr<CheckpointFingerprint> taken = FingerprintCheckpoint(flags.checkpoint, options);
  line.End();
  if (!taken.ok()) return FailCheckpoint(taken.status());
  return Print(flags.json ? FingerprintToJson(*taken) : FingerprintText(*taken, flags));
}

}  // namespace

Action AddFingerprint(CLI::App& parent) {
  CLI::App& app = *parent.add_subcommand("fingerprint", "Compute a 128-bit fingerprint of what a checkpoint contains");
  auto flags = std::make_shared<FingerprintFlags>();
  app.group(kOfCheckpoints);
  app.add_option("CHECKPOINT", flags->checkpoint, "a checkpoint, in any layout and format")
      ->required()
      ->type_name("PATH|URL");
  flags->what.Declare(app, "CHECKPOINT");
  app.option_defaults()->group("Run and output");
  app.add_flag("--per-tensor", flags->per_tensor, "print one line for each tensor, in the order of names");
  app.add_option("--threads", flags->threads, "number of threads (default: one per core)")->type_name("N");
  app.add_flag("--ignore-sidecar", flags->ignore_sidecar, "do not read its reshard.json");
  app.add_flag("--json", flags->json, "print one JSON object (reshard.fingerprint/1)");
  app.footer(
      "# The same for every layout and format, and as reshard.fingerprint(model) of a job that has these tensors\n"
      "reshard fingerprint step-1000\n"
      "reshard fingerprint step-1000 --include 'model.*' --strip-prefix model. --per-tensor\n");
  return [flags] { return RunFingerprint(*flags); };
}

}  // namespace reshard::tool
