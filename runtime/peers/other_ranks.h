// The other ranks of a communicator: how this one asks them, tells them, and finds out which of them is the culprit.
#ifndef RESHARD_RUNTIME_PEERS_OTHER_RANKS_H_
#define RESHARD_RUNTIME_PEERS_OTHER_RANKS_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "reshard/runtime/rendezvous_store.h"
#include "runtime/execute/culprit.h"
#include "runtime/peers/peer_board.h"
#include "status/mutex.h"

namespace reshard::peers {

class OtherRanks {
 public:
  // For rank `rank` of 0 .. size - 1; ranks wait for each other at most `timeout`.
  OtherRanks(int64_t rank, int64_t size, absl::Duration timeout)
      : rank_(rank), size_(size), timeout_(timeout), board_(rank) {}
  ~OtherRanks() { board_.OnFailure(nullptr); }

  // `abort` is called, from another thread, when another rank reports that the communicator is unusable. `store`: see
  // PeerTransport::Store.
  void Use(std::function<void()> abort, std::function<std::unique_ptr<RendezvousStore>()> store);

  PeerBoard& board() { return board_; }

  // An operation of that name begins; what follows in it counts as a further operation; it ends.
  void Begin(absl::string_view place);
  void GoOn();
  void End() { board_.End(); }
  // Operations begun.
  int64_t operations() const { return operations_; }

  // All ranks have met and can be asked from now on.
  void Met(std::vector<PeerAddress> addresses) { addresses_ = std::move(addresses); }
  bool met() const { return !addresses_.empty(); }
  const std::vector<PeerAddress>& addresses() const { return addresses_; }
  // Not all ranks came: tells those at `addresses` whose port is not 0, and leaves word in the store for the rest.
  void GiveUpRendezvous(const std::vector<PeerAddress>& addresses, const absl::Status& error) const;

  // Those of `ranks` whose processes have ended or whose boards are closed, ascending; none before the ranks have met.
  std::vector<int64_t> FindGone(absl::Span<const int64_t> ranks) const;
  // The error of a failed wait for `peer` (-1: for all ranks). `reason` is what the transport said; empty after a
  // timeout. The communicator is lost afterwards.
  absl::Status FindCulprit(int64_t peer, const std::string& reason);
  // Makes the communicator unusable with this error; only the first one counts. Tells all others, so that they need not
  // wait for their deadlines.
  void Fail(const absl::Status& status);
  // Why the communicator is unusable; OK if it is not.
  const absl::Status& failure() const { return failure_; }
  // The same, including what another rank has told meanwhile.
  const absl::Status& PollFailure();
  // What another rank told; empty if nothing.
  std::string told() const;

 private:
  absl::Status FollowWaits(int64_t peer, const std::string& reason);
  absl::Status CulpritBeforeRendezvous(int64_t peer, const std::string& reason) const;
  absl::Status CulpritAmongAll(const std::string& reason);
  execute::Waiting WaitingHere(const std::string& reason) const;
  std::unique_ptr<RendezvousStore> Store() const;
  void Broadcast(const std::vector<PeerAddress>& addresses, const std::string& message) const;
  void ForEach(const std::vector<PeerAddress>& addresses, const std::function<void(size_t)>& f) const;

  const int64_t rank_;
  const int64_t size_;
  const absl::Duration timeout_;
  std::function<std::unique_ptr<RendezvousStore>()> store_;
  PeerBoard board_;
  std::vector<PeerAddress> addresses_;  // by rank; empty before the ranks have met
  int64_t operations_ = 0;
  std::string place_;  // of the operation under way
  absl::Time begun_;   // and when it began
  absl::Status failure_;
  mutable status::Mutex mutex_;
  std::string told_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace reshard::peers

#endif  // RESHARD_RUNTIME_PEERS_OTHER_RANKS_H_
