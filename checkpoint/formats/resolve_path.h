// The checkpoint that a path means when it names a file that is only part of one.
#ifndef RESHARD_CHECKPOINT_FORMATS_RESOLVE_PATH_H_
#define RESHARD_CHECKPOINT_FORMATS_RESOLVE_PATH_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace reshard::formats {

// What a path means.
struct Meant {
  enum class As {
    kItself,     // whatever is there
    kDirectory,  // whatever is in `directory`
    kDcp,        // the DCP checkpoint in `directory`
    kIndex,      // what the safetensors index files[0] in `directory` says
    kListing,    // what the listing in `directory` says
    kFiles,      // the safetensors `files` in `directory` together
    kBinIndex,   // what the index files[0] of torch.save files in `directory` says
  };
  As as = As::kItself;
  std::string directory = {};
  std::vector<std::string> files = {};
};

// `path` is a path or an admitted URL. A file that says what is where (`.metadata`, `__0.metadata`, `*.index.json`,
// `reshard.json`, `reshard.listing.json`), a `.distcp` file, one shard of several (`model-00001-of-00003.safetensors`
// or `.bin`) and the file of one rank of several (`model_world_size_2_rank_0.pt`, `mp_rank_00/model_optim_rng.pt`) mean
// the checkpoint that they are a part of.
// Everything else means itself, and so does what is not there. Judged by names, of the file and of those beside it.
absl::StatusOr<Meant> FindMeant(const std::string& path);

}  // namespace reshard::formats

#endif  // RESHARD_CHECKPOINT_FORMATS_RESOLVE_PATH_H_
