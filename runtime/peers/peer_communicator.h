// A communicator between processes, over whatever carries their messages: steps, agreement, deadlines, culprits.
//
// Ranks of one host exchange through shared memory instead, and need no messages. When a wait fails or times out, the
// rank asks its peer, over a separate socket, what it is waiting for, and follows the answers to the culprit. Then it
// tells all others, so that they need not wait for their own deadlines.
#ifndef RESHARD_RUNTIME_PEERS_PEER_COMMUNICATOR_H_
#define RESHARD_RUNTIME_PEERS_PEER_COMMUNICATOR_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "reshard/runtime/communicator.h"
#include "reshard/runtime/peer_options.h"
#include "reshard/runtime/recent_operations.h"
#include "runtime/peers/other_ranks.h"
#include "runtime/peers/peer_transport.h"
#include "runtime/shared/bootstrap.h"
#include "runtime/shared/shared_memory_transport.h"
#include "status/mutex.h"

namespace reshard::peers {

class PeerCommunicator final : public Communicator {
 public:
  // Makes the transport, which announces its waits on `board` and passes their errors through `find_culprit`.
  using MakeTransport = absl::FunctionRef<std::unique_ptr<PeerTransport>(PeerBoard& board, FindCulprit find_culprit)>;

  // Rank `rank` of 0 .. size - 1. Local: ranks first communicate in the first call.
  PeerCommunicator(int64_t rank, int64_t size, PeerOptions options, MakeTransport make_transport);
  ~PeerCommunicator() override;

  int64_t rank() const override { return rank_; }
  int64_t world_size() const override { return size_; }
  CopyFor copies() const override { return CopyFor::kMessages; }
  absl::Status Agree(const absl::Status& own, const Signature& problem) override;
  absl::Status AgreeBefore(const StepProgram& next, absl::Span<const ConstTensorView> inputs,
                           const Signature& problem) override;
  // Unimplemented: fragments that are not in host memory.
  absl::StatusOr<MoveStats> ExecuteStep(const StepProgram& step, absl::Span<const ConstTensorView> inputs,
                                        absl::Span<const TensorView> outputs, std::unique_ptr<StepMemo>* memo) override;
  absl::Status Barrier() override;
  std::vector<int64_t> FindGone(absl::Span<const int64_t> ranks) override { return others_.FindGone(ranks); }
  const RecentOperations* recent_operations() const override { return &recent_; }
  // Releases the shared memory, at the latest when the call in progress ends.
  void Close() override;
  bool closed() const { return closed_; }

 private:
  // One collective operation: checks, counts, and remembers how it ended.
  template <typename T, typename F>
  T Operate(absl::string_view name, int64_t bytes, uint64_t salt, F&& f);

  void HoldSharedMemory();
  absl::Status Rendezvous();
  absl::Status ConnectSharedMemory(absl::StatusOr<shared::Bootstrap> bootstrap);
  absl::Status AllGather(void* records, int64_t bytes);
  absl::Status GatherFromEach(char* records, int64_t bytes);
  absl::Status GatherTogether(char* records, int64_t bytes);
  absl::Status GatherByDoubling(char* records, int64_t bytes);
  absl::Status AgreeNow(const absl::Status& own, const Signature& problem);
  static uint64_t SharedMemoryTag(int64_t operation, uint64_t salt) { return static_cast<uint64_t>(operation) ^ salt; }

  const int64_t rank_;
  const int64_t size_;
  const PeerOptions options_;
  RecentOperations recent_;
  std::shared_ptr<shared::SharedMemoryTransport>
      current_shared_memory_;  // shared_memory_ during an operation, whose thread alone uses it
  std::atomic<bool> closed_ = false;
  status::Mutex mutex_;
  // Null: no other rank shares memory with this one, they have not met, or it is closed.
  std::shared_ptr<shared::SharedMemoryTransport> shared_memory_ ABSL_GUARDED_BY(mutex_);
  std::unique_ptr<PeerTransport> transport_;
  OtherRanks others_;  // destroyed first: it calls what comes before
};

}  // namespace reshard::peers

#endif  // RESHARD_RUNTIME_PEERS_PEER_COMMUNICATOR_H_
