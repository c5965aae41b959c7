// Messages over the send and receive of a c10d backend.
#ifndef RESHARD_RUNTIME_GROUPS_C10D_MESSAGES_H_
#define RESHARD_RUNTIME_GROUPS_C10D_MESSAGES_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "runtime/peers/peer_board.h"
#include "runtime/peers/peer_transport.h"
#include "status/mutex.h"

namespace reshard::groups {

class C10dMessages final : public peers::PeerTransport {
 public:
  // Does not keep the group alive.
  C10dMessages(const c10::intrusive_ptr<c10d::ProcessGroup>& group, absl::Duration timeout, peers::PeerBoard* board,
               peers::FindCulprit find_culprit)
      : group_(group),
        timeout_(timeout),
        world_size_(group->getSize()),
        board_(board),
        find_culprit_(std::move(find_culprit)) {}

  absl::Status Gone() const override { return absl::UnavailableError("the process group has been destroyed"); }
  absl::Status Begin() override;
  void End() override {
    backend_ = nullptr;
    held_ = nullptr;
  }
  // A backend may react to messages that differ in length by ending the process.
  void Use(int64_t operation) override { operation_ = operation; }
  std::unique_ptr<RendezvousStore> Store() override;
  bool expired() const { return group_.expired(); }
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
  void Abort() override;

 private:
  friend class C10dRound;

  // Makes every connection of the backend fail, so that a collective in progress ends.
  void Disconnect();

  const c10::weak_intrusive_ptr<c10d::ProcessGroup> group_;
  const absl::Duration timeout_;
  const int64_t world_size_;
  peers::PeerBoard* const board_;
  const peers::FindCulprit find_culprit_;
  c10::intrusive_ptr<c10d::ProcessGroup> held_;  // during an operation, with its backend
  c10::intrusive_ptr<c10d::Backend> backend_;
  int64_t operation_ = 0;
  status::Mutex mutex_;
  class C10dRound* round_ ABSL_GUARDED_BY(mutex_) = nullptr;
  bool together_ ABSL_GUARDED_BY(mutex_) = false;  // an all-to-all is in progress
  bool aborted_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace reshard::groups

#endif  // RESHARD_RUNTIME_GROUPS_C10D_MESSAGES_H_
