#include "reshard/runtime/communicator.h"

#include <cstdlib>

#include "absl/strings/numbers.h"

namespace reshard {

absl::Duration DefaultTimeout() {
  int64_t milliseconds = 0;
  const char* text = std::getenv("RESHARD_TIMEOUT_MS");
  if (text != nullptr && absl::SimpleAtoi(text, &milliseconds) && milliseconds > 0) {
    return absl::Milliseconds(milliseconds);
  }
  return absl::Minutes(10);
}

}  // namespace reshard
