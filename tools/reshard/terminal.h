// What the commands on checkpoints show while they work and when they are done.
#ifndef RESHARD_TOOLS_RESHARD_TERMINAL_H_
#define RESHARD_TOOLS_RESHARD_TERMINAL_H_

#include <cstdint>
#include <mutex>

#include "reshard/checkpoint/convert.h"

namespace reshard::tool {

// Progress on stderr: bytes, rate and time left. A line that is written over on a terminal; elsewhere a line now and
// then. From any thread.
class ProgressLine {
 public:
  void Show(const ConvertProgress& progress);
  // Ends the line that is written over.
  void End();

 private:
  std::mutex mutex_;
  double last_ = 0.0;  // seconds
  bool open_ = false;
};

// The most memory that this process has had, in bytes.
int64_t PeakResidentBytes();

}  // namespace reshard::tool

#endif  // RESHARD_TOOLS_RESHARD_TERMINAL_H_
