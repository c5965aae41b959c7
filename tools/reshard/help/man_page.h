// Manual pages, as text for man(1) in the macros of man(7).
#ifndef RESHARD_TOOLS_RESHARD_HELP_MAN_PAGE_H_
#define RESHARD_TOOLS_RESHARD_HELP_MAN_PAGE_H_

#include <string>
#include <vector>

#include "tools/reshard/help/outline.h"
#include "tools/reshard/help/topics.h"

namespace reshard::help {

// A page of the manual: reshard.1, reshard-plan.1, reshard-layouts.7.
struct ManPage {
  std::string file;
  std::string text;
};

// The pages of the command, of each of its subcommands, and of each topic.
std::vector<ManPage> ManPages(const Outline& outline, const std::vector<Outline>& subcommands,
                              const std::vector<Topic>& topics);

}  // namespace reshard::help

#endif  // RESHARD_TOOLS_RESHARD_HELP_MAN_PAGE_H_
