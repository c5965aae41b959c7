// Saves the tensors of a running job as a checkpoint that torch.distributed.checkpoint, this library and `reshard`
// read. Each rank writes what it holds; of replicas one is written, chosen so that all ranks write about as much.
//
// The checkpoint appears at once and complete, or not at all; what it replaces stays until that instant
// (checkpoint/io/staged_directory.h). With it comes a sidecar that says mesh, layout and hashes.
#ifndef RESHARD_STATE_SAVE_H_
#define RESHARD_STATE_SAVE_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "reshard/checkpoint/catalog.h"
#include "reshard/layout/dtype.h"
#include "reshard/runtime/communicator.h"
#include "reshard/runtime/tensor_view.h"

namespace reshard {

// One tensor, the same on all ranks but for `from`. Texts as in docs/layouts.md; device ids are ranks.
struct SaveEntry {
  std::string name;                     // the flat key in the checkpoint
  std::vector<Catalog::PathStep> path;  // where it is in nested containers; empty: {name}
  std::string mesh;
  std::string layout;
  DType dtype = DType::kF32;
  bool requires_grad = false;
  // This rank's fragment, strided or not; no elements on a rank that is not in the mesh.
  ConstTensorView from;
};

// A byte item, the same on all ranks but for `bytes`.
struct SaveItem {
  std::string name;
  std::vector<Catalog::PathStep> path;
  int64_t rank = 0;        // who has the bytes and writes them
  int64_t length = 0;      // of the bytes
  std::string_view bytes;  // on that rank
};

struct SaveOptions {
  bool overwrite = false;  // what is at the path, at one instant, once the new one is complete
  int threads = 0;         // that write, on each rank; 0: up to four, one a core
};

// Of this rank.
struct SaveSummary {
  int64_t tensors = 0;
  int64_t written_bytes = 0;  // of contents
  double seconds = 0.0;
};

// Collective; `path` is seen by all ranks. An error on one rank is returned by all of them: AlreadyExists, something at
// the path, and no `overwrite`; InvalidArgument, a layout that does not parse, with pending reductions, or that the
// view does not fit, a name that comes twice; FailedPrecondition, ranks that pass different entries; ResourceExhausted,
// the disk is full; Unavailable, the system refused; otherwise as Communicator. After an error there is at the path
// what was there before, or, where ranks were lost at the very end, the complete new checkpoint.
absl::StatusOr<SaveSummary> Save(const std::string& path, absl::Span<const SaveEntry> entries,
                                 absl::Span<const SaveItem> items, Communicator& communicator,
                                 const SaveOptions& options = {});

}  // namespace reshard

#endif  // RESHARD_STATE_SAVE_H_
