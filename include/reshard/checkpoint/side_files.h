// What lies beside a checkpoint: configurations, tokenizers, what a framework keeps next to the tensors and looks for
// when it loads them.
#ifndef RESHARD_CHECKPOINT_SIDE_FILES_H_
#define RESHARD_CHECKPOINT_SIDE_FILES_H_

#include <cstdint>
#include <string>
#include <vector>

namespace reshard {

// Which files beside a checkpoint belong to it. Those that frameworks are known to look for do: Megatron's `common.pt`
// and `metadata.json`, Lightning's `meta.pt`, the configurations, tokenizers, processors and chat templates of Hugging
// Face models (docs/design/checkpoints.md has the list).
struct SideFileTerms {
  std::vector<std::string> also = {};  // patterns of paths (MatchesPattern) of others that do
  bool none = false;                   // none does
};

// A file beside a checkpoint. It is copied as it is, and nobody reads it.
struct SideFile {
  std::string path;      // relative to the checkpoint's directory, with '/' between its parts
  int64_t bytes = 0;     // its size
  int64_t modified = 0;  // time of the last modification, in nanoseconds since 1970
  std::string to;        // where it goes, relative to the result's directory: `path`, but for those that verl keeps in
                         // `huggingface/`, which go where a Hugging Face model has them
  bool may_run = false;  // a pickle or Python source: whoever loads it runs what is in it
};

}  // namespace reshard

#endif  // RESHARD_CHECKPOINT_SIDE_FILES_H_
