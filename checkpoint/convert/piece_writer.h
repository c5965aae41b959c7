// Writes the pieces of a conversion, and checks those that an interrupted run has written.
#ifndef RESHARD_CHECKPOINT_CONVERT_PIECE_WRITER_H_
#define RESHARD_CHECKPOINT_CONVERT_PIECE_WRITER_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "checkpoint/convert/batched_reads.h"
#include "checkpoint/convert/conversion.h"
#include "checkpoint/output/journal.h"
#include "checkpoint/output/piece_sink.h"
#include "checkpoint/tasks/run_tasks.h"

namespace reshard::convert {

// From any number of threads, each with a buffer of its own, if the sink is for as many.
class PieceWriter {
 public:
  PieceWriter(const Conversion& conversion, output::PieceSink* sink, tasks::ProgressMeter* meter)
      : conversion_(conversion), sink_(*sink), meter_(*meter) {}

  // Reads the pieces of a batch from the source and writes them, with their frames. What to put into the journal: their
  // checksums of the source have then been compared.
  absl::StatusOr<std::vector<output::FinishedPiece>> Write(const BatchedReads& reads, const BatchedRead& batch,
                                                           std::string& buffer) const;
  // Whether the contents that the record tells of are in its file, which is at `path`. When they are, the frame is
  // written again: it is small, and whether it was written is not known.
  absl::StatusOr<bool> IsThere(const output::FinishedPiece& record, const std::string& path, std::string& buffer) const;

 private:
  // The frame of a piece, and with it the payload, where that is not there yet.
  absl::Status WriteFrame(const output::OutputPlan::OutputPiece& piece, uint32_t crc, std::string_view payload) const;
  struct Writing;
  absl::Status WriteBatch(const BatchedReads& reads, const BatchedRead& batch, std::vector<Writing>& pieces,
                          std::string& buffer) const;
  absl::Status WriteItem(Writing& item, std::string& buffer) const;
  // The next bytes of a piece. `stays`: they are there until its frame is written.
  absl::Status Put(Writing& piece, std::string_view bytes, bool stays) const;

  const Conversion& conversion_;
  output::PieceSink& sink_;
  tasks::ProgressMeter& meter_;
};

}  // namespace reshard::convert

#endif  // RESHARD_CHECKPOINT_CONVERT_PIECE_WRITER_H_
