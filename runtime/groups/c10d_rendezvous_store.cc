#include "runtime/groups/c10d_rendezvous_store.h"

#include <algorithm>
#include <chrono>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "runtime/groups/why_not.h"
#include "status/macros.h"

namespace reshard::groups {

C10dRendezvousStore::C10dRendezvousStore(const c10::intrusive_ptr<c10d::ProcessGroup>& group, std::string prefix,
                                         Connection connection)
    : group_(group), store_(group->getStore()), prefix_(std::move(prefix)) {
  if (store_ == nullptr || connection == Connection::kGroups) return;
  WhyNot([this] { store_ = store_->clone(); });
}

template <typename F>
absl::Status C10dRendezvousStore::Ask(const std::string& key, F&& f) const {
  const c10::intrusive_ptr<c10d::ProcessGroup> group = group_.lock();
  if (group == nullptr) return absl::UnavailableError("the process group has been destroyed");
  if (store_ == nullptr) return absl::UnavailableError("the process group has no store");
  const std::string reason = WhyNot(f);
  if (reason.empty()) return absl::OkStatus();
  return absl::UnavailableError(absl::StrCat("the store of the process group, key ", key, ": ", reason.substr(0, 300)));
}

absl::Status C10dRendezvousStore::Set(const std::string& key, const std::string& value) {
  return Ask(key, [&] { store_->set(prefix_ + key, std::vector<uint8_t>(value.begin(), value.end())); });
}

absl::StatusOr<std::string> C10dRendezvousStore::Get(const std::string& key, absl::Duration timeout) {
  const absl::Time deadline = absl::Now() + timeout;
  std::vector<uint8_t> value;
  const absl::Status got = Ask(key, [&] {
    store_->wait({prefix_ + key}, std::chrono::milliseconds(std::max<int64_t>(1, absl::ToInt64Milliseconds(timeout))));
    value = store_->get(prefix_ + key);
  });
  if (got.ok()) return std::string(value.begin(), value.end());
  if (absl::Now() < deadline) return got;
  return absl::DeadlineExceededError(
      absl::StrCat("nobody wrote ", key, " within ", absl::ToInt64Milliseconds(timeout), " ms"));
}

absl::StatusOr<std::optional<std::string>> C10dRendezvousStore::TryGet(const std::string& key) {
  std::optional<std::string> found;
  RETURN_IF_ERROR(Ask(key, [&] {
    if (!store_->check({prefix_ + key})) return;
    const std::vector<uint8_t> value = store_->get(prefix_ + key);
    found.emplace(value.begin(), value.end());
  }));
  return found;
}

}  // namespace reshard::groups
