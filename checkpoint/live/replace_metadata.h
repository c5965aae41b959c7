// Turns streams that are already written into a directory, or below a URL, into a checkpoint. It replaces the old one
// at one instant; everything else that frameworks put there stays.
//
// The files of the new streams have names that did not exist in the directory. The steps, each of which may be the last
// one that happens:
//
//   1  Read which files the old checkpoint consists of; if it cannot be read, its files are left behind.
//   2  Write and sync NAME.tmp, sync the directory, and with it the names of the streams.
//   3  Remove the old reshard.json, which would contradict the new metadata: the old checkpoint is whole without it.
//   4  Rename NAME.tmp to NAME, sync the directory. This is the instant at which the checkpoint changes.
//   5  Write the new reshard.json.
//   6  Remove the files of streams that no longer belong to a checkpoint: those of the old one, and those of
//      interrupted saves.
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
  int64_t rank = -1;  // -1: of all ranks; otherwise of what this rank wrote, and only its files are replaced
  std::vector<std::string> files;              // of streams, relative to the directory
  std::vector<source::Sidecar::Chunk> chunks;  // of all streams; none: there are no hashes, and no reshard.json
};

// Takes the steps above. Errors of the system or of the store; after an error before step 4 the old checkpoint is still
// there.
absl::Status ReplaceMetadata(const std::string& directory, const NewMetadata& metadata);

}  // namespace reshard::live

#endif  // RESHARD_CHECKPOINT_LIVE_REPLACE_METADATA_H_
