// Which files of a directory are those of a checkpoint of DeepSpeed.
#ifndef RESHARD_CHECKPOINT_FORMATS_DEEPSPEED_FILES_H_
#define RESHARD_CHECKPOINT_FORMATS_DEEPSPEED_FILES_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"

namespace reshard::deepspeed {

struct Files {
  std::string within;                   // where they are below the directory: empty, or ends with '/'
  std::vector<std::string> models;      // within/*_model_states.pt, by rank: one, or with ZeRO 3 one per rank
  std::vector<std::string> optimizers;  // within/*_optim_states.pt, by rank; none without ZeRO
  bool is_universal = false;            // there is a directory `zero` with a directory per parameter

  bool empty() const { return models.empty() && optimizers.empty(); }
};

// The files of a checkpoint in a directory with these names in it, or in the one below it that its file `latest` names;
// empty where there are none. DataLoss: files of some ranks are missing (which). Unimplemented: parts of model-parallel
// ranks, stages of a pipeline, experts in files of their own.
absl::StatusOr<Files> FindFiles(const std::string& directory, absl::Span<const std::string> names);

}  // namespace reshard::deepspeed

#endif  // RESHARD_CHECKPOINT_FORMATS_DEEPSPEED_FILES_H_
