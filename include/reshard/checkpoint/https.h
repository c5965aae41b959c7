// Whether checkpoints can be read from https servers here.
#ifndef RESHARD_CHECKPOINT_HTTPS_H_
#define RESHARD_CHECKPOINT_HTTPS_H_

#include <string>

#include "absl/status/statusor.h"

namespace reshard {

// The library that fetches them: "libcurl 7.88.1". Loads it, but contacts no server. Unavailable, with what to do:
// there is none.
absl::StatusOr<std::string> HttpsLibrary();

}  // namespace reshard

#endif  // RESHARD_CHECKPOINT_HTTPS_H_
