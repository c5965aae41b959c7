// A file descriptor that is closed with its owner.
#ifndef RESHARD_RUNTIME_SHARED_DESCRIPTOR_H_
#define RESHARD_RUNTIME_SHARED_DESCRIPTOR_H_

#include <unistd.h>

#include <utility>

namespace reshard::shared {

class Descriptor {
 public:
  Descriptor() = default;
  explicit Descriptor(int fd) : fd_(fd) {}
  Descriptor(Descriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    if (this != &other) {
      Close();
      fd_ = std::exchange(other.fd_, -1);
    }
    return *this;
  }
  ~Descriptor() { Close(); }

  int get() const { return fd_; }
  explicit operator bool() const { return fd_ >= 0; }

 private:
  void Close() {
    if (fd_ >= 0) close(fd_);
  }
  int fd_ = -1;
};

}  // namespace reshard::shared

#endif  // RESHARD_RUNTIME_SHARED_DESCRIPTOR_H_
