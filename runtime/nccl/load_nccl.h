// LoadNcclApi for one library.
#ifndef RESHARD_RUNTIME_NCCL_LOAD_NCCL_H_
#define RESHARD_RUNTIME_NCCL_LOAD_NCCL_H_

#include <string>

#include "absl/status/statusor.h"
#include "reshard/nccl/nccl_api.h"

namespace reshard::nccl {

// Where LoadNcclApi looks, in this order. Each may be empty: then it is left out.
struct NcclPlaces {
  std::string in_process = "libnccl.so.2";  // by this name, when something else has loaded it
  std::string path;                         // RESHARD_NCCL_LIBRARY; when it is given and cannot be loaded, that is all
  std::string by_name = "libnccl.so.2";     // where the loader finds it
};

// The errors are those of LoadNcclApi. What was opened is never closed.
absl::StatusOr<NcclApi> OpenNccl(const NcclPlaces& places);

}  // namespace reshard::nccl

#endif  // RESHARD_RUNTIME_NCCL_LOAD_NCCL_H_
