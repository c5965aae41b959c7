// How a conversion divides its memory.
#ifndef RESHARD_CHECKPOINT_CONVERT_BUFFERS_H_
#define RESHARD_CHECKPOINT_CONVERT_BUFFERS_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "checkpoint/output/output_plan.h"
#include "checkpoint/source/source.h"
#include "reshard/checkpoint/catalog.h"
#include "reshard/checkpoint/convert.h"

namespace reshard::convert {

struct Buffers {
  int threads = 1;
  int64_t stripe = 0;  // bytes that a thread puts together at a time
  int64_t upload = 0;  // bytes that objects being uploaded may hold in memory; 0 if there are none
  int64_t total = 0;   // with everything else that is in memory
};

// kMemoryLimit: the list of pieces alone needs more than the limit, whatever the layout. A few bytes of metadata can
// announce petabytes; that is found out without making the list.
absl::Status CheckAnnounced(const Catalog& catalog, const ConvertOptions& options);

// As many threads and as long stripes as the limit allows. kMemoryLimit: not even one thread.
// `batch_bytes`: ObjectTerms::batch_bytes, or 0 where the destination is a directory.
absl::StatusOr<Buffers> PlanBuffers(const source::Source& source, const output::OutputPlan& plan, int64_t batch_bytes,
                                    const ConvertOptions& options);

}  // namespace reshard::convert

#endif  // RESHARD_CHECKPOINT_CONVERT_BUFFERS_H_
