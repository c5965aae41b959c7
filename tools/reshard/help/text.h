// Help as text for a terminal.
#ifndef RESHARD_TOOLS_RESHARD_HELP_TEXT_H_
#define RESHARD_TOOLS_RESHARD_HELP_TEXT_H_

#include <CLI/App.hpp>
#include <CLI/Formatter.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "tools/reshard/help/outline.h"

namespace reshard::help {

// Words of `text`, in lines of at most `width` columns where they fit, without a newline at the end of the last. Spaces
// inside a word that is in quotes or braces are kept only as far as the text has single ones.
std::vector<std::string> Wrapped(std::string_view text, size_t width);

// What is typed, in one line: reshard plan [flags] MESH FROM TO.
std::string UsageOf(const Outline& outline);
// How a flag is written: "--quiet, -q", "--svg FILE".
std::string Written(const Flag& flag);

// The help of a subcommand, of `width` columns; `styled` for terminals that show bold.
std::string HelpText(const Outline& outline, size_t width, bool styled);
// The help of the command itself: what it is, its subcommands by section, and its topics.
std::string OverviewText(const Outline& outline, const std::vector<Outline>& subcommands, size_t width, bool styled);

// Makes CLI11 print these texts for --help.
class HelpFormatter : public CLI::Formatter {
 public:
  std::string make_help(const CLI::App* app, std::string name, CLI::AppFormatMode mode) const override;
};

}  // namespace reshard::help

#endif  // RESHARD_TOOLS_RESHARD_HELP_TEXT_H_
