// Runs the reshard command as a process of its own and says how it ended.
#ifndef RESHARD_TESTS_ATTACKS_RUN_COMMAND_H_
#define RESHARD_TESTS_ATTACKS_RUN_COMMAND_H_

#include <string>
#include <vector>

namespace reshard::testing {

struct CommandResult {
  int exit_code = -1;      // -1: it did not end by itself
  int signal = 0;          // that ended it
  bool timed_out = false;  // killed after a minute
  double cpu_seconds = 0;
  std::string out;
  std::string err;

  std::string FirstErrorLine() const { return err.substr(0, err.find('\n')); }
};

// `arguments` may hold any bytes but NUL; `input` is standard input.
CommandResult RunCommand(const std::vector<std::string>& arguments, const std::string& input = "");

}  // namespace reshard::testing

#endif  // RESHARD_TESTS_ATTACKS_RUN_COMMAND_H_
