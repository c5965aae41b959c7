// reshard help and reshard completion: what the command knows about itself, as text.
#include <cstdio>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "reshard/planner/option_text.h"
#include "tools/reshard/commands.h"
#include "tools/reshard/exit_code.h"
#include "tools/reshard/help/completion.h"
#include "tools/reshard/help/man_page.h"
#include "tools/reshard/help/text.h"
#include "tools/reshard/help/topics.h"

namespace reshard::tool {
namespace {

int WriteManPages(const CLI::App& app, const std::string& folder) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) return Fail(kIo, absl::StrCat("cannot make ", folder, ": ", error.message()));
  for (const help::ManPage& page :
       help::ManPages(help::OutlineOf(app), help::OutlinesOfSubcommands(app), help::Topics())) {
    const absl::Status written = WriteFile(absl::StrCat(folder, "/", page.file), page.text);
    if (!written.ok()) return Fail(written, Stage::kInput);
  }
  return kOk;
}

int RunHelp(const CLI::App& app, const std::optional<std::string>& about) {
  // Not app.help(), which prints the help of the subcommand that was given: this one.
  const auto page = [&app](const CLI::App& of) {
    return Print(app.get_formatter()->make_help(&of, "", CLI::AppFormatMode::Normal));
  };
  if (!about) return page(app);
  std::vector<std::string> known;
  for (const CLI::App* const subcommand : app.get_subcommands({})) {
    const std::string& name = subcommand->get_name();
    if (*about == name || absl::c_linear_search(subcommand->get_aliases(), *about)) return page(*subcommand);
    known.push_back(name);
  }
  for (const help::Topic& topic : help::Topics()) {
    if (*about == topic.name) return Print(std::string(topic.text));
    known.emplace_back(topic.name);
  }
  const auto near = Nearest(*about, known);
  return Fail(kUsage, absl::StrCat("there is no help about ", Clipped(*about),
                                   near ? absl::StrCat("; did you mean ", *near, "?") : "", " It is there about ",
                                   absl::StrJoin(known, ", ")));
}

int RunCompletion(const CLI::App& app, const std::string& shell) {
  const auto write = shell == "bash"   ? help::BashCompletion
                     : shell == "zsh"  ? help::ZshCompletion
                     : shell == "fish" ? help::FishCompletion
                                       : nullptr;
  if (write == nullptr)
    return Fail(kUsage, absl::StrCat("there is completion for bash, zsh and fish, not ", Clipped(shell)));
  return Print(write(help::OutlineOf(app), help::OutlinesOfSubcommands(app), help::Topics()));
}

}  // namespace

void UseHelpTexts(CLI::App& app) { app.formatter(std::make_shared<help::HelpFormatter>()); }

Action AddHelp(CLI::App& app) {
  CLI::App& help = *app.add_subcommand("help", "Explain a subcommand or a topic");
  help.group(kOfItself);
  struct Flags {
    std::optional<std::string> about;
    std::string man_pages;
  };
  auto flags = std::make_shared<Flags>();
  help.add_option("TOPIC", flags->about, "a subcommand, or one of the topics that `reshard help` lists")
      ->type_name("TOPIC");
  help.add_option("--man-pages", flags->man_pages, "write all of it as manual pages into this directory")
      ->type_name("PATH");
  help.footer("# How layouts are written\nreshard help layouts\n");
  return [flags, &app] {
    return flags->man_pages.empty() ? RunHelp(app, flags->about) : WriteManPages(app, flags->man_pages);
  };
}

Action AddCompletion(CLI::App& app) {
  CLI::App& completion = *app.add_subcommand("completion", "Print a script that completes in a shell");
  completion.group(kOfItself);
  auto shell = std::make_shared<std::string>();
  completion.add_option("SHELL", *shell, "the shell")->required()->type_name("bash|zsh|fish");
  completion.footer(
      "# bash: in ~/.bashrc\nsource <(reshard completion bash)\n"
      "# zsh: in ~/.zshrc, after compinit\nsource <(reshard completion zsh)\n"
      "# fish\nreshard completion fish > ~/.config/fish/completions/reshard.fish\n");
  return [shell, &app] { return RunCompletion(app, *shell); };
}

}  // namespace reshard::tool
