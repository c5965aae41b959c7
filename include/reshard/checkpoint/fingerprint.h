// The fingerprint of a checkpoint's contents: equal to that of the same tensors in a job's memory
// (runtime/fingerprint.h), whatever the format, the layout and the chunks. So a job can tell whether it has what a
// checkpoint has, and two checkpoints can be compared where only one of them can be reached.
#ifndef RESHARD_CHECKPOINT_FINGERPRINT_H_
#define RESHARD_CHECKPOINT_FINGERPRINT_H_

#include <cstdint>
#include <functional>
#include <stop_token>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "reshard/checkpoint/catalog.h"
#include "reshard/checkpoint/progress.h"
#include "reshard/checkpoint/recipe.h"
#include "reshard/layout/dtype.h"
#include "reshard/runtime/fingerprint.h"

namespace reshard {

// What of a checkpoint counts, and who reads it.
struct FingerprintOptions {
  int threads = 0;              // 0: one per core
  bool ignore_sidecar = false;  // does not read its reshard.json
  Recipe recipe;                // which tensors count, under which names, and what is made of them first
  // Several processes share the reading: this is the part-th of `parts`, each of which reads about the same number of
  // bytes. Requires 0 <= part < parts. The parts' fingerprints of a tensor add up to its fingerprint.
  int64_t part = 0;
  int64_t parts = 1;
  CatalogLimits limits;  // on the metadata
  // Called about five times per second from one of the worker threads, with the bytes of this part; may be empty.
  std::function<void(const ConvertProgress&)> progress;
  std::stop_token stop;  // ends the reading soon after a stop is requested: Cancelled
};

// Which contents there are.
struct CheckpointFingerprint {
  struct Tensor {
    std::string name;
    DType dtype = DType::kU8;
    std::vector<int64_t> shape;      // in elements
    ContentFingerprint fingerprint;  // of this part of it
    bool operator==(const Tensor&) const = default;
  };
  std::vector<Tensor> tensors;     // all of them, sorted by name
  ContentFingerprint fingerprint;  // of all together: the sum of theirs
  int64_t bytes = 0;               // of the elements of this part
  bool operator==(const CheckpointFingerprint&) const = default;
};

// Post-condition: for each tensor, the parts add up to the sum of FingerprintOf over the devices of any layout; what is
// not a tensor does not count. Reads every element once, in the order of the checkpoint's list, with a buffer of one
// megabyte per thread. Errors as ReadCatalog; DataLoss if a checksum shows that the checkpoint is damaged;
// InvalidArgument for a recipe that does not fit and for a `part` out of range; Unimplemented for elements of a type
// that this library does not have, which the recipe can leave out.
absl::StatusOr<CheckpointFingerprint> FingerprintCheckpoint(const std::string& path,
                                                            const FingerprintOptions& options = {});

}  // namespace reshard

#endif  // RESHARD_CHECKPOINT_FINGERPRINT_H_
