#include "runtime/peers/peer_board.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <fstream>
#include <functional>
#include <string_view>
#include <thread>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "runtime/host/random.h"
#include "runtime/shared/descriptor.h"
#include "status/log.h"

namespace reshard::peers {
namespace {

using Clock = std::chrono::steady_clock;

// What goes over the wire. Both sides are the same build of the same library: ranks compare versions before.
struct Request {
  uint64_t process = 0;
  uint64_t board = 0;
  int64_t tell = 0;  // 1: `message` follows; 0: a question
  int64_t message_bytes = 0;
};
struct Reply {
  int64_t phase = 0;
  int64_t operations = 0;
  int64_t waiting_for = -1;
  int64_t message_bytes = 0;
};
constexpr int64_t kLongestMessage = 4096;

// Waits until the socket can be read or written; false when the time is over.
bool Ready(int fd, short events, Clock::time_point deadline) {
  for (;;) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now()).count();
    if (left <= 0) return false;
    pollfd entry{fd, events, 0};
    const int ready = poll(&entry, 1, static_cast<int>(std::min<int64_t>(left + 1, 60000)));
    if (ready > 0) return true;
    if (ready < 0 && errno != EINTR) return false;
  }
}

bool ReadAll(int fd, void* data, size_t bytes, Clock::time_point deadline) {
  auto* at = static_cast<char*>(data);
  while (bytes > 0) {
    if (!Ready(fd, POLLIN, deadline)) return false;
    const ssize_t got = recv(fd, at, bytes, MSG_DONTWAIT);
    if (got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR)) return false;
    if (got < 0) continue;
    at += got;
    bytes -= static_cast<size_t>(got);
  }
  return true;
}

bool WriteAll(int fd, const void* data, size_t bytes, Clock::time_point deadline) {
  const auto* at = static_cast<const char*>(data);
  while (bytes > 0) {
    if (!Ready(fd, POLLOUT, deadline)) return false;
    const ssize_t put = send(fd, at, bytes, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (put < 0 && errno != EAGAIN && errno != EINTR) return false;
    if (put < 0) continue;
    at += put;
    bytes -= static_cast<size_t>(put);
  }
  return true;
}

// Loopback works between processes of one boot and one network namespace.
uint64_t MachineId() {
  static const uint64_t id = [] {
    std::string text;
    std::ifstream("/proc/sys/kernel/random/boot_id") >> text;
    char link[128] = {};
    const ssize_t length = readlink("/proc/self/ns/net", link, sizeof(link) - 1);
    if (length > 0) text.append(link, static_cast<size_t>(length));
    return std::hash<std::string>{}(text) | 1;
  }();
  return id;
}

Clock::time_point After(absl::Duration timeout) { return Clock::now() + absl::ToChronoNanoseconds(timeout); }

}  // namespace

// The listener of this process, kept by its boards. A forked child starts its own: threads do not survive a fork.
class PeerServer {
 public:
  // The one that is there, or a new one.
  static std::shared_ptr<PeerServer> Get() {
    static status::Mutex mutex;
    static auto* const current = new std::weak_ptr<PeerServer>;  // never destroyed: boards may be made until the end
    const status::MutexLock lock(mutex);
    std::shared_ptr<PeerServer> server = current->lock();
    if (server == nullptr || server->owner_ != getpid()) {
      server.reset(new PeerServer);
      *current = server;
    }
    return server;
  }

  ~PeerServer() {
    if (thread_ == nullptr) return;
    if (owner_ != getpid()) {
      // A copy in a forked child: there is no such thread here, and the listener is the parent's, too.
      static_cast<void>(thread_.release());
    } else {
      stop_ = true;
      shutdown(listener_.get(), SHUT_RDWR);  // wakes the thread
      thread_->join();
    }
  }

  uint64_t Add(PeerBoard* board) {
    const status::MutexLock lock(mutex_);
    const uint64_t id = ++last_id_;
    boards_[id] = board;
    return id;
  }
  void Remove(uint64_t id) {
    const status::MutexLock lock(mutex_);
    boards_.erase(id);
  }

  PeerAddress AddressOf(uint64_t board) const {
    PeerAddress address;
    std::strncpy(address.host, host_.c_str(), sizeof(address.host) - 1);
    address.machine = MachineId();
    address.process = process_;
    address.board = board;
    address.port = port_;
    return address;
  }

