// What the library does, one line per event on stderr, for a job that is slow or hangs: RESHARD_LOG=info says which
// plans are chosen, where ranks meet and which rank a rank waits for; RESHARD_LOG=debug also every operation between
// processes, except those over NCCL. Off, it costs one comparison.
#ifndef RESHARD_STATUS_LOG_H_
#define RESHARD_STATUS_LOG_H_

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace reshard::status {

enum class LogLevel { kOff = 0, kInfo = 1, kDebug = 2 };

// The level that RESHARD_LOG asks for ("info" or "debug", which includes info); anything else is kOff. Read once.
LogLevel ProcessLogLevel();
inline bool Logs(LogLevel level) { return ProcessLogLevel() >= level; }

// Writes one whole line to stderr: "reshard 12:34:56.789 rank 3 info: TEXT". The rank is the launcher's (RANK,
// OMPI_COMM_WORLD_RANK, PMI_RANK, SLURM_PROCID), else "pid N". Thread-safe; never fails.
void Log(LogLevel level, absl::string_view text);

// How long a wait lasts before it is logged, and how often it is logged again: every 5 seconds.
inline constexpr double kLoggedWaitSeconds = 5;

}  // namespace reshard::status

// Logs the concatenation of the arguments, which are evaluated only if the level is on.
#define RESHARD_LOG(level, ...)                                                              \
  do {                                                                                       \
    if (::reshard::status::Logs(::reshard::status::LogLevel::level)) {                       \
      ::reshard::status::Log(::reshard::status::LogLevel::level, absl::StrCat(__VA_ARGS__)); \
    }                                                                                        \
  } while (false)

#endif  // RESHARD_STATUS_LOG_H_
