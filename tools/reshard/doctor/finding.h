// Findings about a machine: one fact per line, in text and in JSON.
#ifndef RESHARD_TOOLS_RESHARD_DOCTOR_FINDING_H_
#define RESHARD_TOOLS_RESHARD_DOCTOR_FINDING_H_

#include <string>
#include <vector>

namespace reshard::doctor {

enum class State {
  kThere,
  kMissing,
  kFact,  // neither good nor bad: a number, a name
};

struct Finding {
  std::string subject;  // "NCCL"
  State state = State::kFact;
  std::string detail;  // "2.28.9, from /usr/lib/libnccl.so.2"
  std::string remedy;  // if it is missing: what that costs, or how to get it
};

struct Section {
  std::string title;  // "Machine"
  std::vector<Finding> findings;
};

}  // namespace reshard::doctor

#endif  // RESHARD_TOOLS_RESHARD_DOCTOR_FINDING_H_
