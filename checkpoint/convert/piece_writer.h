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

// For any number of threads, each with a buffer of its own, if the sink is, too.
class PieceWriter {
 public:
  PieceWriter(const Conversion& conversion, output::PieceSink* sink, tasks::ProgressMeter* meter)
      : conversion_(conversion), sink_(*sink), meter_(*meter) {}

  // Reads the pieces of a batch from the source and writes them, with their frames. Returns what to put into the
  // journal; the checksums of the source have then been compared.
  absl::StatusOr<std::vector<output::FinishedPiece>> Write(const BatchedReads& reads, const BatchedRead& batch,
                                                           std::string& buffer) const;
  // Whether the contents that the record describes are in its file, which is at `path`. If they are, writes the frame
  // again: it is small, and whether it was written is not known.
  absl::StatusOr<bool> IsThere(const output::FinishedPiece& record, const std::string& path, std::string& buffer) const;

 private:
  // Writes the frame of a piece, and with it the payload if that is not there yet.
  absl::Status WriteFrame(const output::OutputPlan::OutputPiece& piece, uint32_t crc, std::string_view payload) const;
  struct Writing;
  absl::Status WriteBatch(const BatchedReads& reads, const BatchedRead& batch, std::vector<Writing>& pieces,
                          std::string& buffer) const;
  absl::Status WriteItem(Writing& item, std::string& buffer) const;
  // Writes the next bytes of a piece. `stays`: they stay valid until its frame is written.
  absl::Status Put(Writing& piece, std::string_view bytes, bool stays) const;

  const Conversion& conversion_;
  output::PieceSink& sink_;
  tasks::ProgressMeter& meter_;
};

}  // namespace reshard::convert

#endif  // RESHARD_CHECKPOINT_CONVERT_PIECE_WRITER_H_
