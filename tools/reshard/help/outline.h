// What a subcommand accepts, read from its definition in CLI11: the single source of its help, its man page and its
// shell completion.
#ifndef RESHARD_TOOLS_RESHARD_HELP_OUTLINE_H_
#define RESHARD_TOOLS_RESHARD_HELP_OUTLINE_H_

#include <CLI/App.hpp>
#include <string>
#include <vector>

namespace reshard::help {

// A flag, or an argument without one.
struct Flag {
  std::vector<std::string> names;  // as one types them, the long one first: --quiet, -q; of an argument its name: MESH
  std::string value;      // what follows, by its kind: FILE, MESH, BYTES, or the words to choose from: time|bytes
  std::string initially;  // the default; may be empty
  std::string meaning;
  bool required = false;
  bool repeats = false;

  // The words to choose from: those that `value` lists, or the dtypes; empty if there are none.
  std::vector<std::string> Choices() const;
  // Whether the value may be a path.
  bool TakesPath() const;
};

struct FlagGroup {
  std::string title;
  std::vector<Flag> flags;
};

// A command line, and what it is for.
struct Example {
  std::string purpose;  // what it is for; may be empty
  std::string command;  // a line for a shell
};

struct Outline {
  std::string name;  // plan; for the command itself: reshard
  std::vector<std::string> aliases;
  std::string meaning;  // one line
  std::string section;  // under which the command lists it
  std::vector<Flag> arguments;
  std::vector<FlagGroup> flags;  // groups and flags in the order of their declaration, "General" last
  std::vector<Example> examples;
};

// An example is two lines of the footer, or one: "# purpose", and the command.
Outline OutlineOf(const CLI::App& app);
// All subcommands in the order of their declaration.
std::vector<Outline> OutlinesOfSubcommands(const CLI::App& app);

}  // namespace reshard::help

#endif  // RESHARD_TOOLS_RESHARD_HELP_OUTLINE_H_
