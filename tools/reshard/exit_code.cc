#include "tools/reshard/exit_code.h"

#include <unistd.h>

#include <cstdio>
#include <string>

#include "absl/strings/str_cat.h"
#include "reshard/checkpoint/convert.h"
#include "reshard/layout/characters.h"
#include "tools/reshard/terminal.h"

namespace reshard::tool {

ExitCode ExitCodeOf(const absl::Status& status, Stage stage) {
  switch (status.code()) {
    case absl::StatusCode::kOk:
      return kOk;
    case absl::StatusCode::kInvalidArgument:
    case absl::StatusCode::kDataLoss:
      return kBadInput;
    case absl::StatusCode::kUnimplemented:
    case absl::StatusCode::kResourceExhausted:
    case absl::StatusCode::kFailedPrecondition:
      return stage == Stage::kInput ? kBadInput : kInfeasible;
    case absl::StatusCode::kNotFound:
      return kIo;
    case absl::StatusCode::kUnavailable:
    case absl::StatusCode::kDeadlineExceeded:
    case absl::StatusCode::kAborted:
      return kPeer;
    default:
      return kInternal;
  }
}

ExitCode ExitCodeOfCheckpoint(const absl::Status& status) {
  switch (KindOf(status)) {
    case CheckpointError::kInput:
      return kBadInput;
    case CheckpointError::kMemoryLimit:
      return kInfeasible;
    case CheckpointError::kSystem:
      return kIo;
    case CheckpointError::kPeer:
      return kPeer;
    case CheckpointError::kInternal:
      break;
  }
  return kInternal;
}

namespace {

std::string* held_errors = nullptr;
bool prints_nothing = false;

}  // namespace

HeldErrors::HeldErrors() { held_errors = &text_; }
HeldErrors::~HeldErrors() { held_errors = nullptr; }

int Fail(ExitCode code, std::string_view message) {
  if (held_errors != nullptr) {
    absl::StrAppend(held_errors, held_errors->empty() ? "" : "; ", std::string(message));
    return code;
  }
  // The reason is at the end, often after a path of any length.
  constexpr size_t kLongest = 1900, kBegin = 1200, kEnd = 600;
  constexpr absl::string_view kName = "reshard:";
  std::string line(message);
  if (message.size() > kLongest) {
    line = std::string(message.substr(0, kBegin)) + "... (" + std::to_string(message.size()) + " bytes) ..." +
           std::string(message.substr(message.size() - kEnd));
  }
  // A message may repeat a name from a file, which must not control the terminal.
  line = absl::StrCat(kName, " ", VisibleLines(line), "\n");
  if (IsStyled(STDERR_FILENO)) line.replace(0, kName.size(), absl::StrCat("\x1b[1;31m", kName, "\x1b[0m"));
  std::fwrite(line.data(), 1, line.size(), stderr);
  return code;
}

int Fail(const absl::Status& status, Stage stage) {
  return Fail(ExitCodeOf(status, stage), std::string(status.message()));
}

void PrintNothing() { prints_nothing = true; }

int Print(std::string_view data) {
  if (prints_nothing) return kOk;
  if (std::fwrite(data.data(), 1, data.size(), stdout) == data.size() && std::fflush(stdout) == 0) return kOk;
  return Fail(kIo, "cannot write to standard output");
}

int FailCheckpoint(const absl::Status& status) {
  return Fail(ExitCodeOfCheckpoint(status), std::string(status.message()));
}

}  // namespace reshard::tool
