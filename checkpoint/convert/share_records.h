// What the journals say about the pieces of one worker.
#ifndef RESHARD_CHECKPOINT_CONVERT_SHARE_RECORDS_H_
#define RESHARD_CHECKPOINT_CONVERT_SHARE_RECORDS_H_

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "checkpoint/convert/conversion.h"
#include "checkpoint/output/journal.h"

namespace reshard::convert {

// The last record of each piece of the share that has one, ascending.
std::vector<output::FinishedPiece> LastRecords(const Share& share, const std::vector<output::FinishedPiece>& records);

// What all journals in the stage except `own` say, including those of workers that the job no longer has.
absl::StatusOr<std::vector<output::FinishedPiece>> RecordsOfOthers(const std::string& stage, const std::string& own,
                                                                   std::string_view id);

}  // namespace reshard::convert

#endif  // RESHARD_CHECKPOINT_CONVERT_SHARE_RECORDS_H_
