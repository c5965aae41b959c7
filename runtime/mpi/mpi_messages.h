// Messages over an MPI communicator.
#ifndef RESHARD_RUNTIME_MPI_MPI_MESSAGES_H_
#define RESHARD_RUNTIME_MPI_MPI_MESSAGES_H_

#include <mpi.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "runtime/packed/message_transport.h"
#include "runtime/peers/peer_board.h"
#include "runtime/peers/peer_transport.h"

namespace reshard::mpi {

// Between MPI_Init and MPI_Finalize.
bool IsRunning();

// What MPI says about an error code.
std::string TextOf(int error);

class MpiMessages final : public peers::PeerTransport {
 public:
  // Takes over `comm`, which returns errors instead of ending the program.
  MpiMessages(MPI_Comm comm, absl::Duration timeout, peers::PeerBoard* board, peers::FindCulprit find_culprit);
  ~MpiMessages() override;
  MpiMessages(const MpiMessages&) = delete;
  MpiMessages& operator=(const MpiMessages&) = delete;

  absl::Status Gone() const override;
  absl::Status Begin() override;
  void Use(int64_t operation) override { tag_ = static_cast<int>(operation % (int64_t{largest_tag_} + 1)); }
  void Abort() override { aborted_ = true; }

  std::unique_ptr<packed::MessageRound> NewRound() override;
  // Collectives of MPI have no deadline and cannot be cancelled.
  bool PrefersAllToAll(int64_t /*recv_bytes_max*/, int64_t /*peers_max*/) const override { return false; }
  absl::Status AllToAll(const void* send, absl::Span<const int64_t> send_bytes, void* receive,
                        absl::Span<const int64_t> receive_bytes) override;
  int64_t world_size() const override { return world_size_; }

 private:
  friend class MpiRound;

  MPI_Comm comm_;
  const absl::Duration timeout_;
  peers::PeerBoard* const board_;
  const peers::FindCulprit find_culprit_;
  int64_t world_size_ = 0;
  int64_t rank_ = 0;
  int largest_tag_ = 32767;  // what every MPI supports
  int tag_ = 0;
  std::atomic<bool> aborted_ = false;
  bool holds_ = false;  // MPI did not give back a message
};

}  // namespace reshard::mpi

#endif  // RESHARD_RUNTIME_MPI_MPI_MESSAGES_H_
