// What people see besides the data: notes, progress, and how text looks on a terminal.
#ifndef RESHARD_TOOLS_RESHARD_TERMINAL_H_
#define RESHARD_TOOLS_RESHARD_TERMINAL_H_

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <string_view>

#include "reshard/checkpoint/convert.h"

namespace reshard::tool {

// From now on only errors are printed to stderr (--quiet).
void BeQuiet();
// Prints `line` to stderr; nothing after BeQuiet.
void Note(std::string_view line);

// Whether `fd` is a terminal that shows bold and colored text, and the user wants it: NO_COLOR is empty.
bool IsStyled(int fd);
// The columns of the terminal `fd`; elsewhere those of COLUMNS, or 80. Between 40 and 120.
size_t TerminalWidth(int fd);

// Progress on stderr: bytes, rate and time left. On a terminal this is one line that is overwritten; elsewhere a line
// is added every few seconds. Prints nothing after BeQuiet. Thread-safe.
class ProgressLine {
 public:
  // Shows how far the work is.
  void Show(const ConvertProgress& progress);
  // Ends the line that is being overwritten, if any.
  void End();

 private:
  std::mutex mutex_;
  double last_ = 0.0;  // seconds
  bool open_ = false;
};

// While it lives, a process that is told to end (SIGINT, SIGTERM, SIGHUP) first prints `word` to stderr; `word` must
// live as long. One at a time.
class WordOnInterruption {
 public:
  explicit WordOnInterruption(const char* word);
  ~WordOnInterruption();
  WordOnInterruption(const WordOnInterruption&) = delete;
  WordOnInterruption& operator=(const WordOnInterruption&) = delete;
};

// The peak resident memory of this process, in bytes; 0 if it is not known.
int64_t PeakResidentBytes();

}  // namespace reshard::tool

#endif  // RESHARD_TOOLS_RESHARD_TERMINAL_H_
