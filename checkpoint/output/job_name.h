// What distinguishes one conversion from another.
#ifndef RESHARD_CHECKPOINT_OUTPUT_JOB_NAME_H_
#define RESHARD_CHECKPOINT_OUTPUT_JOB_NAME_H_

#include <string>

#include "absl/status/statusor.h"
#include "checkpoint/output/output_plan.h"
#include "reshard/checkpoint/catalog.h"

namespace reshard::output {

// Covers everything that decides what is written where, so that what another job has staged is not taken for this
// one's. 32 hexadecimal digits.
std::string JobName(const Catalog& source, const OutputPlan& plan);

// The same for contents: another text when a file of the source has been written since the catalog was read, as what
// was taken out of the source before is then worth nothing. Covers sizes and times of the files, which every machine
// that shares a filesystem sees alike; their inodes are not the same everywhere.
std::string SourceState(const Catalog& source);

// A file of the source that has been written, or removed, since the catalog was read; empty where there is none.
absl::StatusOr<std::string> ChangedFile(const Catalog& source);

}  // namespace reshard::output

#endif  // RESHARD_CHECKPOINT_OUTPUT_JOB_NAME_H_
