// reshard verify A B: compares the contents of two checkpoints.
#include "reshard/checkpoint/verify.h"

#include <algorithm>
#include <cstdio>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "reshard/checkpoint/report.h"
#include "reshard/planner/units.h"
#include "tools/reshard/checkpoint/selection_flags.h"
#include "tools/reshard/checkpoint/what_is_meant.h"
#include "tools/reshard/commands.h"
#include "tools/reshard/exit_code.h"
#include "tools/reshard/printable.h"
#include "tools/reshard/terminal.h"

namespace reshard::tool {
namespace {

struct VerifyFlags {
  std::string a, b;
  int threads = 0;
  bool json = false, ignore_sidecar = false;
  SelectionFlags what;
};

// A line for each difference; a model that was cast differs in all its tensors, so what many have in common is told
// once.
std::string DifferencesText(const std::vector<VerifyReport::Difference>& differences) {
  constexpr size_t kNamed = 3;
  std::map<std::string_view, std::vector<std::string>> names;  // by what differs
  for (const VerifyReport::Difference& one : differences) names[one.what].push_back(Printable(one.name));
  bool grouped = false;
  std::string text;
  for (const VerifyReport::Difference& one : differences) {
    const auto alike = names.find(one.what);
    if (alike == names.end()) continue;  // told already
    const std::string what = absl::StrCat(": ", Printable(one.what), "\n");
    if (const size_t count = alike->second.size(); count > kNamed) {
      alike->second.resize(kNamed);
      absl::StrAppend(&text, absl::StrJoin(alike->second, ", "), " and ", count - kNamed, " more", what);
      names.erase(alike);
      grouped = true;
    } else {
      absl::StrAppend(&text, Printable(one.name), what);
    }
  }
  if (grouped) text += "--json lists all of them\n";
  return text;
}

std::string ReportText(const VerifyReport& report) {
  std::string text = DifferencesText(report.differences);
  if (report.as_made_weights_only) text += "B was made of weights alone: only those of A are compared\n";
  for (const Wrapper& wrapper : report.taken_off) {
    absl::StrAppend(&text, "taken off the names of A, as it was when B was made: ", Printable(wrapper.text), "\n");
  }
  absl::StrAppendFormat(
      &text, "%d tensors and %d byte items compared, %s%s: %s\n", report.tensors, report.byte_items,
      HumanBytes(report.bytes),
      report.side_files == 0 ? std::string() : absl::StrCat(", and ", report.side_files, " auxiliary files"),
      report.differences.empty() ? std::string("equal") : absl::StrCat(report.differences.size(), " differ"));
  return text;
}

int RunVerify(VerifyFlags& flags) {
  if (flags.threads < 0 || flags.threads > 1024) return Fail(kUsage, "--threads must be between 1 and 1024");
  if (const int bad = flags.what.Parse(); bad != kOk) return bad;
  VerifyOptions options;
  options.threads = flags.threads;
  options.ignore_sidecar = flags.ignore_sidecar;
  options.recipe = flags.what.recipe;
  options.side_files = flags.what.side_files;
  SayWhatIsMeant(flags.a);
  SayWhatIsMeant(flags.b);
  ProgressLine line;
  options.progress = [&line](const ConvertProgress& progress) { line.Show(progress); };
  const absl::StatusOr<VerifyReport> report = VerifyCheckpoints(flags.a, flags.b, options);
  line.End();
  if (!report.ok()) return FailCheckpoint(report.status());
  const std::string text = flags.json ? ComparisonToJson(*report) : ReportText(*report);
  if (const int code = Print(text); code != kOk) return code;
  return report->differences.empty() ? kOk : kDifferences;
}

}  // namespace

Action AddVerify(CLI::App& parent) {
  CLI::App& app = *parent.add_subcommand("verify", "Compare the contents of two checkpoints");
  auto flags = std::make_shared<VerifyFlags>();
  app.group(kOfCheckpoints);
  app.add_option("A", flags->a, "a checkpoint")->required()->type_name("PATH|URL");
  app.add_option("B", flags->b, "another, in any layout and format")->required()->type_name("PATH|URL");
  flags->what.Declare(app, "A");
  flags->what.DeclareAuxiliaryFiles(app, "A");
  app.option_defaults()->group("Run and output");
  app.add_option("--threads", flags->threads, "number of threads (default: one per core)")->type_name("N");
  app.add_flag("--ignore-sidecar", flags->ignore_sidecar, "do not read either's reshard.json");
  app.add_flag("--json", flags->json, "print one JSON object (reshard.verify/1)");
  app.footer(
      "# Equal contents, whatever the layouts and formats\n"
      "reshard verify step-1000 serving\n"
      "# What --to hf made of it, of weights alone and under their new names, as its reshard.json says\n"
      "reshard verify step-1000 exported\n"
      "# What a cast made of it\n"
      "reshard convert step-1000 exported-bf16 --to hf --dtype bf16 && reshard verify step-1000 exported-bf16 --dtype "
      "bf16\n");
  return [flags] { return RunVerify(*flags); };
}

}  // namespace reshard::tool
