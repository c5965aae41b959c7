#include "checkpoint/formats/pickle/input.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "status/macros.h"

namespace reshard::pickle {

int64_t PickleInput::WindowFor(const io::ReadFile& file) {
  // Stays in the nearer caches. Where a call is dear, as to a server, it reads more.
  constexpr int64_t kWindow = int64_t{256} << 10;
  constexpr int64_t kGaps = 16;
  return std::max(kWindow, kGaps * file.gap());
}

PickleInput::PickleInput(std::string_view bytes)
    : bytes_(static_cast<int64_t>(bytes.size())),
      begin_(reinterpret_cast<const uint8_t*>(bytes.data())),
      end_(begin_ + bytes.size()) {}

absl::Status PickleInput::Advance(const uint8_t* keep, int64_t wanted) {
  const int64_t kept = end_ - keep;
  if (kept >= wanted || !more()) return absl::OkStatus();
  const int64_t at = offset_ + (keep - begin_);
  const int64_t size = std::min(bytes_ - at, std::max(wanted, least_));
  io::UnsetMemory larger;
  const bool grows = static_cast<size_t>(size) > window_.size();
  if (grows) larger = io::UnsetMemory(static_cast<size_t>(size));
  char* const to = grows ? larger.data() : window_.data();
  if (kept > 0) std::memmove(to, keep, static_cast<size_t>(kept));
  if (grows) window_ = std::move(larger);
  offset_ = at;
  begin_ = reinterpret_cast<const uint8_t*>(to);
  end_ = begin_ + kept;
  RETURN_IF_ERROR(file_->ReadAt(at + kept, {to + kept, static_cast<size_t>(size - kept)}));
  end_ = begin_ + size;
  return absl::OkStatus();
}

}  // namespace reshard::pickle
