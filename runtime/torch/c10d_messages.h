// Messages over a c10d backend's send and receive.
#ifndef RESHARD_RUNTIME_TORCH_C10D_MESSAGES_H_
#define RESHARD_RUNTIME_TORCH_C10D_MESSAGES_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "runtime/core/message_transport.h"
#include "runtime/torch/peer_board.h"

namespace reshard {

class C10dMessages final : public MessageTransport {
 public:
  // What went wrong while waiting for `peer`, turned into an error that names who is to blame. `reason` is what the
  // backend said; empty when the time was over or a peer told of a failure.
  using Blame = std::function<absl::Status(int64_t peer, const std::string& reason)>;

  C10dMessages(absl::Duration timeout, int64_t world_size, PeerBoard* board, Blame blame)
      : timeout_(timeout), world_size_(world_size), board_(board), blame_(std::move(blame)) {}

  // For the rounds that follow: the backend, and a number that all ranks have in common and that differs between
  // operations and between plans, so that messages of different ones do not meet: they would not have the same length,
  // and a backend may answer that by ending the process.
  void Use(c10d::Backend* backend, int64_t operation) {
    backend_ = backend;
    operation_ = operation;
  }
  std::unique_ptr<MessageRound> NewRound() override;

  // Small exchanges of most with most. Single messages are quicker on a quiet machine, but Gloo's reader spins while a
  // sender holds its lock, and a sender that loses its core there costs milliseconds; its collectives do not suffer.
  // Large exchanges gain more from packing, sending and unpacking at the same time.
  bool PrefersAllToAll(int64_t recv_bytes_max, int64_t peers_max) const override {
    constexpr int64_t kSmall = int64_t{4} << 20;
    return recv_bytes_max > 0 && recv_bytes_max <= kSmall && 2 * peers_max >= world_size_ - 1;
  }
  absl::Status AllToAll(const void* send, absl::Span<const int64_t> send_bytes, void* receive,
                        absl::Span<const int64_t> receive_bytes) override;
  int64_t world_size() const override { return world_size_; }

  // Makes the round under way, if any, and those to come fail at once. From any thread.
  void Abort();

 private:
  friend class C10dRound;

  // Makes every connection of the backend fail, so that a collective under way ends.
  void Disconnect();

  const absl::Duration timeout_;
  const int64_t world_size_;
  PeerBoard* const board_;
  const Blame blame_;
  c10d::Backend* backend_ = nullptr;
  int64_t operation_ = 0;
  std::mutex mutex_;
  class C10dRound* round_ = nullptr;  // guarded by mutex_
  bool together_ = false;             // an all-to-all is under way; guarded by mutex_
  bool aborted_ = false;              // guarded by mutex_
};

}  // namespace reshard

#endif  // RESHARD_RUNTIME_TORCH_C10D_MESSAGES_H_
