// The command's exit codes, and how an error reaches the user: as one line with the reason (and, for text formats, the
// text with a caret) on stderr, while stdout stays empty.
#ifndef RESHARD_TOOLS_RESHARD_EXIT_CODE_H_
#define RESHARD_TOOLS_RESHARD_EXIT_CODE_H_

#include <string>
#include <string_view>

#include "absl/status/status.h"

namespace reshard::tool {

enum ExitCode {
  kOk = 0,
  kDifferences = 1,  // ran and found differences
  kUsage = 2,        // bad flag or flag value
  kInfeasible = 3,   // no feasible plan, or over a limit
  kBadInput = 4,     // bad or corrupt input
  kIo = 5,           // missing or unwritable file
  kPeer = 6,         // a peer or a collective failed
  kInternal = 70,
};

// Where a status comes from decides what it means: a refused notation is bad input, a plan that cannot exist is
// infeasible.
enum class Stage { kInput, kPlan, kRun };
ExitCode ExitCodeOf(const absl::Status& status, Stage stage);

// The same for statuses of the checkpoint library, which carry their own kind.
ExitCode ExitCodeOfCheckpoint(const absl::Status& status);

// Prints "reshard: <message>" to stderr and returns the code.
int Fail(ExitCode code, std::string_view message);
int Fail(const absl::Status& status, Stage stage);
int FailCheckpoint(const absl::Status& status);

// While it lives, Fail keeps its messages here instead of printing them. One at a time, and only on one thread.
class HeldErrors {
 public:
  HeldErrors();
  ~HeldErrors();
  HeldErrors(const HeldErrors&) = delete;
  HeldErrors& operator=(const HeldErrors&) = delete;
  // The messages so far.
  const std::string& text() const { return text_; }

 private:
  std::string text_;
};

// Writes data to stdout. Returns kOk; if not all of it was written, prints the error and returns kIo.
int Print(std::string_view data);
// From now on Print writes nothing (--quiet).
void PrintNothing();

}  // namespace reshard::tool

#endif  // RESHARD_TOOLS_RESHARD_EXIT_CODE_H_
