#include "python/core/status.h"

#include <nanobind/nanobind.h>

#include <cassert>
#include <string>

#include "reshard/checkpoint/error.h"

namespace reshard::core {
namespace {

namespace nb = nanobind;

[[noreturn]] void RaiseAs(const char* name, const absl::Status& status) {
  const nb::object type = nb::module_::import_("reshard.errors").attr(name);
  PyErr_SetString(type.ptr(), std::string(status.message()).c_str());
  throw nb::python_error();
}

}  // namespace

void Raise(const absl::Status& status) {
  assert(PyGILState_Check() == 1 && !status.ok());
  switch (status.code()) {
    case absl::StatusCode::kUnimplemented:
      RaiseAs("UnsupportedError", status);
    case absl::StatusCode::kResourceExhausted:
      RaiseAs("LimitError", status);
    case absl::StatusCode::kNotFound:
      RaiseAs("FileError", status);
    default:
      RaiseAs("InputError", status);
  }
}

void RaiseCheckpoint(const absl::Status& status) {
  switch (KindOf(status)) {
    case CheckpointError::kMemoryLimit:
      RaiseAs("LimitError", status);
    case CheckpointError::kSystem:
      RaiseAs(absl::IsNotFound(status)        ? "MissingFileError"
              : absl::IsAlreadyExists(status) ? "ExistingFileError"
                                              : "FileError",
              status);
    case CheckpointError::kPeer:
      RaiseAs("PeerError", status);
    case CheckpointError::kInternal:
      RaiseAs("ReshardError", status);
    case CheckpointError::kInput:
      break;
  }
  RaiseAs("InputError", status);
}

}  // namespace reshard::core
