// A store of a program's own: objects in memory. All that reshard::Store asks for.
#ifndef RESHARD_TESTS_CHECKPOINT_STORES_SHELF_H_
#define RESHARD_TESTS_CHECKPOINT_STORES_SHELF_H_

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "reshard/checkpoint/store.h"

namespace reshard::testing {

class Shelf : public Store {
 public:
  absl::StatusOr<StoredObject> Find(const std::string& url) override {
    const std::lock_guard lock(mutex_);
    const auto found = objects_.find(url);
    if (found == objects_.end()) return absl::NotFoundError(url + ": there is nothing");
    return Facts(found->second);
  }

  absl::Status Read(const std::string& url, const StoredObject& object, int64_t at, absl::Span<char> out) override {
    const std::lock_guard lock(mutex_);
    const auto found = objects_.find(url);
    if (found == objects_.end() || Facts(found->second).version != object.version) {
      return absl::FailedPreconditionError(url + " has changed");
    }
    found->second.bytes.copy(out.data(), out.size(), static_cast<size_t>(at));
    return absl::OkStatus();
  }

  absl::StatusOr<std::vector<Entry>> List(const std::string& url) override {
    const std::lock_guard lock(mutex_);
    std::vector<Entry> entries;
    std::set<std::string> folders;
    for (const auto& [key, object] : objects_) {
      if (!key.starts_with(url + "/")) continue;
      const std::string rest = key.substr(url.size() + 1);
      const size_t slash = rest.find('/');
      if (slash != rest.npos && folders.insert(rest.substr(0, slash)).second) {
        entries.push_back({rest.substr(0, slash), true, {}});
      }
      if (slash == rest.npos) entries.push_back({rest, false, Facts(object)});
    }
    if (entries.empty()) return absl::NotFoundError(url + ": there is nothing");
    return entries;
  }

  absl::StatusOr<StoredObject> Put(const std::string& url, std::string_view bytes, bool create) override {
    const std::lock_guard lock(mutex_);
    if (create && objects_.contains(url)) return absl::AlreadyExistsError(url + " exists");
    return Facts(objects_[url] = {std::string(bytes), ++versions_});
  }

  absl::StatusOr<std::unique_ptr<ObjectUpload>> Begin(const std::string& url, int64_t, int64_t) override {
    return std::make_unique<Upload>(*this, url);
  }

  absl::Status Delete(const std::string& url) override {
    const std::lock_guard lock(mutex_);
    objects_.erase(url);
    return absl::OkStatus();
  }

  // For tests: the names of all objects, of those below a URL from there on, and what is in one.
  std::vector<std::string> Names() {
    const std::lock_guard lock(mutex_);
    std::vector<std::string> names;
    for (const auto& [key, object] : objects_) names.push_back(key);
    return names;
  }
  std::set<std::string> NamesBelow(const std::string& url) {
    std::set<std::string> names;
    for (const std::string& key : Names()) {
      if (key.starts_with(url + "/")) names.insert(key.substr(url.size() + 1));
    }
    return names;
  }
  std::string Contents(const std::string& url) {
    const std::lock_guard lock(mutex_);
    return objects_[url].bytes;
  }

 private:
  struct Object {
    std::string bytes;
    int64_t version = 0;
  };
  static StoredObject Facts(const Object& object) {
    return {static_cast<int64_t>(object.bytes.size()), std::to_string(object.version)};
  }

  class Upload : public ObjectUpload {
   public:
    Upload(Shelf& shelf, std::string url) : shelf_(shelf), url_(std::move(url)) {}
    absl::Status Write(std::string_view bytes) override {
      bytes_.append(bytes);
      return absl::OkStatus();
    }
    absl::StatusOr<StoredObject> Finish() override { return shelf_.Put(url_, bytes_, false); }

   private:
    Shelf& shelf_;
    const std::string url_;
    std::string bytes_;
  };

  std::mutex mutex_;
  std::map<std::string, Object> objects_;
  int64_t versions_ = 0;
};

}  // namespace reshard::testing

#endif  // RESHARD_TESTS_CHECKPOINT_STORES_SHELF_H_
