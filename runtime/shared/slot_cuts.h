// Decides which bytes of which pieces fill the next slot of a ring. Sender and receiver find the same cuts without
// communicating, since both know the lengths of the pieces.
#ifndef RESHARD_RUNTIME_SHARED_SLOT_CUTS_H_
#define RESHARD_RUNTIME_SHARED_SLOT_CUTS_H_

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace reshard::shared {

// Bytes [begin, end) of the piece-th piece, at byte `at` of a slot.
struct Cut {
  size_t piece = 0;
  int64_t begin = 0;
  int64_t end = 0;
  int64_t at = 0;
};

// Cuts the pieces of one peer into slots. A piece starts on a cache line of its slot, a small piece at a multiple of
// the largest element; a piece that does not fit is cut at a cache line.
class SlotCuts {
 public:
  // `lengths` are in bytes, none of them 0.
  explicit SlotCuts(std::vector<int64_t> lengths) : lengths_(std::move(lengths)) {}

  bool done() const { return next_ == lengths_.size(); }
  // The first piece with bytes left.
  size_t next() const { return next_; }
  // Replaces `cuts` with those of the next slot, which holds `capacity` bytes, a multiple of 64. Returns how many bytes
  // of it are in use. Post-condition: the cuts of all slots together cover all bytes of all pieces, in order, once
  // each.
  int64_t Next(int64_t capacity, std::vector<Cut>* cuts);

 private:
  std::vector<int64_t> lengths_;
  size_t next_ = 0;
  int64_t done_of_next_ = 0;  // bytes of it
};

}  // namespace reshard::shared

#endif  // RESHARD_RUNTIME_SHARED_SLOT_CUTS_H_
