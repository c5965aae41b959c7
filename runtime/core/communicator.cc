#include "reshard/runtime/communicator.h"

#include <cstdlib>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "runtime/core/host_pool.h"

namespace reshard {

absl::Duration DefaultTimeout() {
  int64_t milliseconds = 0;
  const char* text = std::getenv("RESHARD_TIMEOUT_MS");
  if (text != nullptr && absl::SimpleAtoi(text, &milliseconds) && milliseconds > 0) {
    return absl::Milliseconds(milliseconds);
  }
  return absl::Minutes(10);
}

absl::StatusOr<Memory> Communicator::Allocate(int64_t bytes) {
  Memory memory(AcquireHostBlock(bytes), [bytes](void* block) { ReleaseHostBlock(block, bytes); });
  if (memory == nullptr) return absl::ResourceExhaustedError(absl::StrCat("no memory for ", bytes, " bytes"));
  return memory;
}

}  // namespace reshard
