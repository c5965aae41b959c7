// reshard doctor: what this machine has, and what is missing for what.
#include <algorithm>
#include <iterator>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "reshard/planner/version.h"
#include "tools/reshard/commands.h"
#include "tools/reshard/doctor/examine.h"
#include "tools/reshard/exit_code.h"
#include "tools/reshard/printable.h"

namespace reshard::tool {
namespace {

using Object = nlohmann::ordered_json;

const char* Word(doctor::State state) {
  switch (state) {
    case doctor::State::kThere:
      return "there";
    case doctor::State::kMissing:
      return "missing";
    case doctor::State::kFact:
      break;
  }
  return "fact";
}

std::string FindingsText(const std::vector<doctor::Section>& sections) {
  size_t widest = 0;
  for (const doctor::Section& section : sections) {
    for (const doctor::Finding& finding : section.findings) widest = std::max(widest, finding.subject.size());
  }
  std::string text;
  for (const doctor::Section& section : sections) {
    absl::StrAppend(&text, text.empty() ? "" : "\n", Printable(section.title), "\n");
    for (const doctor::Finding& finding : section.findings) {
      const char* const mark = finding.state == doctor::State::kMissing ? "- " : "  ";
      absl::StrAppend(&text, mark, finding.subject, std::string(widest + 2 - finding.subject.size(), ' '),
                      Printable(finding.detail), "\n");
      if (!finding.remedy.empty()) absl::StrAppend(&text, std::string(widest + 4, ' '), finding.remedy, "\n");
    }
  }
  return text;
}

std::string FindingsJson(const std::vector<doctor::Section>& sections, const std::string& directory) {
  Object out = {
      {"schema", "reshard.doctor/1"}, {"version", Version()}, {"path", directory}, {"sections", Object::array()}};
  for (const doctor::Section& section : sections) {
    Object findings = Object::array();
    for (const doctor::Finding& finding : section.findings) {
      Object one = {{"subject", finding.subject}, {"state", Word(finding.state)}, {"detail", finding.detail}};
      if (!finding.remedy.empty()) one["remedy"] = finding.remedy;
      findings.push_back(std::move(one));
    }
    out["sections"].push_back({{"title", section.title}, {"findings", std::move(findings)}});
  }
  return out.dump(-1, ' ', false, Object::error_handler_t::replace) + "\n";
}

int RunDoctor(const std::string& directory, bool json) {
  auto filesystem = doctor::ExamineFilesystem(directory);
  if (!filesystem.ok()) return Fail(kIo, std::string(filesystem.status().message()));
  const std::vector<doctor::Section> sections = {doctor::ExamineProgram(), doctor::ExamineMachine(),
                                                 doctor::ExamineLibraries(), *std::move(filesystem)};
  return Print(json ? FindingsJson(sections, directory) : FindingsText(sections));
}

}  // namespace

std::string VersionText() {
  std::string text = absl::StrCat("reshard ", Version(), "\n");
  for (const doctor::Section& section : {doctor::ExamineProgram(), doctor::ExamineLibraries()}) {
    for (const doctor::Finding& finding : section.findings) {
      constexpr absl::string_view kShown[] = {"commit", "compiler", "GPU kernels", "NCCL", "PyTorch"};
      if (std::find(std::begin(kShown), std::end(kShown), finding.subject) == std::end(kShown)) continue;
      absl::StrAppend(&text, finding.subject, ": ",
                      finding.state == doctor::State::kMissing ? "no" : Printable(finding.detail), "\n");
    }
  }
  return text;
}

Action AddDoctor(CLI::App& parent) {
  CLI::App& app = *parent.add_subcommand("doctor", "Tell what this machine has, and what is missing for what");
  app.group(kOfItself);
  struct Flags {
    std::string directory = ".";
    bool json = false;
  };
  auto flags = std::make_shared<Flags>();
  app.add_option("PATH", flags->directory, "a directory that conversions would write to: what its filesystem can do")
      ->capture_default_str()
      ->type_name("PATH");
  app.option_defaults()->group("Output");
  app.add_flag("--json", flags->json, "print one JSON object (reshard.doctor/1)");
  app.footer("# Whether conversions can write there\nreshard doctor .\n");
  return [flags] { return RunDoctor(flags->directory, flags->json); };
}

}  // namespace reshard::tool
