// Finds the files beside a checkpoint.
#ifndef RESHARD_CHECKPOINT_SIDE_FILES_FIND_H_
#define RESHARD_CHECKPOINT_SIDE_FILES_FIND_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "reshard/checkpoint/catalog.h"
#include "reshard/checkpoint/side_files.h"

namespace reshard::side_files {

struct Found {
  std::vector<SideFile> carried;  // by path
  std::vector<std::string> left;  // paths of all else that lies there, sorted; a directory that was not entered as "a/"
};

// What lies in the directory of the checkpoint at `path`, beside the files that the catalog was read from. Nothing
// where `path` is a file: what is in its directory need not belong to it.
//
// Never carried, whatever the terms say: files with tensors or their index in any format, and what this library writes
// itself; what is no regular file; links, but for those of a hub's cache, which lead from a snapshot to `blobs` beside
// all snapshots. Not entered: links, directories in which nothing is looked for, of which the name begins with a dot,
// that have a checkpoint of their own in them, that are deeper than 8, or that come after the first 10,000 entries.
// Errors of the system.
absl::StatusOr<Found> Find(const std::string& path, const Catalog& catalog, const SideFileTerms& terms);

}  // namespace reshard::side_files

#endif  // RESHARD_CHECKPOINT_SIDE_FILES_FIND_H_
