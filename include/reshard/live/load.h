// Loads a checkpoint into the tensors of a running job, sharded over its ranks in any layout, whatever layout, mesh and
// format it was saved in.
//
//   LoadEntry entry{"model.wq", *ParseLayout("[<tp,dp>4096, 4096]", "{dp:2,tp:4}"), view_of_this_rank};
//   absl::StatusOr<LoadSummary> loaded = Load("step-1000", {&entry, 1}, {}, communicator);
//
// Nothing in the checkpoint is ever run, and what is read is compared with the checkpoint's checksums.
#ifndef RESHARD_LIVE_LOAD_H_
#define RESHARD_LIVE_LOAD_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "reshard/checkpoint/catalog.h"
#include "reshard/checkpoint/progress.h"
#include "reshard/checkpoint/recipe.h"
#include "reshard/layout/layout.h"
#include "reshard/live/stored_checkpoint.h"
#include "reshard/planner/topology.h"
#include "reshard/runtime/communicator.h"
#include "reshard/runtime/tensor_view.h"

namespace reshard {

// One tensor; the same on all ranks except for `into`.
struct LoadEntry {
  std::string name;  // the flat key in the checkpoint
  Layout layout;     // of the tensor in the job; the mesh's device ids are ranks
  // This rank's fragment, strided or not; no elements on a rank that is not in the mesh. It may share memory with those
  // of other entries, as tied weights and transposes do: the checkpoint must then have the same bits for both.
  TensorView into;
};

// A byte item. The names are the same on all ranks; each rank reads it for itself.
struct LoadItem {
  std::string name;             // the flat key in the checkpoint
  std::string* into = nullptr;  // where its bytes go
};

// Who reads what.
enum class ReadMode {
  // Every element is read by exactly one rank, in runs that suit how the checkpoint is stored, and then redistributed.
  kOnce,
  // Every rank reads what it needs: no messages, but each replica is read separately.
  kOwn,
};

// How to load; the same on all ranks, except for `progress`.
struct LoadOptions {
  ReadMode read = ReadMode::kOnce;  // who reads what
  // Tensors are read and redistributed in groups of at most this many bytes per rank, unless a single tensor has more.
  // Two groups are in memory at a time: while one is redistributed, the next one is read.
  int64_t group_bytes = int64_t{256} << 20;
  int threads = 0;  // that read, on each rank; 0: one per core, but at most four
  // Compares each chunk with the checkpoint's checksum, on the rank that reads its first element.
  bool check = true;
  bool ignore_sidecar = false;  // does not read reshard.json
  // Which parts of the checkpoint can be loaded, under which names, and what is made of them: the names in the entries
  // are those that it gives. Its layouts are ignored.
  Recipe recipe;
  CatalogLimits limits;  // on the checkpoint's metadata
  // The network that redistribution is planned for: which bytes cross nodes, how often.
  Topology topology = Topology::Flat();
  // Called by the thread that calls Load, if it is not empty: with 0 of LoadSummary::bytes before anything is read,
  // then up to five times a second in proportion to how much of its share this rank has read, finally with all of them.
  // An error from it ends the load on all ranks, on this one with that error.
  TellProgress progress = {};
};

// What this rank did.
struct LoadSummary {
  int64_t tensors = 0;         // number of entries
  int64_t bytes = 0;           // of its fragments
  int64_t read_bytes = 0;      // read from files, including what `check` needs, archive headers and short gaps
  int64_t received_bytes = 0;  // from other ranks
  double seconds = 0.0;        // wall-clock time
};

// Loads. Collective. Post-conditions: `into` of every entry holds this rank's fragment of the tensor; in mode kOnce
// each element of each tensor was read by exactly one rank of its mesh.
// An error on any rank is returned on all ranks, as Communicator describes. NotFound: there is no checkpoint.
// InvalidArgument: names that the checkpoint does not have (how many, and the nearest ones that it has), a dtype or
// shape that is not the checkpoint's (nothing is converted), a layout that is partial or does not fit the view, or
// entries that share memory and have different values in the checkpoint, which is detected only after reading them.
// FailedPrecondition: ranks see different checkpoints or pass different entries. DataLoss: the checkpoint is damaged.
// Otherwise as ReadCatalog and Communicator. Nothing is written before all entries have been checked on all ranks;
// after an error during reading the contents of the tensors are unspecified.
absl::StatusOr<LoadSummary> Load(const std::string& path, absl::Span<const LoadEntry> entries,
                                 absl::Span<const LoadItem> items, Communicator& communicator,
                                 const LoadOptions& options = {});
// The same for a checkpoint that each rank has opened, with the options it was opened with: options.check,
// ignore_sidecar, recipe and limits are ignored.
absl::StatusOr<LoadSummary> Load(StoredCheckpoint& stored, absl::Span<const LoadEntry> entries,
                                 absl::Span<const LoadItem> items, Communicator& communicator,
                                 const LoadOptions& options = {});

}  // namespace reshard

#endif  // RESHARD_LIVE_LOAD_H_
