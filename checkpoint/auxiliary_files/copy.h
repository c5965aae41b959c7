// Copies the files beside a checkpoint, and compares them.
#ifndef RESHARD_CHECKPOINT_AUXILIARY_FILES_COPY_H_
#define RESHARD_CHECKPOINT_AUXILIARY_FILES_COPY_H_

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "reshard/checkpoint/side_files.h"

namespace reshard::auxiliary_files {

// Copies each from the directory `from` to the directory `to`, durably except for the names of directories; replaces
// what is there under its name. FailedPrecondition: a file is not what it was when it was found. Errors of the system.
absl::Status Copy(const std::string& from, absl::Span<const AuxiliaryFile> files, const std::string& to);

// The index of the first that is not in the directory `to` with the same bytes; files.size() where there is none.
// Errors of the system, DataLoss: something that is not a regular file.
absl::StatusOr<size_t> FirstDifferent(const std::string& from, absl::Span<const AuxiliaryFile> files,
                                      const std::string& to);

}  // namespace reshard::auxiliary_files

#endif  // RESHARD_CHECKPOINT_AUXILIARY_FILES_COPY_H_
