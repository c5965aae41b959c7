// reshard check PLAN.json: whether a plan is legal, whether its figures are right, and how far it is from the bound.
#include "reshard/check/check.h"

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iostream>

#include "absl/strings/str_cat.h"
#include "tools/reshard/commands.h"
#include "tools/reshard/exit_code.h"

namespace reshard::tool {
namespace {

// Reads the whole text, or enough of it for CheckPlans to refuse it.
int ReadAll(const std::string& path, std::string& text) {
  std::ifstream file;
  if (path != "-") {
    file.open(path, std::ios::binary);
    if (!file || std::filesystem::is_directory(path)) return Fail(kIo, absl::StrCat("cannot read ", path));
  }
  std::istream& in = path == "-" ? std::cin : file;
  constexpr size_t kAtOnce = size_t{1} << 20;
  while (in && text.size() <= kMaxPlanText) {
    const size_t before = text.size();
    text.resize(before + kAtOnce);
    in.read(text.data() + before, static_cast<std::streamsize>(kAtOnce));
    text.resize(before + static_cast<size_t>(in.gcount()));
  }
  return in.bad() ? Fail(kIo, absl::StrCat("cannot read ", path)) : kOk;
}

int RunCheck(const std::string& path, bool json, const std::string& html) {
  std::string text;
  if (const int code = ReadAll(path, text); code != kOk) return code;
  const auto report = CheckPlans(text);
  if (!report.ok()) return Fail(report.status(), Stage::kInput);
  if (!html.empty()) {
    if (const int code = WritePage(html, CheckToHtml(*report)); code != kOk) return code;
  }
  const std::string out = json ? CheckToJson(*report) + "\n" : CheckToText(*report);
  if (const int code = Print(out); code != kOk) return code;
  // Some plans may be fine and others unreadable; an unreadable one decides the exit code.
  if (const absl::Status status = report->status(); !status.ok()) return Fail(status, Stage::kInput);
  return report->agrees() ? kOk : kDifferences;
}

}  // namespace

Action AddCheck(CLI::App& parent) {
  CLI::App& app = *parent.add_subcommand("check", "Check a plan, of this or any other tool, against its layouts alone");
  app.group(kOfLayouts);
  struct Flags {
    std::string path, html;
    bool json = false;
  };
  auto flags = std::make_shared<Flags>();
  app.add_option("PLAN", flags->path, "a JSON file with a plan, a batch, or one plan per line; - is standard input")
      ->required()
      ->type_name("FILE");
  app.option_defaults()->group("Output");
  app.add_flag("--json", flags->json, "print one JSON object (reshard.check/1)");
  app.add_option("--html", flags->html, "also write a page about what was found to this file, for a browser")
      ->type_name("FILE");
  app.footer(
      "# A plan that was stored\n"
      "reshard plan '{X:4}' '[<X>64]' '[64]' --json > plan.json; reshard check plan.json\n");
  return [flags] { return RunCheck(flags->path, flags->json, flags->html); };
}

}  // namespace reshard::tool
