// The end of a job that writes a checkpoint into a store: its objects are there, and become the checkpoint.
#ifndef RESHARD_CHECKPOINT_INTO_STORE_COMMIT_H_
#define RESHARD_CHECKPOINT_INTO_STORE_COMMIT_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "checkpoint/into_store/store_job.h"
#include "checkpoint/output/output_format.h"
#include "checkpoint/output/output_plan.h"
#include "reshard/checkpoint/catalog.h"
#include "reshard/checkpoint/store.h"

namespace reshard::into_store {

// Where a job writes.
struct Target {
  Store& store;
  const std::string& url;
  const StoreJob& job;
};

// The record of object `number`, if it agrees with `planned`, has `pieces` hashes, and describes the object that the
// store has; otherwise nullopt. `own` is the record if this process has written the object.
absl::StatusOr<std::optional<ObjectRecord>> RightRecord(const Target& target, int64_t number,
                                                        const output::OutputPlan::File& planned, size_t pieces,
                                                        const ObjectRecord& own = {});

// Names of what a result of that format with the files `kept` replaces: all other files of the checkpoint there.
// FailedPrecondition: that checkpoint is of another format.
absl::StatusOr<std::vector<std::string>> FindOld(const Target& target, CheckpointFormat format,
                                                 absl::Span<const output::OutputPlan::File> kept,
                                                 const CatalogLimits& limits);

// Puts the headers in the order of output::MakeHeaders: reshard.json, and then `.metadata` or the index, which is the
// instant at which the checkpoint is there. Headers in folders, of which there may be many, are put first, in parallel.
// What is replaced loses its reshard.json before that instant, and the result gets its own after it, so that each is
// whole all the time.
absl::Status PutHeaders(const Target& target, absl::Span<const output::OutputFormat::NamedBytes> headers,
                        bool replaces);

}  // namespace reshard::into_store

#endif  // RESHARD_CHECKPOINT_INTO_STORE_COMMIT_H_
