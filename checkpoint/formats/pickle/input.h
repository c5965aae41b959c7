// The bytes of a pickle from front to back: in memory, or in a file of which a window is in memory.
#ifndef RESHARD_CHECKPOINT_FORMATS_PICKLE_INPUT_H_
#define RESHARD_CHECKPOINT_FORMATS_PICKLE_INPUT_H_

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "absl/status/status.h"
#include "checkpoint/io/files.h"
#include "checkpoint/io/unset_memory.h"

namespace reshard::pickle {

// Invariant: [begin(), end()) are the bytes from offset() on.
class PickleInput {
 public:
  // `bytes` or `file` must outlive it.
  explicit PickleInput(std::string_view bytes);
  explicit PickleInput(const io::ReadFile& file) : PickleInput(file, WindowFor(file)) {}
  // With a window of that many bytes, or more if more is wanted at once.
  PickleInput(const io::ReadFile& file, int64_t window) : file_(&file), bytes_(file.bytes()), least_(window) {}

  int64_t bytes() const { return bytes_; }  // in all
  const uint8_t* begin() const { return begin_; }
  const uint8_t* end() const { return end_; }
  int64_t offset() const { return offset_; }
  // Whether there are bytes behind end().
  bool more() const { return offset_ + (end_ - begin_) < bytes_; }

  // Makes `keep`, in [begin(), end()], the begin of a window that holds at least `wanted` bytes, or all that are left.
  // What is before it is gone, and addresses change. Errors of reading the file. Throws bad_alloc.
  absl::Status Advance(const uint8_t* keep, int64_t wanted);

 private:
  static int64_t WindowFor(const io::ReadFile& file);

  const io::ReadFile* file_ = nullptr;
  int64_t bytes_ = 0;
  int64_t least_ = 0;  // that are read at once
  io::UnsetMemory window_;
  int64_t offset_ = 0;
  const uint8_t* begin_ = nullptr;
  const uint8_t* end_ = nullptr;
};

}  // namespace reshard::pickle

#endif  // RESHARD_CHECKPOINT_FORMATS_PICKLE_INPUT_H_
