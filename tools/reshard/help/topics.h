// Short texts about what several subcommands have in common.
#ifndef RESHARD_TOOLS_RESHARD_HELP_TOPICS_H_
#define RESHARD_TOOLS_RESHARD_HELP_TOPICS_H_

#include <string_view>
#include <vector>

namespace reshard::help {

struct Topic {
  std::string_view name;     // as `reshard help` takes it
  std::string_view meaning;  // one line
  std::string_view
      text;  // of at most 80 columns and a screen of 24 lines; lines that begin with "  reshard" can be run
};

const std::vector<Topic>& Topics();

}  // namespace reshard::help

#endif  // RESHARD_TOOLS_RESHARD_HELP_TOPICS_H_
