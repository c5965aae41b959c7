#include "checkpoint/io/error_kind.h"

#include <cassert>
#include <string>
#include <utility>

#include "absl/strings/cord.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace reshard {
namespace {

constexpr absl::string_view kKindUrl = "reshard/checkpoint-error";

}  // namespace

absl::Status io::WithKind(absl::Status status, CheckpointError kind) {
  if (!status.ok()) status.SetPayload(kKindUrl, absl::Cord(absl::StrCat(static_cast<int>(kind))));
  return status;
}

absl::Status io::FromSystem(absl::Status status) { return io::WithKind(std::move(status), CheckpointError::kSystem); }

CheckpointError KindOf(const absl::Status& status) {
  assert(!status.ok());
  if (const absl::optional<absl::Cord> kind = status.GetPayload(kKindUrl)) {
    int value = 0;
    if (absl::SimpleAtoi(std::string(*kind), &value)) return static_cast<CheckpointError>(value);
  }
  switch (status.code()) {
    case absl::StatusCode::kNotFound:
    case absl::StatusCode::kUnavailable:
    case absl::StatusCode::kPermissionDenied:
    case absl::StatusCode::kAlreadyExists:
      return CheckpointError::kSystem;
    case absl::StatusCode::kInternal:
    case absl::StatusCode::kUnknown:
      return CheckpointError::kInternal;
    default:
      return CheckpointError::kInput;
  }
}

}  // namespace reshard
