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

  C10dMessages(absl::Duration timeout, PeerBoard* board, Blame blame)
      : timeout_(timeout), board_(board), blame_(std::move(blame)) {}

  // For the rounds that follow: the backend, and a number that all ranks have in common and that differs between
  // operations and between plans, so that messages of different ones do not meet: they would not have the same length,
  // and a backend may answer that by ending the process.
  void Use(c10d::Backend* backend, int64_t operation) {
    backend_ = backend;
    operation_ = operation;
  }
  std::unique_ptr<MessageRound> NewRound() override;

  // Makes the round under way, if any, and those to come fail at once. From any thread.
  void Abort();

 private:
  friend class C10dRound;

  const absl::Duration timeout_;
  PeerBoard* const board_;
  const Blame blame_;
  c10d::Backend* backend_ = nullptr;
  int64_t operation_ = 0;
  std::mutex mutex_;
  class C10dRound* round_ = nullptr;  // guarded by mutex_
  bool aborted_ = false;              // guarded by mutex_
};

}  // namespace reshard

#endif  // RESHARD_RUNTIME_TORCH_C10D_MESSAGES_H_
