#include "tools/reshard/terminal.h"

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <string>

#include "absl/strings/str_format.h"
#include "reshard/planner/units.h"

namespace reshard::tool {
namespace {

constexpr double kSecondsBetweenLines = 5.0;

}  // namespace

void ProgressLine::Show(const ConvertProgress& progress) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const bool terminal = isatty(STDERR_FILENO) != 0;
  if (progress.waiting_for > 0) {
    if (open_) std::fputc('\n', stderr);
    open_ = false;
    std::fprintf(stderr, "this worker is done; waiting for %lld others\n",
                 static_cast<long long>(progress.waiting_for));
    return;
  }
  const bool last = progress.done >= progress.total;
  if (!terminal && progress.seconds - last_ < kSecondsBetweenLines && !(last && last_ > 0.0)) return;
  last_ = progress.seconds;
  const double rate = static_cast<double>(progress.done) / std::max(1e-9, progress.seconds);
  const double left = rate > 0.0 ? static_cast<double>(progress.total - progress.done) / rate : 0.0;
  const double share =
      progress.total > 0 ? static_cast<double>(progress.done) / static_cast<double>(progress.total) : 1;
  std::string line;
  if (terminal) {
    constexpr int kWidth = 24;
    const auto full = static_cast<size_t>(std::lround(share * kWidth));
    line = absl::StrFormat("\r[%s%s] ", std::string(full, '#'), std::string(kWidth - full, '.'));
  }
  absl::StrAppendFormat(&line, "%s of %s, %s/s, %.0f s left", HumanBytes(progress.done), HumanBytes(progress.total),
                        HumanBytes(std::llround(rate)), left);
  line += terminal ? "\x1b[K" : "\n";
  std::fwrite(line.data(), 1, line.size(), stderr);
  open_ = terminal;
}

void ProgressLine::End() {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (open_) std::fputc('\n', stderr);
  open_ = false;
}

int64_t PeakResidentBytes() {
  // Not getrusage, whose maximum includes that of the program that exec replaced.
  std::ifstream status("/proc/self/status");
  for (std::string word; status >> word;) {
    int64_t kibibytes = 0;
    if (word == "VmHWM:" && status >> kibibytes) return kibibytes * 1024;
  }
  return 0;
}

}  // namespace reshard::tool
