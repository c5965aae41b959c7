// Host memory that is used again. Memory fresh from the system costs ten times the copy into it (its pages are made one
// by one at the first touch), so large blocks go back to a pool of the process instead of to the system.
#ifndef RESHARD_RUNTIME_CORE_HOST_POOL_H_
#define RESHARD_RUNTIME_CORE_HOST_POOL_H_

#include <cstddef>
#include <cstdint>
#include <memory>

namespace reshard {

// Where blocks start, and what is laid out inside them should: on a cache line.
inline constexpr int64_t kHostAlignment = 64;
inline int64_t AlignedHostBytes(int64_t bytes) {
  return (bytes + kHostAlignment - 1) / kHostAlignment * kHostAlignment;
}

// Memory of at least `bytes` bytes, aligned to kHostAlignment, with any content; null when there is none. Not null for
// 0. Blocks below 1 MiB come from malloc. Larger ones are rounded up by at most 1/8.
void* AcquireHostBlock(int64_t bytes);
// Gives it back. `bytes` as it was acquired. The pool keeps at most RESHARD_POOL_BYTES (default 1 GiB) for later.
void ReleaseHostBlock(void* block, int64_t bytes);
// Bytes that the pool keeps at the moment.
int64_t PooledHostBytes();

struct HostBlockRelease {
  int64_t bytes = 0;
  void operator()(void* block) const { ReleaseHostBlock(block, bytes); }
};

// A block that gives itself back.
class HostBlock {
 public:
  HostBlock() = default;
  explicit HostBlock(int64_t bytes) : data_(AcquireHostBlock(bytes), HostBlockRelease{bytes}) {}
  char* data() const { return static_cast<char*>(data_.get()); }
  explicit operator bool() const { return data_ != nullptr; }

 private:
  std::unique_ptr<void, HostBlockRelease> data_;
};

}  // namespace reshard

#endif  // RESHARD_RUNTIME_CORE_HOST_POOL_H_
