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

// A box of a tensor and where it goes: into a view of the tensor's dtype that has room for it from `local` on. Catalogs
// have 0-d tensors; here such a tensor has one dimension of one element.
struct PartRead {
  int64_t tensor = 0;           // in the catalog
  std::vector<int64_t> offset;  // of the box in the tensor, elements
  std::vector<int64_t> size;
  std::vector<int64_t> local;  // where it begins in `into`
  const TensorView* into = nullptr;
  bool in_pass = false;  // a part of a chunk whose checksum is to be compared
};

// Cuts the box along the chunks of its tensor and adds the parts. What lies in one chunk is one part if the chunk is to
// be compared, or is whole and has at most 64 MiB; otherwise it is cut into parts of at most `most` bytes.
void AddParts(source::Source& source, const PartRead& box, int64_t element_bytes, int64_t most,
              std::vector<PartRead>* parts);

// Reads all parts, in their order, one at a time on each thread, and counts their bytes. Errors as Source::Read;
// Cancelled once progress->stop() asks for it.
absl::Status ReadParts(source::Source& source, absl::Span<const PartRead> parts, int threads,
                       Progress* progress = nullptr);

}  // namespace reshard::live

#endif  // RESHARD_CHECKPOINT_LIVE_READ_PARTS_H_
