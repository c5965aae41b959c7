// The files of a checkpoint that say what is where. They are written after all its pieces.
#ifndef RESHARD_CHECKPOINT_OUTPUT_HEADERS_H_
#define RESHARD_CHECKPOINT_OUTPUT_HEADERS_H_

#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "checkpoint/hash/hash.h"
#include "checkpoint/output/output_format.h"
#include "checkpoint/output/output_plan.h"
#include "checkpoint/source/sidecar.h"
#include "reshard/checkpoint/catalog.h"

namespace reshard::output {

// The sidecar, and then the metadata, by name, for the pieces of the plan with these hashes. `contents` is what was
// planned, `id` is what made it, `made` how (Sidecar::made).
absl::StatusOr<std::vector<OutputFormat::NamedBytes>> MakeHeaders(
    const Catalog& contents, const OutputPlan& plan, const std::string& id, absl::Span<const hash::ContentHash> hashes,
    const std::optional<source::Sidecar::Made>& made = std::nullopt);

// Writes them into `directory`, durably. Errors of the system.
absl::Status WriteHeaders(const Catalog& contents, const OutputPlan& plan, const std::string& id,
                          const std::string& directory, absl::Span<const hash::ContentHash> hashes,
                          const std::optional<source::Sidecar::Made>& made = std::nullopt);

}  // namespace reshard::output

#endif  // RESHARD_CHECKPOINT_OUTPUT_HEADERS_H_
