#include "checkpoint/convert/piece_writer.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "checkpoint/catalog/boxes.h"
#include "checkpoint/hash/content_sums.h"
#include "checkpoint/hash/hash.h"
#include "checkpoint/io/error_kind.h"
#include "checkpoint/io/files.h"
#include "checkpoint/output/output_format.h"
#include "status/macros.h"

namespace reshard::convert {

// Puts the piece into the buffer, part by part in the order in which they are stored.
absl::Status PieceWriter::ReadParts(const output::OutputPlan::Piece& piece, std::string& buffer,
                                    absl::FunctionRef<absl::Status()> pass_on) const {
  source::Source& source = *conversion_.source;
  const int64_t stripe = conversion_.buffers.stripe;
  if (piece.tensor < 0) {
    for (int64_t done = 0; done < piece.payload_bytes; done += stripe) {
      buffer.resize(static_cast<size_t>(std::min(stripe, piece.payload_bytes - done)));
      absl::Status status = source.ReadItem(piece.item, done, absl::MakeSpan(buffer));
      if (status.ok()) status = pass_on();
      if (!status.ok()) return status;
    }
    return absl::OkStatus();
  }
  if (piece.payload_bytes == 0) return absl::OkStatus();
  const int64_t element = SizeOf(*source.catalog().tensors()[static_cast<size_t>(piece.tensor)].dtype);
  const absl::Span<const int64_t> offset = conversion_.plan->offset(piece);
  const absl::Span<const int64_t> size = conversion_.plan->size(piece);
  const catalog::StoredBox box{{offset.begin(), offset.end()}, {size.begin(), size.end()}, 0};
  for (const catalog::StoredBox& part : catalog::CutBox(box, element, stripe)) {
    int64_t bytes = element;
    for (const int64_t n : part.size) bytes *= n;
    buffer.resize(static_cast<size_t>(bytes));
    absl::Status status = source.Read(piece.tensor, part.offset, part.size, absl::MakeSpan(buffer));
    if (status.ok()) status = pass_on();
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

absl::StatusOr<output::FinishedPiece> PieceWriter::Write(int64_t index, std::string& buffer) const {
  const output::OutputPlan::Piece& piece = conversion_.plan->pieces()[static_cast<size_t>(index)];
  hash::ContentSums sums;
  int64_t at = piece.payload_at;
  absl::Status status = ReadParts(piece, buffer, [&]() -> absl::Status {
    sums.Add(buffer);
    absl::Status written = files_.WriteAt(piece.place.file, at, buffer);
    at += static_cast<int64_t>(buffer.size());
    meter_.Add(static_cast<int64_t>(buffer.size()));
    return io::FromSystem(std::move(written));
  });
  if (status.ok()) status = WriteFrame(piece, sums.crc());
  if (!status.ok()) return status;
  const hash::ContentHash hash = sums.hash();
  return output::FinishedPiece{static_cast<uint64_t>(index), hash.low, hash.high, sums.crc()};
}

absl::StatusOr<bool> PieceWriter::IsThere(const output::FinishedPiece& record, std::string& buffer) const {
  const output::OutputPlan::Piece& piece = conversion_.plan->pieces()[static_cast<size_t>(record.piece)];
  const absl::StatusOr<std::unique_ptr<io::ReadFile>> file = io::ReadFile::Open(files_.path(piece.place.file));
  if (!file.ok()) return io::FromSystem(file.status());
  const int64_t stripe = conversion_.buffers.stripe;
  hash::ContentHasher hasher;
  for (int64_t at = 0; at < piece.payload_bytes; at += stripe) {
    buffer.resize(static_cast<size_t>(std::min(stripe, piece.payload_bytes - at)));
    const absl::Status read = (*file)->ReadAt(piece.payload_at + at, absl::MakeSpan(buffer));
    if (absl::IsDataLoss(read)) return false;  // a file that was cut off
    if (!read.ok()) return io::FromSystem(read);
    hasher.Add(buffer);
  }
  if (hasher.Finish() != hash::ContentHash{record.hash_low, record.hash_high}) return false;
  meter_.Add(piece.payload_bytes);
  RETURN_IF_ERROR(WriteFrame(piece, record.crc));
  return true;
}

absl::Status PieceWriter::WriteFrame(const output::OutputPlan::Piece& piece, uint32_t crc) const {
  ASSIGN_OR_RETURN(const output::OutputFormat::Frame frame,
                   conversion_.plan->format().FrameOf(*conversion_.plan, piece, crc));
  absl::Status written;
  if (!frame.before.empty()) written = files_.WriteAt(piece.place.file, piece.place.at, frame.before);
  if (written.ok() && !frame.after.empty()) {
    written = files_.WriteAt(piece.place.file, piece.payload_at + piece.payload_bytes, frame.after);
  }
  return io::FromSystem(std::move(written));
}

}  // namespace reshard::convert
