#include "tools/reshard/exit_code.h"

#include <cstdio>
#include <string>

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

int Fail(ExitCode code, std::string_view message) {
  const std::string line = "reshard: " + std::string(message) + "\n";
  std::fwrite(line.data(), 1, line.size(), stderr);
  return code;
}

int Fail(const absl::Status& status, Stage stage) {
  return Fail(ExitCodeOf(status, stage), std::string(status.message()));
}

}  // namespace reshard::tool
