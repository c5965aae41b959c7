// Finds the files beside a checkpoint.
#ifndef RESHARD_CHECKPOINT_SIDE_FILES_FIND_H_
#define RESHARD_CHECKPOINT_SIDE_FILES_FIND_H_

#include <string>

#include "absl/status/statusor.h"
#include "reshard/checkpoint/catalog.h"
#include "reshard/checkpoint/side_files.h"

namespace reshard::side_files {

// As FindSideFiles (reshard/checkpoint/side_files.h); may throw.
absl::StatusOr<SideFiles> Find(const std::string& path, const Catalog& catalog, const SideFileTerms& terms);

}  // namespace reshard::side_files

#endif  // RESHARD_CHECKPOINT_SIDE_FILES_FIND_H_
