// A side channel through which ranks find out about each other, besides the messages between them: every process
// listens on a port of its own, answers one question, "what is the state of this communicator?", and accepts one
// message, "it is unusable, because ...". None of this is on the path of a call that succeeds. The port and its thread
// exist while a board is open.
//
// Messages alone cannot tell a rank that died from one that is late, nor from one that waits for a third: a broken
// connection or a timeout is about the peer, which need not be the culprit. Asking the peer tells them apart: a dead
// process refuses the connection, a late one says that it has not arrived, and a waiting one says which rank it waits
// for.
#ifndef RESHARD_RUNTIME_PEERS_PEER_BOARD_H_
#define RESHARD_RUNTIME_PEERS_PEER_BOARD_H_

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "runtime/execute/culprit.h"
#include "status/mutex.h"

namespace reshard::peers {

// Where to ask about one communicator of one rank. It travels as bytes: fixed size, no pointers.
struct PeerAddress {
  char host[64] = {};    // of the process, as other hosts resolve it
  uint64_t machine = 0;  // equal on ranks that can reach each other over the loopback interface
  uint64_t process = 0;  // random: distinguishes this process from a later one with the same port
  uint64_t board = 0;    // which of the process's boards
  int64_t port = 0;      // 0: this process could not listen
  // The socket at which ranks of the same host share memory, see shared::Bootstrap; not the board's.
  std::array<uint64_t, 2> shared_memory_socket = {};
  int64_t reserved[2] = {};
};
static_assert(sizeof(PeerAddress) == 128);

using execute::PeerAnswer;
using execute::PeerState;

// One communicator's entry.
class PeerBoard {
 public:
  // `rank` is what the log calls this one. Starts to listen, unless this process already does. Never fails: without a
  // port peers cannot ask, and their errors say less.
  explicit PeerBoard(int64_t rank);
  ~PeerBoard();
  PeerBoard(const PeerBoard&) = delete;
  PeerBoard& operator=(const PeerBoard&) = delete;

  // Peers can no longer ask: to them this rank is gone. The last board of a process waits for the thread that answers,
  // which may have to call the callback of OnFailure: do not call Close under a lock that the callback takes, nor from
  // it.
  void Close();

  // Port 0 when it is closed.
  PeerAddress address() const;

  void Begin(int64_t operations, absl::string_view place);  // `place`: the operation's name
  void WaitFor(int64_t rank);                               // as PeerState::waiting_for
  void End();
  void Fail(const std::string& message);
  PeerState state() const;

  // Sets what is called, once and from another thread, when a peer reports that the communicator is unusable. After it
  // has been set to nullptr, no call is made or still running.
  void OnFailure(std::function<void(const std::string&)> callback);

 private:
  friend class PeerServer;
  void ReceiveFailure(const std::string& message);
  void LogWait();  // if it has lasted

  const int64_t rank_;
  mutable status::Mutex mutex_;
  PeerState state_ ABSL_GUARDED_BY(mutex_);
  // For the log, only kept where that is on.
  std::string place_ ABSL_GUARDED_BY(mutex_);
  absl::Time waiting_since_ ABSL_GUARDED_BY(mutex_);
  absl::Time logged_at_ ABSL_GUARDED_BY(mutex_);
  std::function<void(const std::string&)> on_failure_ ABSL_GUARDED_BY(mutex_);
  std::shared_ptr<class PeerServer> server_ ABSL_GUARDED_BY(mutex_);  // null when closed
  const uint64_t id_;
};

// Asks the process at that address, and waits at most `timeout`. kGone: nothing listens there any more, or another
// process does. kSilent: there was no answer in time, or the process was never reachable.
PeerAnswer AskPeer(const PeerAddress& address, absl::Duration timeout);
// Tells it that the communicator is unusable; best effort.
void SendFailure(const PeerAddress& address, const std::string& message, absl::Duration timeout);

}  // namespace reshard::peers

#endif  // RESHARD_RUNTIME_PEERS_PEER_BOARD_H_
