// Compares the contents of two checkpoints, whatever their layouts and formats.
#ifndef RESHARD_CHECKPOINT_VERIFY_H_
#define RESHARD_CHECKPOINT_VERIFY_H_

#include <cstdint>
#include <functional>
#include <stop_token>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "reshard/checkpoint/catalog.h"
#include "reshard/checkpoint/progress.h"
#include "reshard/checkpoint/recipe.h"
#include "reshard/checkpoint/side_files.h"
#include "reshard/checkpoint/wrappers.h"

namespace reshard {

// How to compare.
struct VerifyOptions {
  int threads = 0;                // 0: one per core
  bool ignore_sidecar = false;    // does not read either's reshard.json
  Recipe recipe;                  // what of A is compared, and what B has made of it; its layouts are ignored
  AuxiliaryFileTerms side_files;  // which files beside A belong to it, and are compared
  CatalogLimits limits;           // on the metadata of each
  // Called about five times per second from one of the worker threads; may be empty.
  std::function<void(const ConvertProgress&)> progress;
  std::stop_token stop;  // ends the comparison soon after a stop is requested: Cancelled
};

// The result of a comparison.
struct VerifyReport {
  // One tensor, byte item, attribute or auxiliary file that is not the same in both.
  struct Difference {
    std::string name;  // the flat key
    // "only in A", "dtype f32 in A, bf16 in B", "elements [3, 0] to [3, 7] differ (8 of 64)", ..
    std::string what;
  };

  // What was done to A because the reshard.json of B says that B was made that way: only weights were compared (unless
  // the selection says that anyway), and these were taken off names.
  bool as_made_weights_only = false;
  std::vector<Wrapper> taken_off;

  int64_t tensors = 0;     // number of tensors compared
  int64_t byte_items = 0;  // number of byte items compared
  int64_t side_files = 0;  // number of auxiliary files compared
  int64_t bytes = 0;       // of tensors and byte items, compared
  // In the order of A, then what only B has. One per tensor, with the first ranges of row-major indices that differ.
  std::vector<Difference> differences;
};

// Compares names, dtypes, shapes, every byte of the contents, attributes except those of files, and the auxiliary files
// of A with their counterparts beside B, unless either is a single file. If the reshard.json of B says how B was made
// from another checkpoint (ConvertOptions::record_made), the same is done with A first: only weights count, and
// wrappers come off the names of A if they are the same that came off those. Differences are not errors. Errors as
// ReadCatalog, and DataLoss if a checksum shows that either is damaged.
absl::StatusOr<VerifyReport> VerifyCheckpoints(const std::string& a, const std::string& b,
                                               const VerifyOptions& options = {});

}  // namespace reshard

#endif  // RESHARD_CHECKPOINT_VERIFY_H_
