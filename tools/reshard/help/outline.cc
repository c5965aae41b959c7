#include "tools/reshard/help/outline.h"

#include <CLI/Option.hpp>
#include <algorithm>

#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "reshard/layout/dtype.h"
#include "tools/reshard/commands.h"

namespace reshard::help {
namespace {

Flag FlagOf(const CLI::Option& option) {
  Flag flag;
  if (option.nonpositional()) {
    for (const std::string& name : option.get_lnames()) flag.names.push_back("--" + name);
    for (const std::string& name : option.get_snames()) flag.names.push_back("-" + name);
    if (option.get_items_expected_max() > 0) flag.value = option.get_type_name();
    flag.initially = option.get_default_str();
  } else {
    flag.names.push_back(option.get_name(true));
    flag.value = option.get_type_name();
  }
  flag.meaning = option.get_description();
  flag.required = option.get_required();
  flag.repeats = option.get_expected_max() > 1;
  return flag;
}

std::vector<Example> ExamplesOf(const std::string& footer) {
  std::vector<Example> examples;
  std::string purpose;
  for (const absl::string_view line : absl::StrSplit(footer, '\n', absl::SkipWhitespace())) {
    if (absl::string_view rest = line; absl::ConsumePrefix(&rest, "# ")) {
      purpose = std::string(rest);
    } else {
      examples.push_back({purpose, std::string(line)});
      purpose.clear();
    }
  }
  return examples;
}

}  // namespace

std::vector<std::string> Flag::Choices() const {
  if (value == "DTYPE" || value == "[PATTERN=]DTYPE") return absl::StrSplit(KnownDTypes(), ", ");
  if (value.find('|') == std::string::npos) return {};
  std::vector<std::string> words = absl::StrSplit(value, '|');
  // FILE and the like are placeholders.
  words.erase(std::remove_if(words.begin(), words.end(), [](const std::string& word) { return word[0] <= 'Z'; }),
              words.end());
  return words;
}

bool Flag::TakesPath() const {
  const std::vector<std::string> words = absl::StrSplit(value, '|');
  return std::any_of(words.begin(), words.end(),
                     [](const std::string& word) { return word == "FILE" || word == "PATH" || word == "URL"; });
}

Outline OutlineOf(const CLI::App& app) {
  Outline outline{app.get_name(), app.get_aliases(), app.get_description(), app.get_group(), {}, {}, {}};
  for (const CLI::Option* const option : app.get_options()) {
    if (option->get_group().empty()) continue;  // hidden
    if (!option->nonpositional()) {
      outline.arguments.push_back(FlagOf(*option));
      continue;
    }
    const auto same = [&](const FlagGroup& group) { return group.title == option->get_group(); };
    auto group = std::find_if(outline.flags.begin(), outline.flags.end(), same);
    if (group == outline.flags.end()) {
      outline.flags.push_back({option->get_group(), {}});
      group = outline.flags.end() - 1;
    }
    group->flags.push_back(FlagOf(*option));
  }
  std::stable_partition(outline.flags.begin(), outline.flags.end(),
                        [](const FlagGroup& group) { return group.title != tool::kGeneral; });
  outline.examples = ExamplesOf(app.get_footer());
  return outline;
}

std::vector<Outline> OutlinesOfSubcommands(const CLI::App& app) {
  std::vector<Outline> outlines;
  for (const CLI::App* const subcommand : app.get_subcommands({})) outlines.push_back(OutlineOf(*subcommand));
  return outlines;
}

}  // namespace reshard::help
