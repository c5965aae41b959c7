// What journals say about the pieces of one worker.
#ifndef RESHARD_CHECKPOINT_JOB_SHARE_RECORDS_H_
#define RESHARD_CHECKPOINT_JOB_SHARE_RECORDS_H_

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "checkpoint/job/conversion.h"
#include "checkpoint/job/journal.h"

namespace reshard {

// The last record of each piece of the share that has one, ascending.
std::vector<FinishedPiece> LastRecords(const Share& share, const std::vector<FinishedPiece>& records);

// What all journals in the stage but `own` say, those of workers that are no longer among the job's too.
absl::StatusOr<std::vector<FinishedPiece>> RecordsOfOthers(const std::string& stage, const std::string& own,
                                                           std::string_view id);

}  // namespace reshard

#endif  // RESHARD_CHECKPOINT_JOB_SHARE_RECORDS_H_
