// What is already in a store where a checkpoint is to be written, and what of it belongs to jobs.
#ifndef RESHARD_CHECKPOINT_INTO_STORE_OCCUPANCY_H_
#define RESHARD_CHECKPOINT_INTO_STORE_OCCUPANCY_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "reshard/checkpoint/store.h"

namespace reshard::into_store {

// A job that has begun to write there and has not finished.
struct LeftJob {
  std::string name;
  std::string folder;              // StoreJob::folder
  std::vector<std::string> names;  // of what it writes; empty if it was killed before it recorded them
  bool is_alive = false;
};

struct Occupancy {
  std::vector<std::string> others;  // what is there, and none of the jobs writes
  std::vector<LeftJob> jobs;        // by folder
};

// Takes some seconds if a job shows no sign of life. `own` is a job's folder: whether that job is alive is not looked
// into.
absl::StatusOr<Occupancy> LookAt(Store& store, const std::string& url, const std::string& own = "");

// FailedPrecondition: a job other than `own` is alive. AlreadyExists: `others` is not empty, and no `overwrite`.
absl::Status CheckFree(const Occupancy& there, const std::string& url, bool overwrite, const std::string& own = "");

// Removes what a job has written and what it was to replace, except for what belongs to the checkpoint that is there;
// then the job's folder.
absl::Status RemoveLeft(Store& store, const std::string& url, const LeftJob& job);

// Deletes all of them, in parallel.
absl::Status DeleteAll(Store& store, const std::string& url, absl::Span<const std::string> names);

}  // namespace reshard::into_store

#endif  // RESHARD_CHECKPOINT_INTO_STORE_OCCUPANCY_H_
