#include "status/log.h"

#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <string>

#include "absl/time/clock.h"
#include "absl/time/time.h"

namespace reshard::status {
namespace {

LogLevel LevelOfEnvironment() {
  const char* const text = std::getenv("RESHARD_LOG");
  if (text == nullptr) return LogLevel::kOff;
  if (std::strcmp(text, "debug") == 0) return LogLevel::kDebug;
  return std::strcmp(text, "info") == 0 ? LogLevel::kInfo : LogLevel::kOff;
}

std::string RankOfEnvironment() {
  for (const char* name : {"RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_PROCID"}) {
    if (const char* const rank = std::getenv(name); rank != nullptr && *rank != '\0') {
      return absl::StrCat("rank ", absl::string_view(rank).substr(0, 20));
    }
  }
  return absl::StrCat("pid ", getpid());
}

}  // namespace

LogLevel ProcessLogLevel() {
  static const LogLevel level = LevelOfEnvironment();
  return level;
}

void Log(LogLevel level, absl::string_view text) {
  const std::string line =
      absl::StrCat("reshard ", absl::FormatTime("%H:%M:%E3S", absl::Now(), absl::LocalTimeZone()), " ",
                   RankOfEnvironment(), level == LogLevel::kDebug ? " debug: " : " info: ", text, "\n");
  // One write, so that lines of several ranks do not mix.
  [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, line.data(), line.size());
}

}  // namespace reshard::status
