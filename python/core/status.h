// Errors of the library as exceptions of the package (reshard/errors.py).
#ifndef RESHARD_PYTHON_CORE_STATUS_H_
#define RESHARD_PYTHON_CORE_STATUS_H_

#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace reshard::core {

// Raises as planning calls do: UnsupportedError for Unimplemented, LimitError for ResourceExhausted, FileError for
// NotFound, else InputError. Requires the GIL, and !status.ok().
[[noreturn]] void Raise(const absl::Status& status);
// Raises by KindOf(status): InputError, LimitError, FileError or PeerError.
[[noreturn]] void RaiseCheckpoint(const absl::Status& status);

// The value, or the exception.
template <typename T>
T ValueOrRaise(absl::StatusOr<T> result) {
  if (!result.ok()) Raise(result.status());
  return *std::move(result);
}

}  // namespace reshard::core

#endif  // RESHARD_PYTHON_CORE_STATUS_H_
