// A world whose ranks are threads of this process: for tests, notebooks, CPU inference and simulators. Receivers copy
// directly from the senders' fragments to the final place: one pass over the data, no staging, no sockets.
//
//   LocalWorld world(4);
//   absl::Status status = world.Run([&](Communicator& rank) -> absl::Status {
//     auto executor = Executor::Create(programs[rank.rank()], &rank);
//     if (!executor.ok()) return executor.status();
//     return executor->Execute(source[rank.rank()], target[rank.rank()]).status();
//   });
//
// Ranks that are done with their own work in a step help the others, so that a step in which few ranks receive still
// uses all cores. There may be many more ranks than cores.
#ifndef RESHARD_RUNTIME_LOCAL_WORLD_H_
#define RESHARD_RUNTIME_LOCAL_WORLD_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "reshard/runtime/communicator.h"

namespace reshard {

// Options of a LocalWorld.
struct LocalWorldOptions {
  // How long a rank waits for the others at any one point before it fails with DeadlineExceeded.
  absl::Duration timeout = DefaultTimeout();
};

// A set of ranks, and the means to run code on them.
class LocalWorld {
 public:
  // Ranks 0 .. ranks-1. Requires ranks >= 1.
  explicit LocalWorld(int64_t ranks, LocalWorldOptions options = {});
  // One rank for each of these device ids, which must be distinct. A program with messages for other ids is refused
  // (InvalidArgument).
  explicit LocalWorld(std::vector<int64_t> device_ids, LocalWorldOptions options = {});

  // Number of ranks.
  int64_t size() const { return static_cast<int64_t>(device_ids_.size()); }
  const std::vector<int64_t>& device_ids() const { return device_ids_; }  // ascending

  // Calls `body` once per rank, each in a thread of its own, and returns once all have returned. A body that throws
  // counts as one that returns an error (ResourceExhausted for a failed allocation, Internal for anything else).
  // OK if all bodies return OK. Otherwise the error of the rank that failed first, as "rank N: <message>".
  // If a body fails, waits of the other ranks end immediately with Aborted; if it returns OK while others still wait
  // for it, with Unavailable; if it does not arrive, with DeadlineExceeded after the timeout. A body that never returns
  // keeps Run from returning, since threads cannot be killed.
  // ResourceExhausted: the threads could not be started. Every Run starts afresh, whatever happened in the one before.
  absl::Status Run(absl::FunctionRef<absl::Status(Communicator&)> body);
  // The same, but returns the status of each rank, in the order of device_ids().
  std::vector<absl::Status> RunEach(absl::FunctionRef<absl::Status(Communicator&)> body);

 private:
  struct Outcome {
    std::vector<absl::Status> statuses;
    int64_t first_failure = -1;  // index of the rank that failed first; -1: none
  };
  Outcome RunThreads(absl::FunctionRef<absl::Status(Communicator&)> body);

  std::vector<int64_t> device_ids_;
  LocalWorldOptions options_;
};

}  // namespace reshard

#endif  // RESHARD_RUNTIME_LOCAL_WORLD_H_
