// The memory that one rank shares with the other ranks of its host: a doorbell, mailboxes, and one ring of slots to
// each of them. It has no name: a process without its descriptor cannot find it, and it disappears with the last
// process that maps it, however that process ends.
//
// Every word has one writer, the rank that owns the memory, except for the doorbell, which any rank rings, and
// Ring::emptied and SlotHeader::nanoseconds, which the receiver writes.
#ifndef RESHARD_RUNTIME_SHARED_SEGMENT_H_
#define RESHARD_RUNTIME_SHARED_SEGMENT_H_

#include <atomic>
#include <chrono>
#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "runtime/shared/descriptor.h"

namespace reshard::shared {

// Wakes the rank that owns it. A rank first announces that it is about to sleep, then looks once more for what it waits
// for; a rank that changes something looks afterwards whether the other sleeps. At least one of the two sees the other.
class Doorbell {
 public:
  // For the owner: from AboutToSleep until Woken, others ring.
  void AboutToSleep() { sleeping_.store(1); }
  void Woken() { sleeping_.store(0); }
  // The value to pass to Sleep; read it before the last look.
  uint32_t rung() const { return rung_.load(); }
  // Sleeps until it is rung after rung() returned `rung`, or until `left` has passed; may return early.
  void Sleep(uint32_t rung, std::chrono::nanoseconds left);
  // For the others: wakes the owner if it sleeps.
  void WakeIfAsleep() {
    if (sleeping_.load() != 0) Wake();
  }
  void Wake();

 private:
  std::atomic<uint32_t> rung_{0};
  std::atomic<uint32_t> sleeping_{0};
};

// What a rank shows all others at once, e.g. its part in an agreement. Each rank has two, used in turns: a rank that
// overwrites a mailbox has seen the following one of every other rank, so all have read what it overwrites.
inline constexpr int64_t kMailboxBytes = 1024;
struct alignas(64) Mailbox {
  int64_t bytes = 0;
  char data[kMailboxBytes] = {};
};

// The state of one ring of slots, from the rank that owns the segment to one other rank.
struct Ring {
  alignas(64) std::atomic<uint64_t> filled{0};   // slots filled so far, by the owner
  alignas(64) std::atomic<uint64_t> emptied{0};  // slots emptied so far, by the receiver
};

// At the start of each slot. Data that several ranks receive alike is in one slot, to which the slots of the other
// rings refer.
struct alignas(64) SlotHeader {
  uint64_t tag = 0;         // of the step
  int64_t bytes = 0;        // in use
  int64_t ring = 0;         // ring of the slot that holds the bytes, in the same segment
  uint64_t number = 0;      // number of that slot
  int64_t nanoseconds = 0;  // time that the receiver took for them; written by the receiver
};

// At the start of the memory.
struct Head {
  uint64_t magic = 0;  // of this layout
  int64_t rank = 0;
  int64_t rings = 0;
  int64_t slots = 0;       // in each ring
  int64_t slot_bytes = 0;  // without the header
  alignas(64) Doorbell doorbell;
  alignas(64) std::atomic<uint64_t> posted{0};  // mailboxes written so far
  Mailbox mailboxes[2];
};

// A mapping of such memory.
class Segment {
 public:
  Segment() = default;
  Segment(Segment&& other) noexcept;
  Segment& operator=(Segment&& other) noexcept;
  ~Segment();

  // Makes the memory of `rank`, with a ring to each of `receivers`. All of it is allocated, so touching it cannot fail.
  // ResourceExhausted: there is not enough memory.
  static absl::StatusOr<Segment> Create(int64_t rank, absl::Span<const int64_t> receivers);
  // Maps the memory of another process. InvalidArgument: Create did not make it, or it could still be truncated.
  static absl::StatusOr<Segment> Map(Descriptor memory);

  // Returns a handle to the same memory, for a rank in another thread of this process; it must not outlive this one.
  Segment Borrow() const;

  explicit operator bool() const { return memory_ != nullptr; }
  // The descriptor to pass to other processes; only if Create made this segment.
  int descriptor() const { return descriptor_.get(); }
  int64_t rank() const { return head().rank; }
  Head& head() const { return *static_cast<Head*>(memory_); }
  int64_t rings() const { return shape_.rings; }
  int64_t slots() const { return shape_.slots; }  // in each ring
  int64_t slot_bytes() const { return shape_.slot_bytes; }
  // Index of the ring to that rank, or -1.
  int64_t IndexOfRingTo(int64_t receiver) const;
  Ring& ring(int64_t index) const;
  // The header and the data of slot `number` modulo slots().
  SlotHeader& header(int64_t ring, uint64_t number) const;
  char* slot(int64_t ring, uint64_t number) const;

 private:
  // The sizes as they were when the memory was mapped: the head is not trusted again, since others can write to it.
  struct Shape {
    int64_t rings = 0;
    int64_t slots = 0;
    int64_t slot_bytes = 0;

    int64_t pitch() const;
    int64_t rings_at() const;
    int64_t slots_at() const;
    int64_t bytes() const;
  };

  Descriptor descriptor_;
  Shape shape_;
  void* memory_ = nullptr;
  bool borrowed_ = false;
};

}  // namespace reshard::shared

#endif  // RESHARD_RUNTIME_SHARED_SEGMENT_H_
