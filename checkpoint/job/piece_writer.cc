#include "checkpoint/job/piece_writer.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "checkpoint/dcp/tensor_frame.h"
#include "checkpoint/io/files.h"
#include "checkpoint/job/boxes.h"
#include "checkpoint/job/content_sums.h"
#include "checkpoint/job/convert_error.h"
#include "checkpoint/job/hash.h"

namespace reshard {

// Puts the piece into the buffer, part by part in the order in which they are stored.
absl::Status PieceWriter::ReadParts(const OutputPlan::Piece& piece, std::string& buffer,
                                    absl::FunctionRef<absl::Status()> pass_on) const {
  Source& source = *conversion_.source;
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
  const StoredBox box{{offset.begin(), offset.end()}, {size.begin(), size.end()}, 0};
  for (const StoredBox& part : CutBox(box, element, stripe)) {
    int64_t bytes = element;
    for (const int64_t n : part.size) bytes *= n;
    buffer.resize(static_cast<size_t>(bytes));
    absl::Status status = source.Read(piece.tensor, part.offset, part.size, absl::MakeSpan(buffer));
    if (status.ok()) status = pass_on();
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

absl::StatusOr<FinishedPiece> PieceWriter::Write(int64_t index, std::string& buffer) const {
  const OutputPlan::Piece& piece = conversion_.plan->pieces()[static_cast<size_t>(index)];
  ContentSums sums;
  int64_t at = piece.payload_at;
  absl::Status status = ReadParts(piece, buffer, [&]() -> absl::Status {
    sums.Add(buffer);
    absl::Status written = files_.WriteAt(piece.place.file, at, buffer);
    at += static_cast<int64_t>(buffer.size());
    meter_.Add(static_cast<int64_t>(buffer.size()));
    return FromSystem(std::move(written));
  });
  if (status.ok()) status = WriteFrame(piece, sums.crc());
  if (!status.ok()) return status;
  const ContentHash hash = sums.hash();
  return FinishedPiece{static_cast<uint64_t>(index), hash.low, hash.high, sums.crc()};
}

absl::StatusOr<bool> PieceWriter::IsThere(const FinishedPiece& record, std::string& buffer) const {
  const OutputPlan::Piece& piece = conversion_.plan->pieces()[static_cast<size_t>(record.piece)];
  const absl::StatusOr<std::unique_ptr<ReadFile>> file = ReadFile::Open(files_.path(piece.place.file));
  if (!file.ok()) return FromSystem(file.status());
  const int64_t stripe = conversion_.buffers.stripe;
  ContentHasher hasher;
  for (int64_t at = 0; at < piece.payload_bytes; at += stripe) {
    buffer.resize(static_cast<size_t>(std::min(stripe, piece.payload_bytes - at)));
    const absl::Status read = (*file)->ReadAt(piece.payload_at + at, absl::MakeSpan(buffer));
    if (absl::IsDataLoss(read)) return false;  // a file that was cut off
    if (!read.ok()) return FromSystem(read);
    hasher.Add(buffer);
  }
  if (hasher.Finish() != ContentHash{record.hash_low, record.hash_high}) return false;
  meter_.Add(piece.payload_bytes);
  if (absl::Status framed = WriteFrame(piece, record.crc); !framed.ok()) return framed;
  return true;
}

absl::Status PieceWriter::WriteFrame(const OutputPlan::Piece& piece, uint32_t crc) const {
  if (conversion_.options.format != CheckpointFormat::kDcp || piece.tensor < 0) return absl::OkStatus();
  const Catalog::Tensor& tensor = conversion_.catalog().tensors()[static_cast<size_t>(piece.tensor)];
  const absl::StatusOr<StoredArchive> frame = TensorFrame(*tensor.dtype, conversion_.plan->size(piece));
  if (!frame.ok()) return frame.status();
  absl::Status written = files_.WriteAt(piece.place.file, piece.place.at, frame->Before(crc));
  if (written.ok()) {
    written = files_.WriteAt(piece.place.file, piece.payload_at + piece.payload_bytes, frame->After(crc));
  }
  return FromSystem(std::move(written));
}

}  // namespace reshard
