// https servers as a read-only store.
#ifndef RESHARD_CHECKPOINT_STORES_HTTPS_STORE_H_
#define RESHARD_CHECKPOINT_STORES_HTTPS_STORE_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "reshard/checkpoint/store.h"
#include "status/mutex.h"

namespace reshard::stores {

// Errors as https::GetRange.
class HttpsStore final : public Store {
 public:
  absl::StatusOr<StoredObject> Find(const std::string& url) override;
  absl::StatusOr<StoredObject> FindAndRead(const std::string& url, absl::Span<char> first) override;
  absl::Status Read(const std::string& url, const StoredObject& object, int64_t at, absl::Span<char> out) override;
  // Servers cannot list: this probes the names that checkpoints and what belongs to them have, once per process, and
  // returns those that are there.
  absl::StatusOr<std::vector<Entry>> List(const std::string& url) override;

 private:
  status::Mutex mutex_;
  std::map<std::string, std::vector<Entry>> known_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace reshard::stores

#endif  // RESHARD_CHECKPOINT_STORES_HTTPS_STORE_H_
