// Makes streams that have been written into a directory, or below a URL, a checkpoint, at one instant, in place of the
// one that is there: what else lies there, which frameworks put there, stays.
//
// The files of streams have names that nothing in the directory had. The steps, each of which may be the last one that
// happens:
//
//   1  Read which files the checkpoint that is there consists of; one that cannot be read leaves its files behind.
//   2  Write and sync NAME.tmp, sync the directory, with it the names of the streams.
//   3  Remove the old reshard.json, which would contradict what comes: the old checkpoint is whole without it.
//   4  Rename NAME.tmp to NAME, sync the directory. This is the instant at which the checkpoint changes.
//   5  Write the new reshard.json.
//   6  Remove the files of streams that belong to no checkpoint any more: those of the old one, and those of saves that
//      were interrupted.
//
// In a store there is no NAME.tmp: step 4 puts the object NAME, and nothing needs to be synced.
#ifndef RESHARD_CHECKPOINT_LIVE_REPLACE_METADATA_H_
#define RESHARD_CHECKPOINT_LIVE_REPLACE_METADATA_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "checkpoint/source/sidecar.h"

namespace reshard::live {

struct NewMetadata {
  std::string bytes;  // of `.metadata`, or of `__RANK.metadata`
  int64_t rank = -1;  // -1: of all ranks; otherwise only of what this one wrote, and only its files are replaced
  std::vector<std::string> files;              // of streams, relative to the directory
  std::vector<source::Sidecar::Chunk> chunks;  // of all streams; none: there are no hashes, and no reshard.json
};

// Errors of the system or of the store. After one before step 4 the directory has the checkpoint that it had.
absl::Status ReplaceMetadata(const std::string& directory, const NewMetadata& metadata);

}  // namespace reshard::live

#endif  // RESHARD_CHECKPOINT_LIVE_REPLACE_METADATA_H_
