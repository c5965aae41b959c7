// Reads boxes of tensors into places of views, on several threads.
#ifndef RESHARD_CHECKPOINT_LIVE_READ_PARTS_H_
#define RESHARD_CHECKPOINT_LIVE_READ_PARTS_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "checkpoint/live/progress.h"
#include "checkpoint/source/source.h"
#include "reshard/runtime/tensor_view.h"

namespace reshard::live {

// A box of a tensor and where it begins in a view of its dtype that has room for it from there on. Catalogs know 0-d
// tensors as such; here such a tensor has one dimension of one element.
struct PartRead {
  int64_t tensor = 0;           // in the catalog
  std::vector<int64_t> offset;  // of the box in the tensor, elements
  std::vector<int64_t> size;
  std::vector<int64_t> local;  // where it begins in `into`
  const TensorView* into = nullptr;
  bool in_pass = false;  // some of a chunk that is to be compared
};

// Adds the box of a tensor, cut into what is in one chunk where that is to be compared, or is whole and of at most
// 64 MiB, and into parts of at most `most` bytes elsewhere.
void AddParts(source::Source& source, const PartRead& box, int64_t element_bytes, int64_t most,
              std::vector<PartRead>* parts);

// Reads all of them, smallest first, a part at a time on each thread, and counts their bytes. Errors as Source::Read;
// Cancelled once progress->stop() asks for it.
absl::Status ReadParts(source::Source& source, absl::Span<const PartRead> parts, int threads,
                       Progress* progress = nullptr);

}  // namespace reshard::live

#endif  // RESHARD_CHECKPOINT_LIVE_READ_PARTS_H_
