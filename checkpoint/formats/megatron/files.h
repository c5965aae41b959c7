// Which files of a directory are those of a checkpoint in Megatron's legacy format (--ckpt-format torch).
#ifndef RESHARD_CHECKPOINT_FORMATS_MEGATRON_FILES_H_
#define RESHARD_CHECKPOINT_FORMATS_MEGATRON_FILES_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"

namespace reshard::megatron {

// The file of one model-parallel rank.
struct RankFile {
  std::string name;              // below the directory: "mp_rank_01_002/model_optim_rng.pt"
  std::vector<int64_t> numbers;  // of the rank: {1, 2}; the file itself says of which axes
};

// The files of a checkpoint in a directory with these names in it, or in the one below it that its file
// `latest_checkpointed_iteration.txt` names, in ascending order of their numbers; none where there is none.
// DataLoss: a directory of a rank without its file; ranks with one number more than others.
absl::StatusOr<std::vector<RankFile>> FindFiles(const std::string& directory, absl::Span<const std::string> names);

// Whether the path is that of the file of a rank: `.../mp_rank_00/model_optim_rng.pt`.
bool IsFileOfRank(std::string_view path);
// For such a path, the directory with the ranks. Empty where there is no other rank: the file has all of the model.
std::string DirectoryOfRanks(const std::string& path);

}  // namespace reshard::megatron

#endif  // RESHARD_CHECKPOINT_FORMATS_MEGATRON_FILES_H_
