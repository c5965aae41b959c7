// Messages over the send and receive of a c10d backend.
#ifndef RESHARD_RUNTIME_GROUPS_C10D_MESSAGES_H_
#define RESHARD_RUNTIME_GROUPS_C10D_MESSAGES_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "runtime/groups/peer_board.h"
#include "runtime/packed/message_transport.h"

namespace reshard::groups {

class C10dMessages final : public packed::MessageTransport {
 public:
  // Turns what went wrong while waiting for `peer` into an error that names the rank to blame. `reason` is the
  // backend's message; empty after a timeout, or if a peer has reported a failure.
  using Blame = std::function<absl::Status(int64_t peer, const std::string& reason)>;

  C10dMessages(absl::Duration timeout, int64_t world_size, PeerBoard* board, Blame blame)
      : timeout_(timeout), world_size_(world_size), board_(board), blame_(std::move(blame)) {}

  // For later rounds: the backend, and a number that is the same on all ranks and differs between operations and
  // between plans. It keeps messages of different operations from being matched: these would differ in length, to which
  // a backend may react by ending the process.
  void Use(c10d::Backend* backend, int64_t operation) {
    backend_ = backend;
    operation_ = operation;
  }
  std::unique_ptr<packed::MessageRound> NewRound() override;

  // True for small exchanges between most ranks. Single messages are faster on an idle machine, but Gloo's reader spins
  // while a sender holds its lock, and a sender that loses its core at that point costs milliseconds; its collectives
  // do not have this problem. Large exchanges gain more from overlapping packing, sending and unpacking.
  bool PrefersAllToAll(int64_t recv_bytes_max, int64_t peers_max) const override {
    constexpr int64_t kSmall = int64_t{4} << 20;
    return recv_bytes_max > 0 && recv_bytes_max <= kSmall && 2 * peers_max >= world_size_ - 1;
  }
  absl::Status AllToAll(const void* send, absl::Span<const int64_t> send_bytes, void* receive,
                        absl::Span<const int64_t> receive_bytes) override;
  int64_t world_size() const override { return world_size_; }
  packed::NearExchange* near() override { return near_; }

  // From now on nothing is sent to the ranks that it reaches. Null: there are none.
  void GoNear(packed::NearExchange* near) { near_ = near; }

  // Makes the round in progress, if any, and all later ones fail immediately. Thread-safe.
  void Abort();

 private:
  friend class C10dRound;

  // Makes every connection of the backend fail, so that a collective in progress ends.
  void Disconnect();

  const absl::Duration timeout_;
  const int64_t world_size_;
  PeerBoard* const board_;
  const Blame blame_;
  c10d::Backend* backend_ = nullptr;
  int64_t operation_ = 0;
  packed::NearExchange* near_ = nullptr;
  std::mutex mutex_;
  class C10dRound* round_ = nullptr;  // guarded by mutex_
  bool together_ = false;             // an all-to-all is in progress; guarded by mutex_
  bool aborted_ = false;              // guarded by mutex_
};

}  // namespace reshard::groups

#endif  // RESHARD_RUNTIME_GROUPS_C10D_MESSAGES_H_
