// What a job that writes a checkpoint into a store keeps beside it while it lasts, in DESTINATION/.reshard-JOB/:
//
//   job        the names of the objects that the job writes, one per line
//   done-I     object I of them is complete: its bytes, its version, and the hashes of what is in it
//   claim-I    a worker has begun it
//   beat-K     new contents every few seconds while worker K is alive
//   old        what the result replaces, one name per line
//   attempt    of a save, which is never continued: a text that no other attempt has; all its records contain it
//
// An object of a conversion has the same bytes whichever worker writes it, and appears whole or not at all. So nothing
// depends on claims: two workers that write the same object do the work twice, but no harm. The same goes for finishing
// the job, which any worker may do, or several.
#ifndef RESHARD_CHECKPOINT_INTO_STORE_STORE_JOB_H_
#define RESHARD_CHECKPOINT_INTO_STORE_STORE_JOB_H_

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "checkpoint/hash/hash.h"
#include "reshard/checkpoint/store.h"

namespace reshard::into_store {

// What done-I says.
struct ObjectRecord {
  StoredObject object;
  std::vector<hash::ContentHash> hashes;  // of the pieces of the object, in their order

  // Lines of text; the last one is a hash of those before it.
  std::string ToText(std::string_view id) const;
  // False: it is damaged, or of another job.
  static bool FromText(std::string_view text, std::string_view id, ObjectRecord* out);
};

class StoreJob {
 public:
  // `destination` is an admitted URL. `name` and `id` are those of Conversion.
  StoreJob(std::shared_ptr<Store> store, const std::string& destination, const std::string& name, std::string id,
           int64_t worker);

  // DESTINATION/.reshard-NAME.
  const std::string& folder() const { return folder_; }
  // The job that a folder of that name belongs to; empty if it is not such a folder.
  static std::string JobOf(std::string_view folder_name);

  // Whether an object of that name has contents, rather than lying beside them.
  static bool HasContents(std::string_view name);

  // What is in the folder: versions of heartbeats by worker, and numbers of objects.
  struct Seen {
    std::set<int64_t> done, claimed;
    std::map<int64_t, std::string> beats;
    bool exists = false;
  };
  absl::StatusOr<Seen> Look() const;

  // Whether a job is writing to such a folder: a heartbeat in it changes within some seconds.
  static absl::StatusOr<bool> IsAlive(Store& store, const std::string& folder);
  static constexpr int64_t kBeatSeconds = 5;

  absl::Status Begin(absl::Span<const std::string> names) const;
  // The names that `job` has. NotFound.
  static absl::StatusOr<std::vector<std::string>> NamesOf(Store& store, const std::string& folder);
  absl::Status Beat(int64_t count) const;
  // False: another worker has claimed it. If the store cannot create an object only where there is none, two workers
  // that claim at the same time may both get true.
  absl::StatusOr<bool> Claim(int64_t object) const;
  // The worker that has claimed it; -1 if that cannot be read.
  int64_t ClaimedBy(int64_t object) const;
  absl::Status MarkDone(int64_t object, const ObjectRecord& record) const;
  // NotFound: there is none, or it cannot be used.
  absl::StatusOr<ObjectRecord> Record(int64_t object) const;
  absl::Status Forget(int64_t object) const;
  // Records the names of what is replaced, before the first of them is removed.
  absl::Status KeepOld(absl::Span<const std::string> names) const;
  absl::StatusOr<std::vector<std::string>> Old() const { return OldOf(*store_, folder_); }
  // Empty if nothing was recorded.
  static absl::StatusOr<std::vector<std::string>> OldOf(Store& store, const std::string& folder);
  absl::Status SetAttempt(const std::string& attempt) const;
  // NotFound.
  static absl::StatusOr<std::string> AttemptOf(Store& store, const std::string& folder);
  // The folder is gone.
  absl::Status Remove() const { return Remove(*store_, folder_); }
  static absl::Status Remove(Store& store, const std::string& folder);

 private:
  std::string At(std::string_view what, int64_t number) const;

  const std::shared_ptr<Store> store_;
  const std::string folder_;
  const std::string id_;
  const int64_t worker_;
};

}  // namespace reshard::into_store

#endif  // RESHARD_CHECKPOINT_INTO_STORE_STORE_JOB_H_
