// Loads a checkpoint into the tensors of a running job: sharded over its ranks in any way, whatever the layout, the
// mesh and the format that it was saved in.
//
//   LoadEntry entry{"model.wq", "{dp:2,tp:4}", "[<tp,dp>4096, 4096]", view_of_this_rank};
//   absl::StatusOr<LoadSummary> loaded = Load("step-1000", {&entry, 1}, {}, communicator);
//
// Nothing in the checkpoint is ever run, and what is read is compared with the checksums that the checkpoint has.
#ifndef RESHARD_STATE_LOAD_H_
#define RESHARD_STATE_LOAD_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "reshard/checkpoint/catalog.h"
#include "reshard/runtime/communicator.h"
#include "reshard/runtime/tensor_view.h"

namespace reshard {

// One tensor, the same on all ranks but for `into`. Texts as in docs/layouts.md; device ids are ranks.
struct LoadEntry {
  std::string name;  // the flat key in the checkpoint
  std::string mesh;
  std::string layout;
  // This rank's fragment, strided or not; no elements on a rank that is not in the mesh.
  TensorView into;
};

// A byte item, the same on all ranks: each rank reads it for itself.
struct LoadItem {
  std::string name;
  std::string* into = nullptr;
};

enum class ReadMode {
  // Every element is read by exactly one rank, in runs that suit how the checkpoint is cut, and then redistributed.
  kOnce,
  // Every rank reads what it needs: no messages, but replicas are read as often as there are.
  kOwn,
};

struct LoadOptions {
  ReadMode read = ReadMode::kOnce;
  // Tensors are read and redistributed in groups of at most so many bytes a rank, unless one tensor alone has more. Two
  // groups are in memory at a time: while one is redistributed the next is read.
  int64_t group_bytes = int64_t{256} << 20;
  int threads = 0;  // that read, on each rank; 0: up to four, one a core
  // Compares chunks with the checkpoint's checksums, each on one rank: the one that reads its first element.
  bool check = true;
  bool ignore_sidecar = false;
  CatalogLimits limits;
};

// Of this rank.
struct LoadSummary {
  int64_t tensors = 0;
  int64_t bytes = 0;           // of its fragments
  int64_t read_bytes = 0;      // from the files of tensors and items, see `check`; frames and short gaps included
  int64_t received_bytes = 0;  // from other ranks
  double seconds = 0.0;
};

// Collective. Post-conditions: `into` of every entry holds this rank's fragment of the tensor; in mode kOnce each
// element of each tensor was read by exactly one rank of its mesh.
// An error on one rank is returned by all of them (Communicator says how): NotFound, a name that the checkpoint does
// not have; InvalidArgument, another dtype or shape than the checkpoint's (nothing is converted), a layout that does
// not parse, with pending reductions, or that the view does not fit; FailedPrecondition, ranks that see different
// checkpoints or pass different entries; DataLoss, damage; otherwise as ReadCatalog and Communicator. Until all entries
// have been checked on all ranks nothing is written to; after an error during the reading tensors hold anything.
absl::StatusOr<LoadSummary> Load(const std::string& path, absl::Span<const LoadEntry> entries,
                                 absl::Span<const LoadItem> items, Communicator& communicator,
                                 const LoadOptions& options = {});

}  // namespace reshard

#endif  // RESHARD_STATE_LOAD_H_
