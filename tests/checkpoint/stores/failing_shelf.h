// A store that fails.
#ifndef RESHARD_TESTS_CHECKPOINT_STORES_FAILING_SHELF_H_
#define RESHARD_TESTS_CHECKPOINT_STORES_FAILING_SHELF_H_

#include <atomic>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/strings/match.h"
#include "tests/checkpoint/stores/shelf.h"

namespace reshard::testing {

inline constexpr int64_t kNever = int64_t{1} << 40;

// Fails at its at-th call, before it does what it is asked to or after; and from then on, as a process that is killed
// does nothing more, or `once`. Heartbeats, which come when they will, do not count.
class FailingShelf final : public Shelf {
 public:
  void FailAt(int64_t at, bool after, bool once = false) {
    at_ = at;
    after_ = after;
    once_ = once;
    calls_ = 0;
  }
  bool failed() const { return calls_ > at_; }

  absl::StatusOr<StoredObject> Find(const std::string& url) override {
    return Call<absl::StatusOr<StoredObject>>(url, [&] { return Shelf::Find(url); });
  }
  absl::Status Read(const std::string& url, const StoredObject& object, int64_t from, absl::Span<char> out) override {
    return Call<absl::Status>(url, [&] { return Shelf::Read(url, object, from, out); });
  }
  absl::StatusOr<std::vector<Entry>> List(const std::string& url) override {
    return Call<absl::StatusOr<std::vector<Entry>>>(url, [&] { return Shelf::List(url); });
  }
  // Of uploads, too.
  absl::StatusOr<StoredObject> Put(const std::string& url, std::string_view bytes, bool create) override {
    return Call<absl::StatusOr<StoredObject>>(url, [&] { return Shelf::Put(url, bytes, create); });
  }
  absl::Status Delete(const std::string& url) override {
    return Call<absl::Status>(url, [&] { return Shelf::Delete(url); });
  }

 private:
  template <typename Result, typename Function>
  Result Call(const std::string& url, const Function& call) {
    if (absl::StrContains(url, "/beat-")) return call();
    const int64_t number = calls_++;
    if ((number > at_ && !once_) || (number == at_ && !after_)) return absl::UnavailableError("the store is gone");
    Result result = call();
    if (number == at_) return absl::UnavailableError("the store is gone");
    return result;
  }

  std::atomic<int64_t> calls_{0};
  int64_t at_ = kNever;
  bool after_ = false;
  bool once_ = false;
};

}  // namespace reshard::testing

#endif  // RESHARD_TESTS_CHECKPOINT_STORES_FAILING_SHELF_H_
