// Whether two checkpoints have the same contents, whatever their layouts and formats.
#ifndef RESHARD_CHECKPOINT_VERIFY_H_
#define RESHARD_CHECKPOINT_VERIFY_H_

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "reshard/checkpoint/catalog.h"
#include "reshard/checkpoint/convert.h"

namespace reshard {

struct VerifyOptions {
  int threads = 0;  // 0: one a core
  bool ignore_sidecar = false;
  CatalogLimits limits;
  std::function<void(const ConvertProgress&)> progress;
};

struct VerifyReport {
  struct Difference {
    std::string name;
    // "only in A", "dtype f32 in A, bf16 in B", "elements [3, 0] to [3, 7] differ (8 of 64)", ..
    std::string what;
  };

  int64_t tensors = 0;     // compared
  int64_t byte_items = 0;  // compared
  int64_t bytes = 0;       // of contents, compared
  // In the order of A, then what only B has. One a tensor, with the first ranges of row-major indices that differ.
  std::vector<Difference> differences;
};

// Compares names, dtypes, shapes and every byte of the contents. Errors as ReadCatalog; DataLoss where a checksum shows
// damage in either.
absl::StatusOr<VerifyReport> VerifyCheckpoints(const std::string& a, const std::string& b,
                                               const VerifyOptions& options = {});

}  // namespace reshard

#endif  // RESHARD_CHECKPOINT_VERIFY_H_
