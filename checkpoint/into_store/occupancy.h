// A place in a store where a checkpoint is written: what is there already, and what of it is some job's.
#ifndef RESHARD_CHECKPOINT_INTO_STORE_OCCUPANCY_H_
#define RESHARD_CHECKPOINT_INTO_STORE_OCCUPANCY_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "reshard/checkpoint/store.h"

namespace reshard::into_store {

// A job that has begun to write there and has not come to its end.
struct LeftJob {
  std::string name;
  std::string folder;              // StoreJob::folder
  std::vector<std::string> names;  // of what it writes; empty where it was killed before it said so
  bool is_alive = false;
};

struct Occupancy {
  std::vector<std::string> others;  // what is there, and is not what one of the jobs writes
  std::vector<LeftJob> jobs;        // by folder
};

// Where a job shows no sign of life, that takes some seconds to see, unless it is `own`, a folder: that is not looked
// into, and may be alive.
absl::StatusOr<Occupancy> LookAt(Store& store, const std::string& url, const std::string& own = "");

// FailedPrecondition: one of the jobs, but for `own`, is alive. AlreadyExists: there are others, and no `overwrite`.
absl::Status CheckFree(const Occupancy& there, const std::string& url, bool overwrite, const std::string& own = "");

// What a job has written and what it was to replace, but for what belongs to the checkpoint that is there; and its
// folder.
absl::Status RemoveLeft(Store& store, const std::string& url, const LeftJob& job);

// At the same time.
absl::Status DeleteAll(Store& store, const std::string& url, absl::Span<const std::string> names);

}  // namespace reshard::into_store

#endif  // RESHARD_CHECKPOINT_INTO_STORE_OCCUPANCY_H_
