// What remains when all pieces are written: the files that say what is where, and the last look at the result.
#ifndef RESHARD_CHECKPOINT_JOB_FINISH_H_
#define RESHARD_CHECKPOINT_JOB_FINISH_H_

#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "checkpoint/job/conversion.h"
#include "checkpoint/job/hash.h"

namespace reshard {

// Writes the metadata and the sidecar into `directory`, durably; `hashes` are those of the plan's pieces.
absl::Status WriteHeaders(const Conversion& conversion, const std::string& directory,
                          absl::Span<const ContentHash> hashes);

// Internal: what is in `directory` differs from the source.
absl::Status CompareResult(const Conversion& conversion, const std::string& directory,
                           const std::function<void(const ConvertProgress&)>& progress);

}  // namespace reshard

#endif  // RESHARD_CHECKPOINT_JOB_FINISH_H_
