// How the ranks of one host find each other, and pass each other their memory.
//
// Two ranks share a host when one can reach the other's Unix socket and map its memory, not when names agree. The
// socket's name is in no file system and is a random number; both ends of a connection must be of the same
// user. Afterwards a connection is kept for each pair: it ends with either process, however that ends.
//
// The ranks communicate in between by means of their own, all of them at each of these points:
//   1. everybody listens, and tells everybody its name                    name()
//   2. everybody connects to everybody and passes its memory              Offer()
//   3. once all have: everybody maps what it was passed                   Accept(), mapped()
//   4. once all know who has mapped whose: what is mutual is kept         Keep()
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

// Of a socket. All zero: this rank shares nothing.
using SocketName = std::array<uint64_t, 2>;

// Another rank of the host.
struct LocalPeer {
  int64_t rank = 0;
  Segment segment;        // its memory
  Descriptor connection;  // ends when it is gone
  Descriptor process;     // a pidfd of it, where the system has them: forked children keep connections open
};

class Bootstrap {
 public:
  // Unavailable: this process cannot listen.
  static absl::StatusOr<Bootstrap> Listen(int64_t rank);

  const SocketName& name() const { return name_; }

  // names[r] is that of rank r. Connects to all that can be reached, makes the memory that is shared with these, and
  // passes it to them. ResourceExhausted: there is no memory for it; then nothing was passed.
  absl::Status Offer(absl::Span<const SocketName> names);

  // Maps the memory of all that passed it to this rank, which connected to it before. What does not come from a rank of
  // this world, or cannot be mapped, counts as not passed.
  void Accept();

  // Whether this rank has mapped the memory of rank r.
  bool mapped(int64_t r) const;

  // The peers for which mutual[r] holds, ascending by rank. mutual(r) implies mapped(r), and is the same on both
  // sides.
  std::vector<LocalPeer> Keep(const std::vector<bool>& mutual);
  // The memory that Offer made; nothing if nobody was reached.
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
