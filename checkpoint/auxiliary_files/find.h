// Finds the files beside a checkpoint.
#ifndef RESHARD_CHECKPOINT_AUXILIARY_FILES_FIND_H_
#define RESHARD_CHECKPOINT_AUXILIARY_FILES_FIND_H_

#include <string>

#include "absl/status/statusor.h"
#include "reshard/checkpoint/catalog.h"
#include "reshard/checkpoint/side_files.h"

namespace reshard::auxiliary_files {

// As FindAuxiliaryFiles (reshard/checkpoint/side_files.h); may throw.
absl::StatusOr<AuxiliaryFiles> Find(const std::string& path, const Catalog& catalog, const AuxiliaryFileTerms& terms);

}  // namespace reshard::auxiliary_files

#endif  // RESHARD_CHECKPOINT_AUXILIARY_FILES_FIND_H_
