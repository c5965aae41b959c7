// What a shell completes: subcommands, flags, and the words that a flag chooses from; paths where a path is accepted.
#ifndef RESHARD_TOOLS_RESHARD_HELP_COMPLETION_H_
#define RESHARD_TOOLS_RESHARD_HELP_COMPLETION_H_

#include <string>
#include <vector>

#include "tools/reshard/help/outline.h"
#include "tools/reshard/help/topics.h"

namespace reshard::help {

// Self-contained scripts for the shells: they never run the command.
std::string BashCompletion(const Outline& outline, const std::vector<Outline>& subcommands,
                           const std::vector<Topic>& topics);
std::string ZshCompletion(const Outline& outline, const std::vector<Outline>& subcommands,
                          const std::vector<Topic>& topics);
std::string FishCompletion(const Outline& outline, const std::vector<Outline>& subcommands,
                           const std::vector<Topic>& topics);

}  // namespace reshard::help

#endif  // RESHARD_TOOLS_RESHARD_HELP_COMPLETION_H_
