// Which rank is the culprit when an operation is late or its connections break. One rule for all backends: they differ
// in how they ask the other ranks, over sockets or through a store, and judge the answers here.
#ifndef RESHARD_RUNTIME_EXECUTE_CULPRIT_H_
#define RESHARD_RUNTIME_EXECUTE_CULPRIT_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "reshard/runtime/rendezvous_store.h"

namespace reshard::execute {

// What a rank says about one communicator.
struct PeerState {
  // kRunning also for a rank that only says how many operations it has begun.
  enum class Phase : int64_t { kIdle, kRunning, kFailed };
  Phase phase = Phase::kIdle;
  int64_t operations = 0;    // collective operations begun so far
  int64_t waiting_for = -1;  // rank, or kEverybody, while running; -1: none, or unknown
  static constexpr int64_t kEverybody = -2;
  std::string message;  // why it is lost
};

// A rank's answer to the question for its state.
struct PeerAnswer {
  // kGone: its process has ended. kSilent: there was no answer in time.
  enum class Kind { kState, kGone, kSilent };
  Kind kind = Kind::kSilent;
  PeerState state;
};

// The rank that asks, and the operation that it waits in.
struct Waiting {
  int64_t rank = 0;
  int64_t operations = 0;  // begun by this rank, this one included
  std::string place;       // the operation's name
  absl::Duration timeout;  // how long it waits
  std::string reason;      // what the transport said; may be empty
};

// The error of a wait for all ranks. answers[r] is that of rank r; this rank's own is ignored. The first that applies:
// what a failed rank says (Aborted); ranks that are gone (Unavailable); ranks that have not begun this operation and do
// nothing (DeadlineExceeded); ranks that do not answer (Unavailable); ranks that have not begun it (DeadlineExceeded);
// none of these (Unavailable).
absl::Status CulpritError(const Waiting& waiting, absl::Span<const PeerAnswer> answers);

// Its parts, for callers that ask one rank after the other.
absl::Status GoneError(const Waiting& waiting, const std::vector<int64_t>& ranks);
absl::Status SilentError(const Waiting& waiting, const std::vector<int64_t>& ranks);
absl::Status LateError(const Waiting& waiting, const std::vector<int64_t>& ranks);

// The verdict that ranks leave in a store for ranks that they cannot reach otherwise: the first error of any of them.
class SharedVerdict {
 public:
  // `store` must outlive it; null: no rank is told. `key` belongs to one communicator.
  SharedVerdict(RendezvousStore* store, std::string key, int64_t rank)
      : store_(store), key_(std::move(key)), rank_(rank) {}

  // Leaves this rank's error; best effort. An error that names no rank is this rank's.
  void Broadcast(const absl::Status& error) const;
  // The verdict in the store, as this rank reports it: Aborted or, if ranks disagree, the same error as theirs. Nullopt
  // if there is none. Unavailable: the store cannot be reached.
  absl::StatusOr<std::optional<absl::Status>> Read() const;

 private:
  RendezvousStore* const store_;
  const std::string key_;
  const int64_t rank_;
};

}  // namespace reshard::execute

#endif  // RESHARD_RUNTIME_EXECUTE_CULPRIT_H_
