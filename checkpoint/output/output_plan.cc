#include "checkpoint/output/output_plan.h"

#include <algorithm>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "checkpoint/catalog/boxes.h"
#include "checkpoint/formats/dcp/tensor_frame.h"
#include "checkpoint/formats/dcp/write_metadata.h"
#include "checkpoint/formats/safetensors/dtypes.h"
#include "checkpoint/formats/safetensors/write_header.h"
#include "checkpoint/io/show.h"
#include "reshard/layout/checked.h"
#include "reshard/layout/text.h"
#include "status/macros.h"
#include "status/view.h"

namespace reshard::output {
namespace {

int64_t Aligned(int64_t at) { return CeilDiv(at, zip::StoredArchive::kAlignment) * zip::StoredArchive::kAlignment; }

}  // namespace

absl::Span<const int64_t> OutputPlan::offset(const Piece& piece) const {
  if (piece.tensor < 0) return {};
  const size_t rank = source_->tensors()[static_cast<size_t>(piece.tensor)].shape.size();
  return absl::MakeConstSpan(boxes_).subspan(static_cast<size_t>(piece.first_box), rank);
}

absl::Span<const int64_t> OutputPlan::size(const Piece& piece) const {
  if (piece.tensor < 0) return {};
  const size_t rank = source_->tensors()[static_cast<size_t>(piece.tensor)].shape.size();
  return absl::MakeConstSpan(boxes_).subspan(static_cast<size_t>(piece.first_box) + rank, rank);
}

int64_t OutputPlan::disk_bytes() const {
  int64_t total = 0;
  for (const File& file : files_) total += file.bytes;
  return total;
}

int64_t OutputPlan::MemoryBytes() const {
  return static_cast<int64_t>(pieces_.capacity() * sizeof(Piece) + boxes_.capacity() * sizeof(int64_t));
}

void OutputPlan::AddPiece(int64_t tensor, absl::Span<const int64_t> offset, absl::Span<const int64_t> size,
                          Piece piece) {
  piece.tensor = tensor;
  piece.first_box = static_cast<int64_t>(boxes_.size());
  boxes_.insert(boxes_.end(), offset.begin(), offset.end());
  boxes_.insert(boxes_.end(), size.begin(), size.end());
  bytes_ += piece.payload_bytes;
  pieces_.push_back(piece);
}

void OutputPlan::LeaveOut(std::string_view name, std::string_view reason) {
  left_out_.push_back(absl::StrCat(io::Shown(name), ": ", status::View(reason)));
}

absl::StatusOr<OutputPlan> OutputPlan::Make(const Catalog& source, CheckpointFormat format,
                                            const std::optional<LayoutRules>& rules, int64_t file_bytes) {
  if (format == CheckpointFormat::kDcp) {
    if (!rules) return absl::InvalidArgumentError("layout rules are needed: how shall tensors be cut?");
    return MakeDcp(source, {[&](const Catalog::Tensor& tensor) {
                              return rules->LayoutFor(tensor.name, {tensor.shape.begin(), tensor.shape.end()});
                            },
                            [&](int64_t) { return rules->mesh().Device(0); }});
  }
  OutputPlan plan(source, format);
  RETURN_IF_ERROR(plan.PlanSafetensors(file_bytes));
  return plan;
}

absl::StatusOr<OutputPlan> OutputPlan::MakeDcp(const Catalog& source, const Placing& placing) {
  OutputPlan plan(source, CheckpointFormat::kDcp);
  RETURN_IF_ERROR(plan.PlanDcp(placing));
  return plan;
}

OutputPlan::OutputPlan(const Catalog& source, CheckpointFormat format)
    : source_(&source), format_(format), layouts_(source.tensors().size()), meshes_(source.tensors().size()) {}

absl::Status OutputPlan::PlanDcp(const Placing& placing) {
  absl::flat_hash_map<int64_t, int32_t> files;  // device -> index
  const auto file_of = [&](int64_t device) {
    const auto [found, fresh] = files.emplace(device, static_cast<int32_t>(files_.size()));
    if (fresh) files_.push_back({absl::StrCat("__", device, "_0.distcp"), 0, ""});
    return found->second;
  };
  const auto place = [&](int32_t file, int64_t bytes) {
    File& into = files_[static_cast<size_t>(file)];
    const int64_t at = Aligned(into.bytes);
    into.bytes = at + bytes;
    return Catalog::Place{file, at, bytes};
  };
  catalog::BoxMaker boxes;
  for (size_t i = 0; i < source_->byte_items().size(); ++i) {
    const int64_t length = source_->byte_items()[i].place.length;
    Piece piece;
    piece.item = static_cast<int64_t>(i);
    const int64_t device = placing.device_of(piece.item);
    piece.place = place(file_of(device), length);
    piece.payload_at = piece.place.at;
    piece.payload_bytes = length;
    boxes.AddBytes(device, length);
    AddPiece(-1, {}, {}, piece);
  }
  std::vector<catalog::StoredBox> found;
  for (size_t t = 0; t < source_->tensors().size(); ++t) {
    const Catalog::Tensor& tensor = source_->tensors()[t];
    if (!tensor.dtype) {
      LeaveOut(tensor.name, absl::StrCat("elements of type ", status::View(tensor.stored_dtype)));
      continue;
    }
    ASSIGN_OR_RETURN(const Layout layout, placing.layout_of(tensor));
    layouts_[t] = ToString(layout);
    meshes_[t] = ToString(layout.mesh());
    found.clear();
    const absl::Status cut = boxes.Add(layout, *tensor.dtype, &found);
    if (!cut.ok()) {
      return absl::Status(cut.code(),
                          absl::StrCat("tensor ", io::Shown(tensor.name), ", ", layouts_[t], ": ", cut.message()));
    }
    for (const catalog::StoredBox& box : found) {
      ASSIGN_OR_RETURN(const zip::StoredArchive frame, dcp::TensorFrame(*tensor.dtype, box.size));
      Piece piece;
      piece.place = place(file_of(box.device), frame.bytes());
      piece.payload_at = piece.place.at + frame.large_at();
      piece.payload_bytes = SizeOf(*tensor.dtype);
      for (const int64_t size : box.size) piece.payload_bytes *= size;
      AddPiece(static_cast<int64_t>(t), box.offset, box.size, piece);
    }
  }
  return absl::OkStatus();
}

absl::Status OutputPlan::PlanSafetensors(int64_t file_bytes) {
  for (const Catalog::ByteItem& item : source_->byte_items()) {
    LeaveOut(item.name, "bytes that are no tensor, which safetensors cannot hold");
  }
  std::vector<size_t> kept;
  std::vector<safetensors::SafetensorsTensor> tensors;
  std::vector<int64_t> sizes;
  for (size_t t = 0; t < source_->tensors().size(); ++t) {
    const Catalog::Tensor& tensor = source_->tensors()[t];
    const safetensors::SafetensorsDType* dtype =
        tensor.dtype ? safetensors::FindSafetensorsDType(*tensor.dtype) : nullptr;
    if (dtype == nullptr) {
      LeaveOut(tensor.name, absl::StrCat("elements of type ", status::View(tensor.stored_dtype),
                                         ", which safetensors does not have"));
      continue;
    }
    safetensors::SafetensorsTensor entry{std::string(tensor.name), std::string(dtype->name),
                                         std::vector<int64_t>(tensor.shape.begin(), tensor.shape.end())};
    const absl::StatusOr<safetensors::SafetensorsLayout> alone = safetensors::LayOutSafetensors({&entry, 1}, {});
    if (!alone.ok()) {
      LeaveOut(tensor.name, std::string(alone.status().message()));
      continue;
    }
    kept.push_back(t);
    sizes.push_back(tensor.bytes);
    tensors.push_back(std::move(entry));
  }
  std::vector<std::pair<std::string, std::string>> notes = source_->notes();
  const auto is_format = [](const auto& note) { return note.first == "format"; };
  if (std::none_of(notes.begin(), notes.end(), is_format)) notes.emplace_back("format", "pt");

  std::vector<std::pair<size_t, size_t>> runs = safetensors::SplitIntoFiles(sizes, file_bytes);
  if (runs.empty()) runs.emplace_back(0, 0);
  for (size_t f = 0; f < runs.size(); ++f) {
    const auto [first, end] = runs[f];
    const auto count = static_cast<int64_t>(runs.size());
    ASSIGN_OR_RETURN(safetensors::SafetensorsLayout laid,
                     safetensors::LayOutSafetensors(absl::MakeConstSpan(tensors).subspan(first, end - first), notes));
    const std::string name = count == 1 ? std::string("model.safetensors")
                                        : safetensors::SafetensorsFileName(static_cast<int64_t>(f), count);
    files_.push_back({name, laid.bytes, std::move(laid.head)});
    for (size_t k = first; k < end; ++k) {
      const Catalog::Tensor& tensor = source_->tensors()[kept[k]];
      const safetensors::SafetensorsLayout::Place place = laid.places[k - first];
      index_.emplace_back(tensors[k].name, name);
      catalog::StoredBox whole{std::vector<int64_t>(tensor.shape.size(), 0), tensors[k].shape, 0};
      int64_t at = place.at;
      const auto parts = tensor.bytes == 0 ? std::vector<catalog::StoredBox>{whole}
                                           : catalog::CutBox(whole, SizeOf(*tensor.dtype), catalog::kLargestBox);
      for (const catalog::StoredBox& part : parts) {
        Piece piece;
        piece.payload_bytes = SizeOf(*tensor.dtype);
        for (const int64_t size : part.size) piece.payload_bytes *= size;
        piece.payload_at = at;
        piece.place = {static_cast<int32_t>(f), at, piece.payload_bytes};
        at += piece.payload_bytes;
        AddPiece(static_cast<int64_t>(kept[k]), part.offset, part.size, piece);
      }
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<std::pair<std::string, std::string>>> OutputPlan::Headers(const std::string& id) const {
  std::vector<std::pair<std::string, std::string>> headers;
  if (format_ == CheckpointFormat::kSafetensors) {
    if (files_.size() == 1) return headers;
    int64_t bytes = 0;
    for (const Piece& piece : pieces_) bytes += piece.payload_bytes;
    ASSIGN_OR_RETURN(std::string index, safetensors::SafetensorsIndex(index_, bytes));
    headers.emplace_back(safetensors::kSafetensorsIndexName, std::move(index));
    return headers;
  }
  std::vector<std::string> names;
  for (const File& file : files_) names.push_back(file.name);
  std::vector<dcp::MetadataTensor> tensors;
  std::vector<dcp::MetadataBytes> items;
  std::vector<dcp::MetadataPath> paths;
  int64_t last = -1;
  for (const Piece& piece : pieces_) {
    if (piece.tensor < 0) {
      items.push_back({source_->byte_items()[static_cast<size_t>(piece.item)].name, piece.place});
      continue;
    }
    const Catalog::Tensor& tensor = source_->tensors()[static_cast<size_t>(piece.tensor)];
    if (piece.tensor != last) {
      tensors.push_back({tensor.name, *tensor.dtype, tensor.shape, tensor.requires_grad, {}});
      last = piece.tensor;
    }
    tensors.back().chunks.push_back({offset(piece), size(piece), piece.place});
  }
  const auto add_path = [&](std::string_view name) {
    if (const auto* path = source_->PathOf(name)) paths.push_back({name, path});
  };
  for (const dcp::MetadataBytes& item : items) add_path(item.name);
  for (const dcp::MetadataTensor& tensor : tensors) add_path(tensor.name);
  headers.emplace_back(".metadata", dcp::WriteMetadata(tensors, items, paths, names, id, id));
  return headers;
}

}  // namespace reshard::output
