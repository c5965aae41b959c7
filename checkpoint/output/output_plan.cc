#include "checkpoint/output/output_plan.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "checkpoint/io/show.h"
#include "checkpoint/output/output_format.h"
#include "reshard/layout/text.h"
#include "status/macros.h"
#include "status/view.h"

namespace reshard::output {

absl::Span<const int64_t> OutputPlan::offset(const OutputPiece& piece) const {
  if (piece.tensor < 0) return {};
  const size_t rank = source_->tensors()[piece.tensor].shape.size();
  return absl::MakeConstSpan(boxes_).subspan(static_cast<size_t>(piece.first_box), rank);
}

absl::Span<const int64_t> OutputPlan::size(const OutputPiece& piece) const {
  if (piece.tensor < 0) return {};
  const size_t rank = source_->tensors()[piece.tensor].shape.size();
  return absl::MakeConstSpan(boxes_).subspan(static_cast<size_t>(piece.first_box) + rank, rank);
}

std::vector<std::string> OutputPlan::FileNames() const {
  std::vector<std::string> names;
  for (const File& file : files_) names.push_back(file.name);
  return names;
}

int64_t OutputPlan::disk_bytes() const {
  int64_t total = 0;
  for (const File& file : files_) total += file.bytes;
  return total;
}

int64_t OutputPlan::MemoryBytes() const {
  return static_cast<int64_t>(pieces_.capacity() * sizeof(OutputPiece) + boxes_.capacity() * sizeof(int64_t));
}

absl::StatusOr<OutputPlan> OutputPlan::Make(const Catalog& source, std::unique_ptr<OutputFormat> format) {
  OutputPlan plan(source);
  RETURN_IF_ERROR(format->Plan(&plan));
  if (plan.num_refused_ > 0) {
    return absl::InvalidArgumentError(
        absl::StrCat(plan.num_refused_ == 1 ? "a tensor" : absl::StrCat(plan.num_refused_, " tensors"),
                     " cannot be written, so nothing is: ", plan.refused_, "; --exclude PATTERN leaves tensors out"));
  }
  plan.format_ = std::move(format);
  return plan;
}

OutputPlan::OutputPlan(const Catalog& source)
    : source_(&source), layouts_(source.tensors().size()), meshes_(source.tensors().size()) {}

int32_t OutputPlan::AddFile(File file) {
  files_.push_back(std::move(file));
  return static_cast<int32_t>(files_.size() - 1);
}

void OutputPlan::NameFile(int32_t file, std::string name) { files_[file].name = std::move(name); }

void OutputPlan::GrowFile(int32_t file, int64_t bytes) { files_[file].bytes = bytes; }

void OutputPlan::AddItem(const OutputPiece& piece) {
  bytes_ += piece.payload_bytes;
  pieces_.push_back(piece);
}

void OutputPlan::AddBox(OutputPiece piece, absl::Span<const int64_t> offset, absl::Span<const int64_t> size) {
  piece.first_box = static_cast<int64_t>(boxes_.size());
  boxes_.insert(boxes_.end(), offset.begin(), offset.end());
  boxes_.insert(boxes_.end(), size.begin(), size.end());
  piece.payload_bytes = SizeOf(*source_->tensors()[piece.tensor].dtype);
  for (const int64_t length : size) piece.payload_bytes *= length;
  bytes_ += piece.payload_bytes;
  pieces_.push_back(piece);
}

void OutputPlan::AddDense(int64_t tensor, int32_t file, int64_t at, const catalog::StoredBox& box, int64_t most) {
  const int64_t element = SizeOf(*source_->tensors()[tensor].dtype);
  // A box without elements is one piece, however long its rows would be.
  const bool is_empty = std::find(box.size.begin(), box.size.end(), 0) != box.size.end();
  for (const catalog::StoredBox& part : is_empty ? std::vector{box} : catalog::CutBox(box, element, most)) {
    OutputPiece piece;
    piece.tensor = tensor;
    piece.payload_at = at;
    int64_t bytes = element;
    for (const int64_t size : part.size) bytes *= size;
    piece.place = {file, at, bytes};
    at += bytes;
    AddBox(piece, part.offset, part.size);
  }
}

void OutputPlan::SetLayout(int64_t tensor, const Layout& layout) {
  layouts_[tensor] = ToString(layout);
  meshes_[tensor] = ToString(layout.mesh());
}

void OutputPlan::LeaveOutItem(std::string_view name) { left_out_items_.emplace_back(name); }

void OutputPlan::Refuse(std::string_view tensor, std::string_view reason) {
  if (num_refused_++ == 0) refused_ = absl::StrCat(io::Shown(tensor), ": ", status::View(reason));
}

void OutputPlan::LeaveOut(std::string_view name, std::string_view reason) {
  left_out_.push_back(absl::StrCat(io::Shown(name), ": ", status::View(reason)));
}

}  // namespace reshard::output