 private:
  PeerServer() {
    char name[65] = {};
    if (gethostname(name, sizeof(name) - 1) == 0) host_ = name;
    shared::Descriptor listener(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in any{};
    any.sin_family = AF_INET;
    any.sin_addr.s_addr = htonl(INADDR_ANY);
    socklen_t length = sizeof(any);
    if (!listener || bind(listener.get(), reinterpret_cast<sockaddr*>(&any), sizeof(any)) != 0 ||
        listen(listener.get(), 128) != 0 ||
        getsockname(listener.get(), reinterpret_cast<sockaddr*>(&any), &length) != 0) {
      return;
    }
    port_ = ntohs(any.sin_port);
    listener_ = std::move(listener);
    thread_ = std::make_unique<std::thread>([this] { Serve(); });
  }

  void Serve() {
    for (;;) {
      if (status::Logs(status::LogLevel::kInfo)) AwaitClient();
      const int fd = accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC);
      if (stop_) {
        const shared::Descriptor late(fd);
        return;
      }
      if (fd < 0) {
        if (errno == EINTR || errno == ECONNABORTED) continue;
        std::this_thread::sleep_for(std::chrono::milliseconds(20));  // out of descriptors, perhaps only for now
        continue;
      }
      const shared::Descriptor socket(fd);
      Answer(fd);
    }
  }

  // Returns when a client connects, or the listener is shut down; logs meanwhile what the boards wait for.
  void AwaitClient() {
    pollfd listens{listener_.get(), POLLIN, 0};
    while (poll(&listens, 1, 1000) == 0) {
      const status::MutexLock lock(mutex_);
      for (const auto& [id, board] : boards_) board->LogWait();
    }
  }

  // A client that dawdles delays the next one by no more than this.
  void Answer(int fd) {
    const Clock::time_point deadline = Clock::now() + std::chrono::milliseconds(200);
    Request request;
    if (!ReadAll(fd, &request, sizeof(request), deadline) || request.process != process_ || request.message_bytes < 0 ||
        request.message_bytes > kLongestMessage) {
      return;
    }
    std::string message(static_cast<size_t>(request.message_bytes), '\0');
    if (!ReadAll(fd, message.data(), message.size(), deadline)) return;
    PeerState state;
    {
      const status::MutexLock lock(mutex_);
      const auto found = boards_.find(request.board);
      // A communicator that has been destroyed is as good as a process that is gone.
      if (found == boards_.end()) return;
      if (request.tell != 0) found->second->ReceiveFailure(message);
      state = found->second->state();
    }
    state.message.resize(std::min<size_t>(state.message.size(), kLongestMessage));
    const Reply reply{static_cast<int64_t>(state.phase), state.operations, state.waiting_for,
                      static_cast<int64_t>(state.message.size())};
    if (WriteAll(fd, &reply, sizeof(reply), deadline))
      WriteAll(fd, state.message.data(), state.message.size(), deadline);
  }

  const pid_t owner_ = getpid();
  const uint64_t process_ = host::Random64();
  std::string host_;
  int64_t port_ = 0;
  status::Mutex mutex_;
  uint64_t last_id_ ABSL_GUARDED_BY(mutex_) = 0;
  absl::flat_hash_map<uint64_t, PeerBoard*> boards_ ABSL_GUARDED_BY(mutex_);
  std::atomic<bool> stop_ = false;
  shared::Descriptor listener_;          // empty where this process could not listen
  std::unique_ptr<std::thread> thread_;  // last: it uses the others
};

PeerBoard::PeerBoard(int64_t rank) : rank_(rank), server_(PeerServer::Get()), id_(server_->Add(this)) {}
PeerBoard::~PeerBoard() { Close(); }

void PeerBoard::Close() {
  std::shared_ptr<PeerServer> server;  // goes last, outside of the lock: the thread may be about to ask this board
  {
    const status::MutexLock lock(mutex_);
    server = std::move(server_);
  }
  if (server != nullptr) server->Remove(id_);
}

PeerAddress PeerBoard::address() const {
  const status::MutexLock lock(mutex_);
  return server_ == nullptr ? PeerAddress() : server_->AddressOf(id_);
}

void PeerBoard::Begin(int64_t operations, absl::string_view place) {
  const status::MutexLock lock(mutex_);
  if (state_.phase == PeerState::Phase::kFailed) return;
  if (status::Logs(status::LogLevel::kInfo)) place_ = std::string(place);
  state_.phase = PeerState::Phase::kRunning;
  state_.operations = operations;
  state_.waiting_for = -1;
}

void PeerBoard::WaitFor(int64_t rank) {
  const status::MutexLock lock(mutex_);
  if (status::Logs(status::LogLevel::kInfo) && state_.waiting_for != rank) {
    waiting_since_ = logged_at_ = absl::Now();
  }
  state_.waiting_for = rank;
}

