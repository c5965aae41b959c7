#include "checkpoint/stores/registry.h"

#include <algorithm>
#include <map>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "checkpoint/stores/https_store.h"
#include "checkpoint/stores/url.h"
#include "status/macros.h"
#include "status/mutex.h"
#include "status/view.h"

namespace reshard {
namespace {

struct Registered {
  status::Mutex mutex;
  std::map<std::string, std::shared_ptr<Store>> stores ABSL_GUARDED_BY(mutex);
};
Registered& AllRegistered() {
  static Registered* const registered = new Registered();
  return *registered;
}

absl::Status NotForWriting(const std::string& url) {
  return absl::UnimplementedError(absl::StrCat(url, ": its store is read, not written"));
}

}  // namespace

absl::StatusOr<StoredObject> Store::FindAndRead(const std::string& url, absl::Span<char> first) {
  ASSIGN_OR_RETURN(StoredObject object, Find(url));
  const auto wanted = static_cast<size_t>(std::min<int64_t>(object.bytes, static_cast<int64_t>(first.size())));
  if (wanted > 0) RETURN_IF_ERROR(Read(url, object, 0, first.subspan(0, wanted)));
  return object;
}

absl::StatusOr<StoredObject> Store::Put(const std::string& url, std::string_view, bool) { return NotForWriting(url); }

absl::StatusOr<std::unique_ptr<ObjectUpload>> Store::Begin(const std::string& url, int64_t, int64_t) {
  return NotForWriting(url);
}

absl::Status Store::Delete(const std::string& url) { return NotForWriting(url); }

void RegisterStore(std::string_view scheme, std::shared_ptr<Store> store) {
  Registered& all = AllRegistered();
  const status::MutexLock lock(all.mutex);
  std::string key = absl::AsciiStrToLower(status::View(scheme));
  if (store == nullptr) {
    all.stores.erase(key);
  } else {
    all.stores[std::move(key)] = std::move(store);
  }
}

absl::StatusOr<std::shared_ptr<Store>> stores::StoreOf(std::string_view url) {
  const std::string scheme = SchemeOf(url);
  if (scheme == "https") {
    static const std::shared_ptr<Store>* const https = new std::shared_ptr<Store>(std::make_shared<HttpsStore>());
    return *https;
  }
  Registered& all = AllRegistered();
  const status::MutexLock lock(all.mutex);
  for (const std::string& key : {scheme, std::string()}) {
    if (const auto found = all.stores.find(key); found != all.stores.end()) return found->second;
  }
  return absl::UnimplementedError(absl::StrCat(
      "this program has no store for URLs of ", scheme,
      "://; the command and the functions of the Python package have one after: pip install 'reshard[stores]'"));
}

absl::StatusOr<stores::Destination> stores::DestinationAt(std::string_view url) {
  Destination destination;
  ASSIGN_OR_RETURN(destination.url, Admit(url));
  if (SchemeOf(destination.url) == "https") {
    return absl::InvalidArgumentError("results are written to directories and stores, not to https servers");
  }
  ASSIGN_OR_RETURN(destination.store, StoreOf(destination.url));
  return destination;
}

}  // namespace reshard
