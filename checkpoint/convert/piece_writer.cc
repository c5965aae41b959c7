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
#include "checkpoint/source/box.h"
#include "checkpoint/source/streaming_reader.h"
#include "status/macros.h"

namespace reshard::convert {

// A piece that is being written, from its beginning to its end.
struct PieceWriter::Writing {
  int64_t index = 0;
  const output::OutputPlan::OutputPiece* piece = nullptr;
  source::Box box;   // of a tensor
  int64_t done = 0;  // bytes
  hash::ContentSums sums;
  // The whole payload, if it is small and still in the buffer: it is written with its frame.
  std::string_view whole;
};

absl::Status PieceWriter::Put(Writing& piece, std::string_view bytes, bool stays) const {
  piece.sums.Add(bytes);
  // Few bytes cost less than a call does: they go with their frame.
  constexpr size_t kFewBytes = size_t{64} << 10;
  if (stays && static_cast<int64_t>(bytes.size()) == piece.piece->payload_bytes && bytes.size() <= kFewBytes) {
    piece.whole = bytes;
  } else {
    const int64_t at = piece.piece->payload_at + piece.done;
    RETURN_IF_ERROR(sink_.WriteAt(piece.piece->place.file, at, bytes));
  }
  piece.done += static_cast<int64_t>(bytes.size());
  meter_.Add(static_cast<int64_t>(bytes.size()));
  return piece.done == piece.piece->payload_bytes ? WriteFrame(*piece.piece, piece.sums.crc(), piece.whole)
                                                  : absl::OkStatus();
}

absl::Status PieceWriter::WriteItem(Writing& item, std::string& buffer) const {
  while (item.done < item.piece->payload_bytes) {
    buffer.resize(std::min(conversion_.buffers.stripe, item.piece->payload_bytes - item.done));
    RETURN_IF_ERROR(conversion_.source->ReadItem(item.piece->item, item.done, absl::MakeSpan(buffer)));
    RETURN_IF_ERROR(Put(item, buffer, /*stays=*/true));
  }
  return absl::OkStatus();
}

absl::Status PieceWriter::WriteBatch(const BatchedReads& reads, const BatchedRead& batch, std::vector<Writing>& pieces,
                                     std::string& buffer) const {
  source::Source& source = *conversion_.source;
  const int64_t tensor = pieces.front().piece->tensor;
  const int64_t element = SizeOf(*source.catalog().tensors()[tensor].dtype);
  const source::Box box = BoxOf(*conversion_.plan, reads, batch);
  source::StreamingReader reader(&source, tensor, box);
  const std::vector<source::Box> parts = catalog::CutBox(box, element, conversion_.buffers.stripe);
  for (const source::Box& part : parts) {
    // What each piece has of the part, one after the other in the buffer. Within a piece it continues what was before.
    std::vector<source::Box> boxes;
    std::vector<int64_t> begins = {0};
    for (const Writing& piece : pieces) {
      boxes.push_back(Common(part, piece.box));
      begins.push_back(begins.back() + boxes.back().Elements() * element);
    }
    buffer.resize(begins.back());
    RETURN_IF_ERROR(reader.Read(part, [&](const source::Box& read, std::string& bytes) -> absl::Status {
      if (pieces.size() == 1 && read == part) {
        buffer.swap(bytes);
        return absl::OkStatus();
      }
      for (size_t i = 0; i < pieces.size(); ++i) {
        const source::Box common = Common(read, boxes[i]);
        if (common.Elements() == 0) continue;
        CopyBox(common, {read, bytes.data()}, {boxes[i], buffer.data() + begins[i]}, element);
      }
      return absl::OkStatus();
    }));
    for (size_t i = 0; i < pieces.size(); ++i) {
      const auto begin = static_cast<size_t>(begins[i]), end = static_cast<size_t>(begins[i + 1]);
      if (end > begin) {
        const std::string_view bytes = std::string_view(buffer).substr(begin, end - begin);
        RETURN_IF_ERROR(Put(pieces[i], bytes, /*stays=*/parts.size() == 1));
      }
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<output::FinishedPiece>> PieceWriter::Write(const BatchedReads& reads,
                                                                      const BatchedRead& batch,
                                                                      std::string& buffer) const {
  std::vector<Writing> pieces(batch.count);
  for (size_t i = 0; i < batch.count; ++i) {
    pieces[i].index = reads.PiecesOf(batch)[i];
    pieces[i].piece = &conversion_.plan->pieces()[pieces[i].index];
    if (pieces[i].piece->tensor >= 0) pieces[i].box = BoxOf(*conversion_.plan, *pieces[i].piece);
  }
  if (pieces.front().piece->tensor < 0) {
    RETURN_IF_ERROR(WriteItem(pieces.front(), buffer));
  } else if (pieces.front().piece->payload_bytes > 0) {
    RETURN_IF_ERROR(WriteBatch(reads, batch, pieces, buffer));
  }
  std::vector<output::FinishedPiece> finished;
  for (const Writing& piece : pieces) {
    if (piece.piece->payload_bytes == 0) RETURN_IF_ERROR(WriteFrame(*piece.piece, piece.sums.crc(), {}));
    const hash::ContentHash hash = piece.sums.hash();
    finished.push_back({static_cast<uint64_t>(piece.index), hash.low, hash.high, piece.sums.crc()});
  }
  return finished;
}

absl::StatusOr<bool> PieceWriter::IsThere(const output::FinishedPiece& record, const std::string& path,
                                          std::string& buffer) const {
  const output::OutputPlan::OutputPiece& piece = conversion_.plan->pieces()[record.piece];
  const absl::StatusOr<std::unique_ptr<io::ReadFile>> file = io::ReadFile::Open(path);
  if (!file.ok()) return io::FromSystem(file.status());
  const int64_t stripe = conversion_.buffers.stripe;
  hash::ContentHasher hasher;
  for (int64_t at = 0; at < piece.payload_bytes; at += stripe) {
    buffer.resize(std::min(stripe, piece.payload_bytes - at));
    const absl::Status read = (*file)->ReadAt(piece.payload_at + at, absl::MakeSpan(buffer));
    if (absl::IsDataLoss(read)) return false;  // a file that was cut off
    RETURN_IF_ERROR(read);
    hasher.Add(buffer);
  }
  if (hasher.Finish() != hash::ContentHash{record.hash_low, record.hash_high}) return false;
  meter_.Add(piece.payload_bytes);
  RETURN_IF_ERROR(WriteFrame(piece, record.crc, {}));
  return true;
}

absl::Status PieceWriter::WriteFrame(const output::OutputPlan::OutputPiece& piece, uint32_t crc,
                                     std::string_view payload) const {
  ASSIGN_OR_RETURN(output::OutputFormat::Frame frame,
                   conversion_.plan->format().FrameOf(*conversion_.plan, piece, crc));
  absl::Status written;
  if (!payload.empty()) {
    frame.before.append(payload).append(frame.after);
    return sink_.WriteAt(piece.place.file, piece.place.at, frame.before);
  }
  if (!frame.before.empty()) written = sink_.WriteAt(piece.place.file, piece.place.at, frame.before);
  if (written.ok() && !frame.after.empty()) {
    written = sink_.WriteAt(piece.place.file, piece.payload_at + piece.payload_bytes, frame.after);
  }
  return written;
}

}  // namespace reshard::convert
