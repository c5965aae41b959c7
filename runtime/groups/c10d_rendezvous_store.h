// The store that a process group was made with, as the one through which ranks meet.
#ifndef RESHARD_RUNTIME_GROUPS_C10D_RENDEZVOUS_STORE_H_
#define RESHARD_RUNTIME_GROUPS_C10D_RENDEZVOUS_STORE_H_

#include <optional>
#include <string>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "reshard/runtime/rendezvous_store.h"

namespace reshard::groups {

// The store of a process group, with a prefix to its keys. Unavailable if the group has none, and once it is destroyed.
class C10dRendezvousStore final : public RendezvousStore {
 public:
  enum class Connection {
    kGroups,  // the one that the group uses
    // One of its own if the store supports that, so that a thread that polls it does not have to wait for the group's
    // own long waits.
    kOwn,
  };
  C10dRendezvousStore(const c10::intrusive_ptr<c10d::ProcessGroup>& group, std::string prefix,
                      Connection connection = Connection::kOwn);

  absl::Status Set(const std::string& key, const std::string& value) override;
  absl::StatusOr<std::string> Get(const std::string& key, absl::Duration timeout) override;
  absl::StatusOr<std::optional<std::string>> TryGet(const std::string& key) override;

 private:
  template <typename F>
  absl::Status Ask(const std::string& key, F&& f) const;

  const c10::weak_intrusive_ptr<c10d::ProcessGroup> group_;
  c10::intrusive_ptr<c10d::Store> store_;
  const std::string prefix_;
};

}  // namespace reshard::groups

#endif  // RESHARD_RUNTIME_GROUPS_C10D_RENDEZVOUS_STORE_H_
