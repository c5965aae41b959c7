// An open checkpoint: reads any box of any of its tensors into memory with any strides.
//
//   absl::StatusOr<StoredCheckpoint> stored = StoredCheckpoint::Open("step-1000", {});
//   stored->Read({{index, /*offset=*/{0, 512}, view}});
//
// Nothing in the checkpoint is ever run.
#ifndef RESHARD_LIVE_STORED_CHECKPOINT_H_
#define RESHARD_LIVE_STORED_CHECKPOINT_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "reshard/checkpoint/catalog.h"
#include "reshard/checkpoint/recipe.h"
#include "reshard/runtime/tensor_view.h"

namespace reshard {

namespace source {
class Source;
}

// How to open a checkpoint.
struct StoredOptions {
  // Compares a chunk with the checkpoint's checksum before a box with its first element is read. Where several
  // processes share the reading, each chunk is compared by one of them.
  bool check = true;
  bool ignore_sidecar = false;  // does not read reshard.json
  // Which parts of the checkpoint can be read, under which names, and what is made of them.
  Recipe recipe = {};
  CatalogLimits limits = {};  // on the checkpoint's metadata
};

// A box of one tensor, and where it goes. `into` has the shape of the box and the dtype of the tensor; it is host
// memory, and no two of its elements share memory.
struct BoxRead {
  int64_t tensor = 0;  // index in catalog()
  Dims offset;         // of the box in the tensor, in elements, one per dimension
  TensorView into;
};

// Movable. Any number of threads may read.
class StoredCheckpoint {
 public:
  // Errors as ReadCatalog; DataLoss also for chunks that do not cover their tensors, and a sidecar that does not belong
  // to the checkpoint. InvalidArgument: a recipe that does not fit.
  static absl::StatusOr<StoredCheckpoint> Open(const std::string& path, const StoredOptions& options);
  StoredCheckpoint(StoredCheckpoint&& other) noexcept;
  StoredCheckpoint& operator=(StoredCheckpoint&& other) noexcept;
  ~StoredCheckpoint();

  // What can be read: what the recipe makes of the stored checkpoint.
  const Catalog& catalog() const;

  // Reads the boxes, on up to `threads` threads (0: one per core, but at most four). Post-condition: `into` of each has
  // the elements of its box. InvalidArgument: a box that is not within its tensor, another dtype, elements of a type
  // that cannot be loaded, a view that overlaps itself. DataLoss: the checkpoint is damaged. After an error the
  // contents of the views are unspecified.
  absl::Status Read(absl::Span<const BoxRead> boxes, int threads = 0);
  // The bytes of the index-th byte item of catalog().
  absl::StatusOr<std::string> ReadItem(int64_t item);

  // Bytes read so far from files, including what `check` needs, archive headers and short gaps.
  int64_t bytes_read() const;

  // For code that shares it with other ranks (reshard/live/load.h).
  source::Source& source() { return *source_; }

 private:
  explicit StoredCheckpoint(std::unique_ptr<source::Source> source);
  std::unique_ptr<source::Source> source_;
};

}  // namespace reshard

#endif  // RESHARD_LIVE_STORED_CHECKPOINT_H_
