// Saves the tensors of a running job as a checkpoint that torch.distributed.checkpoint, this library and the command
// `reshard` read. Each rank writes what it holds; one of several replicas is written, chosen so that all ranks write
// about the same amount.
//
// The checkpoint appears atomically and complete, or not at all; what it replaces stays until then
// (docs/design/checkpoints.md says how). A sidecar with meshes, layouts and hashes is written beside it.
#ifndef RESHARD_LIVE_SAVE_H_
#define RESHARD_LIVE_SAVE_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "reshard/checkpoint/catalog.h"
#include "reshard/checkpoint/progress.h"
#include "reshard/layout/dtype.h"
#include "reshard/layout/layout.h"
#include "reshard/runtime/communicator.h"
#include "reshard/runtime/tensor_view.h"

namespace reshard {

// One tensor; the same on all ranks except for `from`.
struct SaveEntry {
  std::string name;                     // the flat key in the checkpoint
  std::vector<Catalog::PathStep> path;  // where it is in nested containers; empty: {name}
  Layout layout;                        // of the tensor in the job; the mesh's device ids are ranks
  DType dtype = DType::kF32;            // of the elements
  bool requires_grad = false;           // recorded in the checkpoint
  // This rank's fragment, strided or not; no elements on a rank that is not in the mesh.
  ConstTensorView from;
};

// A byte item; the same on all ranks except for `bytes`.
struct SaveItem {
  std::string name;                     // the flat key in the checkpoint
  std::vector<Catalog::PathStep> path;  // where it is in nested containers; empty: {name}
  int64_t rank = 0;                     // the rank that has the bytes and writes them
  int64_t length = 0;                   // number of bytes
  std::string_view bytes;               // on that rank; ignored elsewhere
};

// How to save; the same on all ranks, except for `progress`.
struct SaveOptions {
  bool overwrite = false;  // whether something at the path may be replaced, atomically, once the new one is complete
  // Threads that write, on each rank; 0: one per core, but at most four. A store takes one, with concurrent requests.
  int threads = 0;
  // Called by the thread that calls Save, if it is not empty: with 0 of SaveSummary::written_bytes before anything is
  // written, then up to five times a second, finally with all of them, before the checkpoint appears. An error from it
  // ends the save on all ranks, on this one with that error, and nothing appears.
  TellProgress progress = {};
};

// What this rank did.
struct SaveSummary {
  int64_t tensors = 0;        // number of entries
  int64_t written_bytes = 0;  // of contents
  double seconds = 0.0;       // wall-clock time
};

// Saves to the directory `path`, on a filesystem that all ranks see, or to a URL of a store that every rank has
// registered (reshard/checkpoint/store.h). Collective. An error on any rank is returned on all ranks, as Communicator
// describes. AlreadyExists: there is something at the path, and no `overwrite`. InvalidArgument: a layout that is
// partial or does not fit the view; a name that appears twice. FailedPrecondition: ranks pass different entries.
// ResourceExhausted: the disk is full. Unavailable: the system could not write. Otherwise as Communicator. After an
// error the path has what it had before or, if ranks were lost at the very end, the complete new checkpoint. In a store
// it may also have objects that no reader takes for part of a checkpoint; the next save to the same URL, or
// RemoveStaleStaging, removes them.
absl::StatusOr<SaveSummary> Save(const std::string& path, absl::Span<const SaveEntry> entries,
                                 absl::Span<const SaveItem> items, Communicator& communicator,
                                 const SaveOptions& options = {});

}  // namespace reshard

#endif  // RESHARD_LIVE_SAVE_H_
