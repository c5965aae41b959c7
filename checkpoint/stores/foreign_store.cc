#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "reshard/checkpoint/store.h"
#include "reshard/checkpoint/store_calls.h"
#include "status/macros.h"

namespace reshard {
namespace {

// What a function of a table wrote before it returned.
struct Reply {
  reshard_stored_object object = {};
  char error[RESHARD_STORE_ERROR_BYTES] = {};

  absl::Status StatusOf(int code) {
    if (code == 0) return absl::OkStatus();
    error[sizeof(error) - 1] = '\0';
    const bool is_code = code > 0 && code <= static_cast<int>(absl::StatusCode::kUnauthenticated);
    return absl::Status(is_code ? static_cast<absl::StatusCode>(code) : absl::StatusCode::kUnknown, error);
  }
  absl::StatusOr<StoredObject> ObjectOf(int code) {
    RETURN_IF_ERROR(StatusOf(code));
    object.version[sizeof(object.version) - 1] = '\0';
    if (object.bytes < 0) return absl::InternalError("a store reports an object of negative size");
    return StoredObject{object.bytes, object.version};
  }
};

class ForeignUpload final : public ObjectUpload {
 public:
  ForeignUpload(const reshard_store_calls& calls, uint64_t number) : calls_(calls), number_(number) {}
  ~ForeignUpload() override {
    if (number_ != 0) calls_.give_up(number_);
  }

  absl::Status Write(std::string_view bytes) override {
    Reply reply;
    return reply.StatusOf(calls_.write(number_, bytes.data(), static_cast<int64_t>(bytes.size()), reply.error));
  }

  absl::StatusOr<StoredObject> Finish() override {
    Reply reply;
    return reply.ObjectOf(calls_.finish(std::exchange(number_, 0), &reply.object, reply.error));
  }

 private:
  const reshard_store_calls& calls_;
  uint64_t number_;
};

class ForeignStore final : public Store {
 public:
  explicit ForeignStore(const reshard_store_calls& calls) : calls_(calls) {}

  absl::StatusOr<StoredObject> Find(const std::string& url) override {
    Reply reply;
    return reply.ObjectOf(calls_.find(url.c_str(), &reply.object, reply.error));
  }

  absl::StatusOr<StoredObject> FindAndRead(const std::string& url, absl::Span<char> first) override {
    Reply reply;
    return reply.ObjectOf(calls_.find_and_read(url.c_str(), first.data(), static_cast<int64_t>(first.size()),
                                               &reply.object, reply.error));
  }

  absl::Status Read(const std::string& url, const StoredObject& object, int64_t at, absl::Span<char> out) override {
    Reply reply;
    reply.object.bytes = object.bytes;
    // The version came from this store, so it fits.
    object.version.copy(reply.object.version, sizeof(reply.object.version) - 1);
    return reply.StatusOf(
        calls_.read(url.c_str(), &reply.object, at, out.data(), static_cast<int64_t>(out.size()), reply.error));
  }

  absl::StatusOr<std::vector<Entry>> List(const std::string& url) override {
    Reply reply;
    std::vector<Entry> entries;
    const auto take = [](void* taker, const char* name, int64_t bytes, const char* version) {
      static_cast<std::vector<Entry>*>(taker)->push_back({name, bytes < 0, {bytes < 0 ? 0 : bytes, version}});
    };
    RETURN_IF_ERROR(reply.StatusOf(calls_.list(url.c_str(), take, &entries, reply.error)));
    return entries;
  }

  absl::StatusOr<StoredObject> Put(const std::string& url, std::string_view bytes, bool create) override {
    Reply reply;
    return reply.ObjectOf(calls_.put(url.c_str(), bytes.data(), static_cast<int64_t>(bytes.size()), create ? 1 : 0,
                                     &reply.object, reply.error));
  }

  absl::StatusOr<std::unique_ptr<ObjectUpload>> Begin(const std::string& url, int64_t bytes, int64_t memory) override {
    Reply reply;
    uint64_t number = 0;
    RETURN_IF_ERROR(reply.StatusOf(calls_.begin(url.c_str(), bytes, memory, &number, reply.error)));
    return std::make_unique<ForeignUpload>(calls_, number);
  }

  absl::Status Delete(const std::string& url) override {
    Reply reply;
    return reply.StatusOf(calls_.remove(url.c_str(), reply.error));
  }

 private:
  const reshard_store_calls& calls_;
};

}  // namespace

std::shared_ptr<Store> MakeStore(const reshard_store_calls& calls) { return std::make_shared<ForeignStore>(calls); }

}  // namespace reshard
