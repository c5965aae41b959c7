// Writes objects of a result to a store, by threads that read ahead of what is sent.
#ifndef RESHARD_CHECKPOINT_CONVERT_STORE_WRITER_H_
#define RESHARD_CHECKPOINT_CONVERT_STORE_WRITER_H_

#include <cstdint>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "checkpoint/convert/conversion.h"
#include "checkpoint/into_store/store_job.h"
#include "checkpoint/tasks/run_tasks.h"
#include "reshard/checkpoint/store.h"

namespace reshard::convert {

// Writes these objects, one after the other, with a record of each, which also goes into `records`, by object. If there
// are several workers, leaves out objects that another one has claimed, and marks its own claims in `own_claims`, by
// object. `pieces` are [first, end) of every object of the plan.
//
// Threads read batches of an object in the order in which they lie in it, at most two batches ahead per thread: these
// wait in memory for what is before them (ObjectSink). The next object begins while the one before is being finished.
absl::Status WriteObjects(const Conversion& conversion, Store& store, const into_store::StoreJob& job,
                          absl::Span<const std::pair<int64_t, int64_t>> pieces, absl::Span<const int64_t> objects,
                          std::vector<char>* own_claims, std::vector<into_store::ObjectRecord>* records,
                          tasks::ProgressMeter* meter);

}  // namespace reshard::convert

#endif  // RESHARD_CHECKPOINT_CONVERT_STORE_WRITER_H_
