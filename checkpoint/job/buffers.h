// How a conversion uses its memory.
#ifndef RESHARD_CHECKPOINT_JOB_BUFFERS_H_
#define RESHARD_CHECKPOINT_JOB_BUFFERS_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "checkpoint/job/output_plan.h"
#include "reshard/checkpoint/catalog.h"
#include "reshard/checkpoint/convert.h"

namespace reshard {

struct Buffers {
  int threads = 1;
  int64_t stripe = 0;  // bytes that a thread puts together at a time
  int64_t total = 0;   // with everything else that is in memory
};

// As many threads and as long stripes as the limit allows. kMemoryLimit: not even one thread.
absl::StatusOr<Buffers> PlanBuffers(const Catalog& catalog, const OutputPlan& plan, const ConvertOptions& options);

}  // namespace reshard

#endif  // RESHARD_CHECKPOINT_JOB_BUFFERS_H_
