// The files of a checkpoint that say what is where, written when all its pieces are.
#ifndef RESHARD_CHECKPOINT_JOB_HEADERS_H_
#define RESHARD_CHECKPOINT_JOB_HEADERS_H_

#include <string>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "checkpoint/job/hash.h"
#include "checkpoint/job/output_plan.h"
#include "reshard/checkpoint/catalog.h"

namespace reshard {

// Writes the metadata and the sidecar into `directory`, durably. `contents` is what was planned, `hashes` are those of
// the plan's pieces, `id` is what made it. Errors of the system.
absl::Status WriteHeaders(const Catalog& contents, const OutputPlan& plan, const std::string& id,
                          const std::string& directory, absl::Span<const ContentHash> hashes);

}  // namespace reshard

#endif  // RESHARD_CHECKPOINT_JOB_HEADERS_H_
