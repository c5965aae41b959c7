#include "runtime/shared/segment.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <new>
#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/host/futex.h"

namespace reshard::shared {
namespace {

constexpr uint64_t kMagic = 0x7265736861726401;  // "reshard", layout 1

// Bytes of all rings of a rank together, unless slots of kLeastSlot need more.
constexpr int64_t kRingsBytes = int64_t{8} << 20;
constexpr int64_t kSlots = 4;
// Measured: with smaller slots ranks meet more often; larger slots are no faster.
constexpr int64_t kMostSlot = int64_t{256} << 10;
constexpr int64_t kLeastSlot = int64_t{4} << 10;

constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;

constexpr int64_t Aligned(int64_t bytes) { return (bytes + 63) / 64 * 64; }
constexpr int64_t kHeadBytes = Aligned(sizeof(Head));

int64_t SlotBytesFor(int64_t rings) {
  return std::clamp(kRingsBytes / std::max<int64_t>(rings, 1) / kSlots / kLeastSlot * kLeastSlot, kLeastSlot,
                    kMostSlot);
}

absl::Status NotOurs(absl::string_view why) {
  return absl::InvalidArgumentError(absl::StrCat("not memory of a rank: ", why));
}

}  // namespace

// After the head: the ranks that the rings lead to, the rings, their slots.
int64_t Segment::Shape::pitch() const { return static_cast<int64_t>(sizeof(SlotHeader)) + slot_bytes; }
int64_t Segment::Shape::rings_at() const { return kHeadBytes + Aligned(rings * int64_t{sizeof(int64_t)}); }
int64_t Segment::Shape::slots_at() const { return rings_at() + rings * int64_t{sizeof(Ring)}; }
int64_t Segment::Shape::bytes() const { return slots_at() + rings * slots * pitch(); }

void Doorbell::Sleep(uint32_t rung, std::chrono::nanoseconds left) {
  host::FutexWait(rung_, rung, left, host::FutexScope::kProcesses);
}

void Doorbell::Wake() {
  rung_.fetch_add(1);
  host::FutexWakeAll(rung_, host::FutexScope::kProcesses);
}

Segment::Segment(Segment&& other) noexcept
    : descriptor_(std::move(other.descriptor_)),
      shape_(other.shape_),
      memory_(std::exchange(other.memory_, nullptr)),
      borrowed_(other.borrowed_) {}

Segment& Segment::operator=(Segment&& other) noexcept {
  std::swap(descriptor_, other.descriptor_);
  std::swap(shape_, other.shape_);
  std::swap(memory_, other.memory_);
  std::swap(borrowed_, other.borrowed_);
  return *this;
}

Segment::~Segment() {
  if (memory_ != nullptr && !borrowed_) munmap(memory_, static_cast<size_t>(shape_.bytes()));
}

Segment Segment::Borrow() const {
  Segment same;
  same.shape_ = shape_;
  same.memory_ = memory_;
  same.borrowed_ = true;
  return same;
}

absl::StatusOr<Segment> Segment::Create(int64_t rank, absl::Span<const int64_t> receivers) {
  Segment segment;
  rlimit limit{};
  const auto rings = static_cast<int64_t>(receivers.size());
  segment.shape_ = {rings, kSlots, SlotBytesFor(rings)};
  const int64_t bytes = segment.shape_.bytes();
  const auto failed = [bytes](absl::string_view what) {
    return absl::ResourceExhaustedError(
        absl::StrCat("no ", bytes, " bytes of shared memory: ", what, ": ", std::strerror(errno)));
  };
  // Beyond this limit the system does not return an error but ends the process.
  if (getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur < static_cast<uint64_t>(bytes)) {
    errno = EFBIG;
    return failed("RLIMIT_FSIZE");
  }
  segment.descriptor_ = Descriptor(memfd_create("reshard", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  const int fd = segment.descriptor_.get();
  if (fd < 0) return failed("memfd_create");
  // fallocate, not ftruncate alone: otherwise touching a page that cannot be allocated ends the process.
  if (ftruncate(fd, bytes) != 0 || fallocate(fd, 0, 0, bytes) != 0) return failed("fallocate");
  if (fcntl(fd, F_ADD_SEALS, kSeals) != 0) return failed("F_ADD_SEALS");
  void* const memory =
      mmap(nullptr, static_cast<size_t>(bytes), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, fd, 0);
  if (memory == MAP_FAILED) return failed("mmap");
  segment.memory_ = memory;
  Head* const head = new (memory) Head;
  head->rank = rank;
  head->rings = segment.shape_.rings;
  head->slots = segment.shape_.slots;
  head->slot_bytes = segment.shape_.slot_bytes;
  head->magic = kMagic;
  auto* const base = static_cast<char*>(memory);
  std::copy(receivers.begin(), receivers.end(), reinterpret_cast<int64_t*>(base + kHeadBytes));
  for (int64_t r = 0; r < rings; ++r) new (&segment.ring(r)) Ring;
  return segment;
}

absl::StatusOr<Segment> Segment::Map(Descriptor memory) {
  const int seals = fcntl(memory.get(), F_GET_SEALS);
  if (seals < 0 || (seals & kSeals) != kSeals) return NotOurs("it could be made shorter");
  struct stat info {};
  if (fstat(memory.get(), &info) != 0 || info.st_size < kHeadBytes) return NotOurs("it is too short");
  const auto bytes = static_cast<size_t>(info.st_size);
  void* const mapped = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, memory.get(), 0);
  if (mapped == MAP_FAILED) {
    return absl::ResourceExhaustedError(
        absl::StrCat("cannot map ", bytes, " bytes of shared memory: ", std::strerror(errno)));
  }
  const auto refused = [&](absl::string_view why) {
    munmap(mapped, bytes);
    return NotOurs(why);
  };
  const Head& head = *static_cast<const Head*>(mapped);
  const Shape shape{head.rings, head.slots, head.slot_bytes};
  if (head.magic != kMagic) return refused("it begins with something else");
  // Bounded first, so that the sizes cannot overflow.
  constexpr int64_t kMany = int64_t{1} << 20;
  if (shape.rings < 0 || shape.rings > kMany || shape.slots < 1 || shape.slots > kMany ||
      shape.slot_bytes < kLeastSlot || shape.slot_bytes > kMostSlot || shape.bytes() != info.st_size) {
    return refused("its sizes do not agree");
  }
  Segment segment;
  segment.shape_ = shape;
  segment.memory_ = mapped;
  return segment;
}

int64_t Segment::IndexOfRingTo(int64_t receiver) const {
  const auto* const receivers = reinterpret_cast<const int64_t*>(static_cast<const char*>(memory_) + kHeadBytes);
  const auto* const end = receivers + shape_.rings;
  const auto* const found = std::find(receivers, end, receiver);
  return found == end ? -1 : found - receivers;
}

Ring& Segment::ring(int64_t index) const {
  return reinterpret_cast<Ring*>(static_cast<char*>(memory_) + shape_.rings_at())[index];
}

SlotHeader& Segment::header(int64_t ring, uint64_t number) const {
  const int64_t index = ring * shape_.slots + static_cast<int64_t>(number % static_cast<uint64_t>(shape_.slots));
  return *reinterpret_cast<SlotHeader*>(static_cast<char*>(memory_) + shape_.slots_at() + index * shape_.pitch());
}

char* Segment::slot(int64_t ring, uint64_t number) const {
  return reinterpret_cast<char*>(&header(ring, number)) + sizeof(SlotHeader);
}

}  // namespace reshard::shared
