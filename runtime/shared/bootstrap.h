// How the ranks of one host find each other and map each other's memory.
//
// Two ranks share a host if one can reach the other's Unix socket and map its memory, not if their host names agree.
// The socket's name is a random number and is in no file system; both ends of a connection must belong to the same
// user. One connection per pair is kept afterwards: it closes when either process ends, however it ends.
//
// Between these steps all ranks communicate by other means:
//   1. every rank listens and tells all others its name                   name()
//   2. every rank connects to all others and passes its memory            Offer()
//   3. once all have: every rank maps what it was passed                  Accept(), mapped()
//   4. once all know who mapped whose memory: mutual mappings are kept    Keep()
// Nothing here waits for another rank.
#ifndef RESHARD_RUNTIME_SHARED_BOOTSTRAP_H_
#define RESHARD_RUNTIME_SHARED_BOOTSTRAP_H_

#include <array>
#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "runtime/shared/descriptor.h"
#include "runtime/shared/segment.h"

namespace reshard::shared {

// The name of a rank's socket. All zero: the rank shares nothing.
using SocketName = std::array<uint64_t, 2>;

// Another rank of the host.
struct LocalPeer {
  int64_t rank = 0;
  Segment segment;        // its memory
  Descriptor connection;  // closes when the rank is gone
  Descriptor process;     // its pidfd, where the system has them: forked children keep connections open
};

class Bootstrap {
 public:
  // Listens on a new socket with a random name. Unavailable: this process cannot listen.
  static absl::StatusOr<Bootstrap> Listen(int64_t rank);

  const SocketName& name() const { return name_; }

  // Connects to all ranks that can be reached, makes the memory that is shared with them, and passes it to them.
  // names[r] is the socket name of rank r. ResourceExhausted: there is no memory for it; nothing was passed then.
  absl::Status Offer(absl::Span<const SocketName> names);

  // Accepts the connections that other ranks made in Offer and maps the memory that they passed. What does not come
  // from a rank of this world, or cannot be mapped, counts as not passed. Call once: closes the listening socket.
  void Accept();

  // Whether this rank has mapped the memory of rank r.
  bool mapped(int64_t r) const;

  // Returns the peers r for which mutual[r] holds, ascending by rank, and drops the others. mutual[r] implies mapped(r)
  // and is the same on both sides.
  std::vector<LocalPeer> Keep(const std::vector<bool>& mutual);
  // Returns the memory that Offer made; empty if no rank was reached.
  Segment TakeSegment() { return std::move(segment_); }

 private:
  Bootstrap(int64_t rank, SocketName name, Descriptor listener)
      : rank_(rank), name_(name), listener_(std::move(listener)) {}

  int64_t rank_;
  SocketName name_;
  Descriptor listener_;
  Segment segment_;
  std::vector<Descriptor> reached_;  // by rank
  std::vector<LocalPeer> accepted_;  // by rank; without a segment: not mapped
};

}  // namespace reshard::shared

#endif  // RESHARD_RUNTIME_SHARED_BOOTSTRAP_H_