void PeerBoard::LogWait() {
  const status::MutexLock lock(mutex_);
  const absl::Time now = absl::Now();
  if (state_.phase != PeerState::Phase::kRunning || state_.waiting_for == -1 ||
      now - logged_at_ < absl::Seconds(status::kLoggedWaitSeconds)) {
    return;
  }
  logged_at_ = now;
  const std::string whom =
      state_.waiting_for == PeerState::kEverybody ? "all other ranks" : absl::StrCat("rank ", state_.waiting_for);
  RESHARD_LOG(kInfo, "rank ", rank_, " of the group has waited ",
              static_cast<int64_t>(absl::ToDoubleSeconds(now - waiting_since_)), " s for ", whom, " in operation ",
              state_.operations, ", ", place_);
}

void PeerBoard::End() {
  const status::MutexLock lock(mutex_);
  if (state_.phase == PeerState::Phase::kRunning) state_.phase = PeerState::Phase::kIdle;
  state_.waiting_for = -1;
}

void PeerBoard::Fail(const std::string& message) {
  const status::MutexLock lock(mutex_);
  state_.phase = PeerState::Phase::kFailed;
  state_.message = message;
}

PeerState PeerBoard::state() const {
  const status::MutexLock lock(mutex_);
  return state_;
}

void PeerBoard::OnFailure(std::function<void(const std::string&)> callback) {
  const status::MutexLock lock(mutex_);
  on_failure_ = std::move(callback);
}

void PeerBoard::ReceiveFailure(const std::string& message) {
  // Under the lock, so that OnFailure({}) returns only when no call is under way.
  const status::MutexLock lock(mutex_);
  if (on_failure_) std::exchange(on_failure_, nullptr)(message);
}

namespace {

// Connects to the process. Returns the socket; or -1, with *gone saying whether the process is known to be gone.
int Connect(const PeerAddress& address, Clock::time_point deadline, bool* gone) {
  const bool same_host = address.machine == MachineId();
  const std::string host =
      same_host ? "127.0.0.1" : std::string(address.host, strnlen(address.host, sizeof(address.host)));
  addrinfo hints{};
  hints.ai_family = AF_INET;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (address.port == 0 || getaddrinfo(host.c_str(), std::to_string(address.port).c_str(), &hints, &found) != 0) {
    return -1;
  }
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> list(found, freeaddrinfo);
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (fd < 0) return -1;
  int error = 0;
  if (connect(fd, list->ai_addr, list->ai_addrlen) != 0) error = errno;
  if (error == EINPROGRESS) {
    socklen_t length = sizeof(error);
    if (!Ready(fd, POLLOUT, deadline) || getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &length) != 0) error = ETIMEDOUT;
  }
  if (error == 0) return fd;
  *gone = error == ECONNREFUSED;
  close(fd);
  return -1;
}

bool Send(int fd, const PeerAddress& address, bool tell, const std::string& message, Clock::time_point deadline) {
  const std::string text = message.substr(0, kLongestMessage);
  const Request request{address.process, address.board, tell ? 1 : 0, static_cast<int64_t>(text.size())};
  return WriteAll(fd, &request, sizeof(request), deadline) && WriteAll(fd, text.data(), text.size(), deadline);
}

}  // namespace

PeerAnswer AskPeer(const PeerAddress& address, absl::Duration timeout) {
  const Clock::time_point deadline = After(timeout);
  PeerAnswer answer;
  bool gone = false;
  const shared::Descriptor socket(Connect(address, deadline, &gone));
  if (gone) answer.kind = PeerAnswer::Kind::kGone;
  if (socket.get() < 0) return answer;
  Reply reply;
  if (!Send(socket.get(), address, false, "", deadline) || !ReadAll(socket.get(), &reply, sizeof(reply), deadline) ||
      reply.message_bytes < 0 || reply.message_bytes > kLongestMessage) {
    // Closed without an answer: another process, or the communicator is gone. No answer in time: it hangs.
    if (Clock::now() < deadline) answer.kind = PeerAnswer::Kind::kGone;
    return answer;
  }
  answer.state.message.resize(reply.message_bytes);
  if (!ReadAll(socket.get(), answer.state.message.data(), answer.state.message.size(), deadline)) return answer;
  answer.kind = PeerAnswer::Kind::kState;
  answer.state.phase = static_cast<PeerState::Phase>(reply.phase);
  answer.state.operations = reply.operations;
  answer.state.waiting_for = reply.waiting_for;
  return answer;
}

void SendFailure(const PeerAddress& address, const std::string& message, absl::Duration timeout) {
  const Clock::time_point deadline = After(timeout);
  bool gone = false;
  const shared::Descriptor socket(Connect(address, deadline, &gone));
  if (socket.get() < 0 || !Send(socket.get(), address, true, message, deadline)) return;
  char ignored = 0;
  ReadAll(socket.get(), &ignored, 1, deadline);
}

}  // namespace reshard::peers
