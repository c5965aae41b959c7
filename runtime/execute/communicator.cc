#include "reshard/runtime/communicator.h"

#include <cstdlib>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "reshard/layout/text.h"
#include "runtime/execute/agreement.h"
#include "runtime/host/host_pool.h"

namespace reshard {

bool DefaultSharedMemory() {
  const char* const wanted = std::getenv("RESHARD_SHARED_MEMORY");
  return wanted == nullptr || absl::string_view(wanted) != "0";
}

absl::Duration DefaultTimeout() {
  int64_t milliseconds = 0;
  const char* text = std::getenv("RESHARD_TIMEOUT_MS");
  if (text != nullptr && absl::SimpleAtoi(text, &milliseconds) && milliseconds > 0) {
    return absl::Milliseconds(milliseconds);
  }
  return absl::Minutes(10);
}

bool NamesRanks(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kAborted:
    case absl::StatusCode::kUnavailable:
    case absl::StatusCode::kDeadlineExceeded:
      return true;
    default:
      return status.GetPayload(execute::kNamesRanks).has_value();
  }
}

absl::Status Communicator::CheckRanksOf(const Mesh& mesh) const {
  for (int64_t position = 0; position < mesh.size(); ++position) {
    if (has_rank(mesh.Device(position))) continue;
    return absl::InvalidArgumentError(absl::StrCat("mesh ", ToString(mesh), " has device ", mesh.Device(position),
                                                   ", which is not one of the ", world_size(), " ranks"));
  }
  return absl::OkStatus();
}

absl::StatusOr<Memory> Communicator::Allocate(int64_t bytes) {
  Memory memory(host::AcquireHostBlock(bytes), [bytes](void* block) { host::ReleaseHostBlock(block, bytes); });
  if (memory == nullptr) return absl::ResourceExhaustedError(absl::StrCat("no memory for ", bytes, " bytes"));
  return memory;
}

}  // namespace reshard
