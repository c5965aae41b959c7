// A process-wide pool of host memory. Memory fresh from the system costs ten times the copy into it, because its pages
// are created one by one at the first touch; so large blocks are returned to the pool instead of the system,
// and those of 4 MiB and more ask for huge pages.
#ifndef RESHARD_RUNTIME_HOST_HOST_POOL_H_
#define RESHARD_RUNTIME_HOST_HOST_POOL_H_

#include <cstddef>
#include <cstdint>
#include <memory>

namespace reshard::host {

// Alignment of blocks, and of what is laid out inside them: a cache line.
inline constexpr int64_t kHostAlignment = 64;
inline int64_t AlignedHostBytes(int64_t bytes) {
  return (bytes + kHostAlignment - 1) / kHostAlignment * kHostAlignment;
}

// Uninitialized memory of at least `bytes` bytes, aligned to kHostAlignment; null if there is none. Not null for 0.
// Blocks below 1 MiB come from malloc. Larger ones are rounded up by at most 1/8.
void* AcquireHostBlock(int64_t bytes);
// Returns a block, with the same `bytes` with which it was acquired. The pool keeps at most RESHARD_POOL_BYTES (default
// 1 GiB) for reuse.
void ReleaseHostBlock(void* block, int64_t bytes);
// Bytes that the pool currently keeps.
int64_t PooledHostBytes();

struct HostBlockRelease {
  int64_t bytes = 0;
  void operator()(void* block) const { ReleaseHostBlock(block, bytes); }
};

// Owns a block and returns it.
class HostBlock {
 public:
  HostBlock() = default;
  explicit HostBlock(int64_t bytes) : data_(AcquireHostBlock(bytes), HostBlockRelease{bytes}) {}
  char* data() const { return static_cast<char*>(data_.get()); }
  explicit operator bool() const { return data_ != nullptr; }

 private:
  std::unique_ptr<void, HostBlockRelease> data_;
};

}  // namespace reshard::host

#endif  // RESHARD_RUNTIME_HOST_HOST_POOL_H_
