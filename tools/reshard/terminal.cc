#include "tools/reshard/terminal.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <string>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace reshard::tool {
namespace {

constexpr double kSecondsBetweenLines = 5.0;

std::atomic<bool> quiet = false;

constexpr std::array<int, 3> kSignals = {SIGINT, SIGTERM, SIGHUP};
// What to print when one of them arrives, and what they did before.
std::atomic<const char*> last_word = nullptr;
std::array<struct sigaction, kSignals.size()> actions_before;

// Only what a signal handler may do.
extern "C" void SayLastWord(int number) {
  if (const char* const word = last_word.load()) (void)!write(STDERR_FILENO, word, std::strlen(word));
  signal(number, SIG_DFL);
  raise(number);
}

}  // namespace

void BeQuiet() { quiet = true; }

void Note(std::string_view line) {
  if (!quiet) std::fprintf(stderr, "%.*s\n", static_cast<int>(line.size()), line.data());
}

bool IsStyled(int fd) {
  const char* const refused = std::getenv("NO_COLOR");
  const char* const kind = std::getenv("TERM");
  const bool wanted = (refused == nullptr || *refused == '\0') && kind != nullptr && std::strcmp(kind, "dumb") != 0;
  return wanted && isatty(fd) != 0;
}

size_t TerminalWidth(int fd) {
  constexpr int kUsual = 80, kLeast = 40, kMost = 120;
  int columns = 0;
  winsize size{};
  if (ioctl(fd, TIOCGWINSZ, &size) == 0) columns = size.ws_col;
  const char* const said = std::getenv("COLUMNS");
  if (columns == 0 && (said == nullptr || !absl::SimpleAtoi(said, &columns) || columns <= 0)) columns = kUsual;
  return static_cast<size_t>(std::clamp(columns, kLeast, kMost));
}

WordOnInterruption::WordOnInterruption(const char* word) {
  last_word = word;
  for (size_t i = 0; i < kSignals.size(); ++i) {
    struct sigaction say = {};
    say.sa_handler = SayLastWord;
    sigaction(kSignals[i], nullptr, &actions_before[i]);
    if (actions_before[i].sa_handler != SIG_IGN) sigaction(kSignals[i], &say, nullptr);  // nohup stays nohup
  }
}

WordOnInterruption::~WordOnInterruption() {
  for (size_t i = 0; i < kSignals.size(); ++i) sigaction(kSignals[i], &actions_before[i], nullptr);
  last_word = nullptr;
}

void ProgressLine::Show(const ConvertProgress& progress) {
  if (quiet) return;
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
  const double share =
      progress.total > 0 ? static_cast<double>(progress.done) / static_cast<double>(progress.total) : 1;
  std::string line;
  if (terminal) {
    constexpr int kWidth = 24;
    const auto full = static_cast<size_t>(std::lround(share * kWidth));
    line = absl::StrCat("\r[", std::string(full, '#'), std::string(kWidth - full, '.'), "] ");
  }
  line += ToString(progress);
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
