// The reshard command. Each subcommand is in a file of its own; this one parses the command line and reports usage
// errors.
#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <iostream>
#include <map>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "reshard/planner/environment.h"
#include "reshard/planner/option_text.h"
#include "tools/reshard/commands.h"
#include "tools/reshard/exit_code.h"
#include "tools/reshard/terminal.h"

namespace reshard::tool {
namespace {

// What other programs accept for --version.
constexpr char kVersionWord[] = "version";

// The flags of a subcommand without their dashes, to find the nearest match for an unknown one.
std::vector<std::string> FlagsOf(const CLI::App& app) {
  std::vector<std::string> out;
  for (const CLI::Option* option : app.get_options()) {
    out.insert(out.end(), option->get_lnames().begin(), option->get_lnames().end());
  }
  return out;
}

std::vector<std::string> NamesOfSubcommands(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::App* const subcommand : app.get_subcommands({})) names.push_back(subcommand->get_name());
  return names;
}

// Where to read on, like " (see reshard help verify)".
std::string SeeHelp(const CLI::App& subcommand) {
  return absl::StrCat(" (see reshard help ", subcommand.get_name(), ")");
}

// How a subcommand is called, like "reshard verify A B (see reshard help verify)".
std::string UsageOf(const CLI::App& subcommand) {
  std::string usage = absl::StrCat("reshard ", subcommand.get_name());
  for (const CLI::Option* option : subcommand.get_options()) {
    if (option->get_positional()) absl::StrAppend(&usage, " ", option->get_name(/*positional=*/true));
  }
  return usage + SeeHelp(subcommand);
}

int UnknownArguments(const CLI::App& app, int argc, char** argv) {
  const auto subcommands = app.get_subcommands();
  const CLI::App& used = subcommands.empty() ? app : *subcommands[0];
  const std::vector<std::string> known = FlagsOf(used);
  for (int i = 1; i < argc; ++i) {
    const std::string_view given = argv[i];
    if (!given.starts_with("--")) continue;
    const std::string word(given.substr(2, given.find('=') - 2));
    if (std::find(known.begin(), known.end(), word) != known.end()) continue;
    const auto near = Nearest(word, known);
    return Fail(kUsage, absl::StrCat("unknown flag --", Clipped(word),
                                     near ? absl::StrCat("; did you mean --", *near, "?") : "", SeeHelp(used)));
  }
  if (subcommands.empty()) {
    std::vector<std::string> words = NamesOfSubcommands(app);
    words.emplace_back(kVersionWord);
    const auto near = argc > 1 ? Nearest(argv[1], words) : std::nullopt;
    return Fail(kUsage, absl::StrCat("unknown subcommand ", argc > 1 ? Clipped(argv[1]) : "",
                                     near ? absl::StrCat("; did you mean ", *near, "?") : "", " (see reshard --help)"));
  }
  const std::vector<std::string> extra = app.remaining(/*recurse=*/true);
  const std::string word = extra.empty() ? argv[argc - 1] : extra.front();
  if (word.starts_with('-')) return Fail(kUsage, absl::StrCat("unknown flag ", Clipped(word)));
  return Fail(kUsage, absl::StrCat(Clipped(word), " is one argument too many for ", UsageOf(used)));
}

// "reshard show CHECKPOINT" lacks no layout: it is about another subcommand.
std::string HintOf(const CLI::App& used, int argc, char** argv) {
  std::error_code error;
  if (used.get_name() != "show" || argc != 3 || !std::filesystem::exists(argv[2], error)) return "";
  return absl::StrCat("; what a checkpoint holds: reshard inspect ", argv[2]);
}

// Whether programs read what this subcommand prints, so that --quiet keeps it.
bool PrintsData(const CLI::App& subcommand) {
  const auto given = [&](const char* flag) {
    const CLI::Option* const option = subcommand.get_option_no_throw(flag);
    return option != nullptr && option->count() > 0;
  };
  return subcommand.get_group() == kOfItself || given("--json") || given("--pieces") ||
         (given("--batch") && !given("--coalesce"));
}

// Turns "reshard version" and "reshard plan help", which other programs accept, into this program's spelling.
std::vector<std::string> Respelled(const CLI::App& app, int argc, char** argv) {
  std::vector<std::string> words(argv + 1, argv + argc);
  if (words.size() == 1 && words[0] == kVersionWord) return {"--version"};
  if (words.size() == 2 && words[1] == "help" && words[0] != "help") {
    const std::vector<std::string> names = NamesOfSubcommands(app);
    if (std::find(names.begin(), names.end(), words[0]) != names.end()) std::swap(words[0], words[1]);
  }
  return words;
}

int Main(int argc, char** argv) {
  CLI::App app("Moves sharded tensors from one layout to another", "reshard");
  UseHelpTexts(app);
  app.option_defaults()->group(kGeneral);
  app.set_help_flag("-h,--help", "print this help")->group(kGeneral);
  app.set_version_flag(
      "--version,-V", [] { return VersionText(); }, "print the version, and what it can use here");
  app.require_subcommand(1);
  app.footer("reshard plan '{X:4}' '[<X>512, 128]' '[512, <X>128]'\nreshard convert step-1000 exported --to hf\n");
  bool quiet = false, verbose = false;
  std::map<std::string, Action> actions;
  actions["plan"] = AddPlan(app);
  actions["show"] = AddShow(app);
  actions["run"] = AddRun(app);
  actions["calibrate"] = AddCalibrate(app);
  actions["check"] = AddCheck(app);
  actions["inspect"] = AddInspect(app);
  actions["convert"] = AddCheckpoint(app);
  actions["verify"] = AddVerify(app);
  actions["fingerprint"] = AddFingerprint(app);
  actions["doctor"] = AddDoctor(app);
  actions["completion"] = AddCompletion(app);
  actions["help"] = AddHelp(app);
  for (CLI::App* const subcommand : app.get_subcommands({})) {
    subcommand->set_help_flag("-h,--help", "print this help")->group(kGeneral);
    subcommand->add_flag("-q,--quiet", quiet, "print only errors, and what --json asks for")->group(kGeneral);
    subcommand->add_flag("-v,--verbose", verbose, "log to standard error what happens, as RESHARD_LOG=info does")
        ->group(kGeneral);
  }
  try {
    std::vector<std::string> words = Respelled(app, argc, argv);
    std::reverse(words.begin(), words.end());  // as CLI11 wants them
    app.parse(std::move(words));
  } catch (const CLI::ExtrasError&) {
    return UnknownArguments(app, argc, argv);
  } catch (const CLI::CallForVersion& version) {
    return Print(version.what());
  } catch (const CLI::CallForHelp&) {
    return Print(app.help());
  } catch (const CLI::RequiredError& error) {
    const bool named_one = argc > 1 && argv[1][0] != '-' && app.get_subcommands().empty();
    if (named_one) return UnknownArguments(app, argc, argv);
    return Fail(kUsage, app.get_subcommands().empty()
                            ? absl::StrCat("a subcommand is required: ", absl::StrJoin(NamesOfSubcommands(app), ", "),
                                           " (see reshard --help)")
                            : absl::StrCat(error.what(), ": ", UsageOf(*app.get_subcommands()[0]),
                                           HintOf(*app.get_subcommands()[0], argc, argv)));
  } catch (const CLI::ParseError& error) {
    return Fail(kUsage, error.what());
  }
  if (const absl::Status usable = CheckEnvironment(); !usable.ok()) {
    return Fail(kUsage, std::string(usable.message()));
  }
  const CLI::App& subcommand = *app.get_subcommands()[0];
  if (quiet) BeQuiet();
  if (quiet && !PrintsData(subcommand)) PrintNothing();
  if (verbose) setenv("RESHARD_LOG", "info", /*overwrite=*/0);
  return actions.at(subcommand.get_name())();
}

}  // namespace

int CommandMain(int argc, char** argv) {
  try {
    return Main(argc, argv);
  } catch (const std::bad_alloc&) {
    return Fail(kInfeasible, "out of memory");
  } catch (const std::exception& error) {
    return Fail(kInternal, error.what());
  }
}

}  // namespace reshard::tool
