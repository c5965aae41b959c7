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

// The record of object `number`, which is as `planned` says and has `pieces` hashes; `own` where this process has
// written it. Nothing: there is no such record, or the object is another one than it says.
absl::StatusOr<std::optional<ObjectRecord>> RightRecord(const Target& target, int64_t number,
                                                        const output::OutputPlan::File& planned, size_t pieces,
                                                        const ObjectRecord& own = {});

// Names of what a result of that format with the files `kept` replaces: the files of the checkpoint that is there, but
// for those. FailedPrecondition: it is of another format.
absl::StatusOr<std::vector<std::string>> FindOld(const Target& target, CheckpointFormat format,
                                                 absl::Span<const output::OutputPlan::File> kept,
                                                 const CatalogLimits& limits);

// reshard.json, and then `.metadata` or the index, as output::MakeHeaders has them: the instant at which the checkpoint
// is there. What lies in folders, of which there may be many, is put before all of them, at once. What is replaced
// loses its reshard.json before that instant, and the result gets its own after it: each is whole all the time.
absl::Status PutHeaders(const Target& target, absl::Span<const output::OutputFormat::NamedBytes> headers,
                        bool replaces);

}  // namespace reshard::into_store

#endif  // RESHARD_CHECKPOINT_INTO_STORE_COMMIT_H_
