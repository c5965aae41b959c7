// How ranks learn what became of each other, beside the process group: every process listens on a port of its own and
// answers one question, "where does this communicator stand?", and takes one message, "we are lost, because ...".
// Nothing of it is on the path of a call that goes well.
//
// A process group alone cannot tell a rank that died from one that is late, nor one that waits for a third: a broken
// connection or a timeout names the neighbour, not the culprit. Asking the neighbour does: a dead process refuses the
// connection, a late one says that it has not arrived, a waiting one says for whom.
#ifndef RESHARD_RUNTIME_TORCH_PEER_BOARD_H_
#define RESHARD_RUNTIME_TORCH_PEER_BOARD_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "absl/time/time.h"

namespace reshard {

// Where to ask about one communicator of one rank. Travels as bytes, so fixed size and no pointers.
struct PeerAddress {
  char host[64] = {};    // of the process, as other hosts resolve it
  uint64_t machine = 0;  // equal on ranks that can reach each other by loopback
  uint64_t process = 0;  // random: tells this process from another that got its port later
  uint64_t board = 0;    // which of the process's boards
  int64_t port = 0;      // 0: this process could not listen
  int64_t reserved[4] = {};
};
static_assert(sizeof(PeerAddress) == 128);

// What a rank says of one communicator.
struct PeerState {
  enum class Phase : int64_t { kIdle, kRunning, kLost };
  Phase phase = Phase::kIdle;
  int64_t operations = 0;    // collective operations begun so far
  int64_t waiting_for = -1;  // rank, or kEverybody, while running; -1: nobody
  static constexpr int64_t kEverybody = -2;
  std::string message;  // why it is lost
};

// One communicator's entry.
class PeerBoard {
 public:
  // Starts listening if this process does not yet. Never fails: without a port peers cannot ask, and say less.
  PeerBoard();
  ~PeerBoard();
  PeerBoard(const PeerBoard&) = delete;
  PeerBoard& operator=(const PeerBoard&) = delete;

  PeerAddress address() const;

  void Begin(int64_t operations);
  void WaitFor(int64_t rank);  // as PeerState::waiting_for
  void End();
  void Lose(const std::string& message);
  PeerState state() const;

  // Called, once and from another thread, when a peer tells that the communicator is lost. Not called any more once
  // this has been set to nothing.
  void OnLost(std::function<void(const std::string&)> callback);

 private:
  friend class PeerServer;
  void Told(const std::string& message);

  mutable std::mutex mutex_;
  PeerState state_;
  std::function<void(const std::string&)> on_lost_;
  uint64_t id_ = 0;
};

// What a question brought.
struct PeerAnswer {
  enum class Kind { kState, kGone, kSilent };
  Kind kind = Kind::kSilent;
  PeerState state;
};

// Asks the process at that address. kGone: nothing listens there any more, or another process does. kSilent: it does
// not answer within the time, or was never reachable.
PeerAnswer AskPeer(const PeerAddress& address, absl::Duration patience);
// Tells it that the communicator is lost; best effort.
void TellPeer(const PeerAddress& address, const std::string& message, absl::Duration patience);

}  // namespace reshard

#endif  // RESHARD_RUNTIME_TORCH_PEER_BOARD_H_
