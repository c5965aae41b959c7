// Which store a URL belongs to.
#ifndef RESHARD_CHECKPOINT_STORES_REGISTRY_H_
#define RESHARD_CHECKPOINT_STORES_REGISTRY_H_

#include <memory>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "reshard/checkpoint/store.h"

namespace reshard::stores {

// The store of an admitted URL (url.h). Unimplemented: no store is registered for its scheme; says what to do.
absl::StatusOr<std::shared_ptr<Store>> StoreOf(std::string_view url);

// Where a result is written.
struct Destination {
  std::string url;  // admitted
  std::shared_ptr<Store> store;
};
// For a URL that a user has written. InvalidArgument: it is not a URL, or is of an https server. Otherwise as StoreOf.
absl::StatusOr<Destination> DestinationAt(std::string_view url);

}  // namespace reshard::stores

#endif  // RESHARD_CHECKPOINT_STORES_REGISTRY_H_
