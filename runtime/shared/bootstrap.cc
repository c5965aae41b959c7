#include "runtime/shared/bootstrap.h"

#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/host/random.h"

namespace reshard::shared {
namespace {

// The message that carries the descriptor.
struct Hello {
  uint64_t magic = 0x7265736861726448;
  int64_t rank = 0;
};

// Fills in the address for that name in the abstract namespace, which leaves nothing behind when the process ends.
socklen_t AddressOf(const SocketName& name, sockaddr_un* address) {
  *address = {};
  address->sun_family = AF_UNIX;
  const int length = std::snprintf(address->sun_path + 1, sizeof(address->sun_path) - 1, "reshard-%016llx%016llx",
                                   static_cast<unsigned long long>(name[0]), static_cast<unsigned long long>(name[1]));
  return static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + static_cast<size_t>(length));
}

// Gets the credentials of the process at the other end; false unless it belongs to this user.
bool OfThisUser(int fd, ucred* peer) {
  socklen_t length = sizeof(*peer);
  return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, peer, &length) == 0 && peer->uid == geteuid();
}

// A hello with room for one descriptor, in the form that sendmsg and recvmsg take. Not movable: it points into itself.
struct DescriptorMessage {
  DescriptorMessage() {
    message.msg_iov = &data;
    message.msg_iovlen = 1;
    message.msg_control = control;
    message.msg_controllen = sizeof(control);
  }
  DescriptorMessage(const DescriptorMessage&) = delete;
  DescriptorMessage& operator=(const DescriptorMessage&) = delete;

  Hello hello;
  iovec data{&hello, sizeof(hello)};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr message{};
};

bool SendDescriptor(int fd, int64_t rank, int memory) {
  DescriptorMessage packet;
  packet.hello.rank = rank;
  cmsghdr* const header = CMSG_FIRSTHDR(&packet.message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(sizeof(int));
  std::memcpy(CMSG_DATA(header), &memory, sizeof(int));
  return sendmsg(fd, &packet.message, MSG_DONTWAIT | MSG_NOSIGNAL) == static_cast<ssize_t>(sizeof(Hello));
}

// Receives what SendDescriptor sent, which must have arrived already; returns no descriptor for anything else.
Descriptor ReceiveDescriptor(int fd, int64_t* rank) {
  DescriptorMessage packet;
  msghdr& message = packet.message;
  const ssize_t got = recvmsg(fd, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
  if (got < 0) return {};
  Descriptor memory;
  for (cmsghdr* header = CMSG_FIRSTHDR(&message); header != nullptr; header = CMSG_NXTHDR(&message, header)) {
    if (header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS ||
        header->cmsg_len != CMSG_LEN(sizeof(int))) {
      continue;
    }
    int passed = -1;
    std::memcpy(&passed, CMSG_DATA(header), sizeof(int));
    memory = Descriptor(passed);
  }
  if (got != static_cast<ssize_t>(sizeof(Hello)) || packet.hello.magic != Hello().magic) return {};
  *rank = packet.hello.rank;
  return memory;
}

}  // namespace

absl::StatusOr<Bootstrap> Bootstrap::Listen(int64_t rank) {
  const SocketName name = {host::Random64() | 1, host::Random64() | 1};
  Descriptor listener(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  sockaddr_un address;
  const socklen_t length = AddressOf(name, &address);
  // The system caps the backlog; this rank does not share memory with ranks that do not fit in it.
  constexpr int kBacklog = 1 << 16;
  if (!listener || bind(listener.get(), reinterpret_cast<sockaddr*>(&address), length) != 0 ||
      listen(listener.get(), kBacklog) != 0) {
    return absl::UnavailableError(absl::StrCat("cannot listen for ranks of this host: ", std::strerror(errno)));
  }
  return Bootstrap(rank, name, std::move(listener));
}

absl::Status Bootstrap::Offer(absl::Span<const SocketName> names) {
  reached_.clear();
  accepted_.clear();
  std::vector<int64_t> ranks;
  for (size_t r = 0; r < names.size(); ++r) {
    reached_.emplace_back();
    accepted_.emplace_back();
    if (static_cast<int64_t>(r) == rank_ || names[r] == SocketName{}) continue;
    Descriptor connection(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    sockaddr_un address;
    const socklen_t length = AddressOf(names[r], &address);
    ucred peer{};
    if (!connection || connect(connection.get(), reinterpret_cast<sockaddr*>(&address), length) != 0 ||
        !OfThisUser(connection.get(), &peer)) {
      continue;
    }
    reached_.back() = std::move(connection);
    ranks.push_back(static_cast<int64_t>(r));
  }
  if (ranks.empty()) return absl::OkStatus();
  absl::StatusOr<Segment> segment = Segment::Create(rank_, ranks);
  if (!segment.ok()) {
    reached_ = std::vector<Descriptor>(names.size());
    return segment.status();
  }
  segment_ = *std::move(segment);
  for (const int64_t r : ranks) {
    Descriptor& connection = reached_[r];
    if (!SendDescriptor(connection.get(), rank_, segment_.descriptor())) connection = Descriptor();
  }
  return absl::OkStatus();
}

void Bootstrap::Accept() {
  for (;;) {
    Descriptor connection(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!connection) {
      if (errno == EINTR || errno == ECONNABORTED) continue;
      break;
    }
    ucred peer{};
    if (!OfThisUser(connection.get(), &peer)) continue;
    int64_t rank = -1;
    Descriptor memory = ReceiveDescriptor(connection.get(), &rank);
    if (!memory || rank < 0 || rank >= static_cast<int64_t>(accepted_.size()) || rank == rank_) continue;
    absl::StatusOr<Segment> segment = Segment::Map(std::move(memory));
    if (!segment.ok() || segment->rank() != rank || segment->IndexOfRingTo(rank_) < 0) continue;
    LocalPeer& accepted = accepted_[rank];
    accepted.rank = rank;
    accepted.segment = *std::move(segment);
    accepted.connection = std::move(connection);
    // A process in another pid namespace has no pid here.
    if (peer.pid > 0) accepted.process = Descriptor(static_cast<int>(syscall(SYS_pidfd_open, peer.pid, 0)));
  }
  listener_ = Descriptor();
}

bool Bootstrap::mapped(int64_t r) const {
  const auto at = static_cast<size_t>(r);
  return at < accepted_.size() && accepted_[at].segment && reached_[at];
}

std::vector<LocalPeer> Bootstrap::Keep(const std::vector<bool>& mutual) {
  std::vector<LocalPeer> kept;
  for (size_t r = 0; r < accepted_.size(); ++r) {
    if (!mutual[r] || !accepted_[r].segment) continue;
    // One of a pair's two connections is enough: the one that the lower rank made.
    if (rank_ < static_cast<int64_t>(r)) accepted_[r].connection = std::move(reached_[r]);
    kept.push_back(std::move(accepted_[r]));
  }
  reached_.clear();
  accepted_.clear();
  return kept;
}

}  // namespace reshard::shared
