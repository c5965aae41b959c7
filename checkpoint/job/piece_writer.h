// Writes the pieces of a conversion, and looks whether what an interrupted run wrote is what it should be.
#ifndef RESHARD_CHECKPOINT_JOB_PIECE_WRITER_H_
#define RESHARD_CHECKPOINT_JOB_PIECE_WRITER_H_

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "checkpoint/job/conversion.h"
#include "checkpoint/job/journal.h"
#include "checkpoint/job/output_files.h"
#include "checkpoint/job/workers.h"

namespace reshard {

// From any number of threads, each with a `buffer` of its own.
class PieceWriter {
 public:
  PieceWriter(const Conversion& conversion, OutputFiles* files, ProgressMeter* meter)
      : conversion_(conversion), files_(*files), meter_(*meter) {}

  // Reads the piece from the source and writes it, with its frame. What to put into the journal.
  absl::StatusOr<FinishedPiece> Write(int64_t piece, std::string& buffer) const;
  // Whether the contents that the record tells of are there. When they are, the frame is written again: it is small,
  // and whether it was written is not known.
  absl::StatusOr<bool> IsThere(const FinishedPiece& record, std::string& buffer) const;

 private:
  absl::Status WriteFrame(const OutputPlan::Piece& piece, uint32_t crc) const;
  absl::Status ReadParts(const OutputPlan::Piece& piece, std::string& buffer,
                         absl::FunctionRef<absl::Status()> pass_on) const;

  const Conversion& conversion_;
  OutputFiles& files_;
  ProgressMeter& meter_;
};

}  // namespace reshard

#endif  // RESHARD_CHECKPOINT_JOB_PIECE_WRITER_H_
