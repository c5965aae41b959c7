// Runs the built command without a shell, with a time limit.
#ifndef RESHARD_TESTS_ATTACKS_COMMAND_H_
#define RESHARD_TESTS_ATTACKS_COMMAND_H_

#include <cstdint>
#include <string>
#include <vector>

struct Outcome {
  int code = -1;  // exit status; 128 + n when signal n ended it
  std::string out;
  std::string err;
  double cpu_seconds = 0;  // of the command, not of waiting for a busy machine
  int64_t peak_bytes = 0;  // of memory, at most; the test's own before the command began is part of it
};

// `input` is its standard input. Ends the command after 60 seconds.
Outcome RunReshard(const std::vector<std::string>& args, const std::string& input = "");

#endif  // RESHARD_TESTS_ATTACKS_COMMAND_H_
