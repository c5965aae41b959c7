#include "reshard/runtime/recent_operations.h"

#include <algorithm>
#include <chrono>
#include <nlohmann/json.hpp>

namespace reshard {
namespace {

int64_t NowMicroseconds() {
  const auto since = std::chrono::system_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::microseconds>(since).count();
}

}  // namespace

int64_t RecentOperations::Begin(absl::string_view name, int64_t bytes) {
  const std::lock_guard<std::mutex> lock(mutex_);
  Entry& entry = ring_[static_cast<size_t>(count_) % ring_.size()];
  entry.number = count_;
  entry.name.assign(name.data(), name.size());
  entry.bytes = bytes;
  entry.begin_us = NowMicroseconds();
  entry.end_us = 0;
  entry.done = false;
  entry.error.clear();
  return count_++;
}

void RecentOperations::End(int64_t number, const absl::Status& status) {
  const std::lock_guard<std::mutex> lock(mutex_);
  Entry& entry = ring_[static_cast<size_t>(number) % ring_.size()];
  if (entry.number != number) return;
  entry.end_us = NowMicroseconds();
  entry.done = true;
  if (!status.ok()) entry.error = std::string(status.message());
}

std::string RecentOperations::ToJson() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  nlohmann::json list = nlohmann::json::array();
  const int64_t kept = std::min(count_, static_cast<int64_t>(ring_.size()));
  for (int64_t number = count_ - kept; number < count_; ++number) {
    const Entry& entry = ring_[static_cast<size_t>(number) % ring_.size()];
    nlohmann::json item = {{"number", entry.number},
                           {"operation", entry.name},
                           {"bytes", entry.bytes},
                           {"state", !entry.done ? "running" : (entry.error.empty() ? "done" : "failed")},
                           {"begin_us", entry.begin_us}};
    if (entry.done) item["end_us"] = entry.end_us;
    if (!entry.error.empty()) item["error"] = entry.error;
    list.push_back(std::move(item));
  }
  // Messages may quote bytes that are not UTF-8.
  return list.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

}  // namespace reshard
