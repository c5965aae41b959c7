#include "checkpoint/output/dcp_output.h"

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "checkpoint/catalog/boxes.h"
#include "checkpoint/formats/dcp/format.h"
#include "checkpoint/formats/dcp/write_metadata.h"
#include "checkpoint/formats/torch_save/tensor_frame.h"
#include "checkpoint/formats/zip/stored_archive.h"
#include "checkpoint/io/show.h"
#include "reshard/layout/checked.h"
#include "reshard/layout/text.h"
#include "status/macros.h"
#include "status/view.h"

namespace reshard::output {
namespace {

int64_t Aligned(int64_t at) { return CeilDiv(at, zip::StoredArchive::kAlignment) * zip::StoredArchive::kAlignment; }

class DcpOutput final : public OutputFormat {
 public:
  DcpOutput(DcpPlacing placing, ObjectTerms objects) : placing_(std::move(placing)), objects_(std::move(objects)) {}

  absl::Status Plan(OutputPlan* plan) override {
    const Catalog& source = plan->source();
    catalog::BoxMaker boxes;
    for (size_t i = 0; i < source.byte_items().size(); ++i) {
      const int64_t length = source.byte_items()[i].place.length;
      OutputPlan::OutputPiece piece;
      piece.item = static_cast<int64_t>(i);
      const int64_t device = placing_.device_of(piece.item);
      piece.place = Take(plan, device, length);
      piece.payload_at = piece.place.at;
      piece.payload_bytes = length;
      boxes.AddBytes(device, length);
      plan->AddItem(piece);
    }
    for (const Catalog::Attribute& attribute : source.attributes()) {
      if (attribute.of_files || !attribute.pickle.empty()) continue;
      plan->LeaveOut(attribute.Label(), "it is not plain data");
    }
    std::vector<catalog::StoredBox> found;
    for (size_t t = 0; t < source.tensors().size(); ++t) {
      const Catalog::Tensor& tensor = source.tensors()[t];
      if (!tensor.dtype) {
        plan->Refuse(tensor.name, absl::StrCat("elements of type ", status::View(tensor.stored_dtype)));
        continue;
      }
      ASSIGN_OR_RETURN(const Layout layout, placing_.layout_of(tensor));
      plan->SetLayout(static_cast<int64_t>(t), layout);
      found.clear();
      const absl::Status cut = boxes.Add(layout, *tensor.dtype, &found);
      if (!cut.ok()) {
        return absl::Status(
            cut.code(), absl::StrCat("tensor ", io::Shown(tensor.name), ", ", ToString(layout), ": ", cut.message()));
      }
      if (objects_.bytes > 0) found = InBatches(tensor, std::move(found));
      for (const catalog::StoredBox& box : found) {
        ASSIGN_OR_RETURN(const zip::StoredArchive frame, torch_save::TensorFrame(*tensor.dtype, box.size));
        OutputPlan::OutputPiece piece;
        piece.tensor = static_cast<int64_t>(t);
        piece.place = Take(plan, box.device, frame.bytes());
        piece.payload_at = piece.place.at + frame.large_at();
        plan->AddBox(piece, box.offset, box.size);
      }
    }
    return absl::OkStatus();
  }

  absl::StatusOr<std::vector<NamedBytes>> Headers(const OutputPlan& plan, const std::string& id) const override {
    const Catalog& source = plan.source();
    const std::vector<std::string> names = plan.FileNames();
    std::vector<dcp::MetadataTensor> tensors;
    std::vector<dcp::MetadataBytes> items;
    std::vector<dcp::MetadataPath> paths;
    int64_t last = -1;
    for (const OutputPlan::OutputPiece& piece : plan.pieces()) {
      if (piece.tensor < 0) {
        items.push_back({source.byte_items()[piece.item].name, piece.place});
        continue;
      }
      const Catalog::Tensor& tensor = source.tensors()[piece.tensor];
      if (piece.tensor != last) {
        tensors.push_back({tensor.name, *tensor.dtype, tensor.shape, tensor.requires_grad, {}});
        last = piece.tensor;
      }
      tensors.back().chunks.push_back({plan.offset(piece), plan.size(piece), piece.place});
    }
    const auto add_path = [&](std::string_view name) {
      if (const auto* path = source.PathOf(name)) paths.push_back({name, path});
    };
    for (const dcp::MetadataBytes& item : items) add_path(item.name);
    for (const dcp::MetadataTensor& tensor : tensors) add_path(tensor.name);
    return std::vector<NamedBytes>{{std::string(dcp::kMetadataName),
                                    dcp::WriteMetadata(tensors, items, paths, names, source.attributes(), id, id)}};
  }

  absl::StatusOr<Frame> FrameOf(const OutputPlan& plan, const OutputPlan::OutputPiece& piece,
                                uint32_t crc) const override {
    if (piece.tensor < 0) return Frame{};  // a byte item stands alone
    const Catalog::Tensor& tensor = plan.source().tensors()[piece.tensor];
    ASSIGN_OR_RETURN(const zip::StoredArchive archive, torch_save::TensorFrame(*tensor.dtype, plan.size(piece)));
    return Frame{archive.Before(crc), archive.After(crc)};
  }

 private:
  // The next bytes of the device's file, or of the object that is being filled.
  Catalog::FileRange Take(OutputPlan* plan, int64_t device, int64_t bytes) {
    const int32_t file = objects_.bytes > 0 ? FileWithRoom(plan, bytes) : FileOf(plan, device);
    const int64_t at = Aligned(plan->files()[file].bytes);
    plan->GrowFile(file, at + bytes);
    return {file, at, bytes};
  }

  int32_t FileOf(OutputPlan* plan, int64_t device) {
    const auto [found, fresh] = files_.try_emplace(device, 0);
    if (fresh) found->second = plan->AddFile({absl::StrCat("__", device, "_0.distcp"), 0, ""});
    return found->second;
  }

  int32_t FileWithRoom(OutputPlan* plan, int64_t bytes) const {
    const size_t count = plan->files().size();
    if (count > 0 && Aligned(plan->files().back().bytes) + bytes <= objects_.bytes) {
      return static_cast<int32_t>(count - 1);
    }
    return plan->AddFile(
        {absl::StrCat("__0_", count, objects_.tag.empty() ? "" : "-", objects_.tag, ".distcp"), 0, ""});
  }

  // The boxes, cut at the same rows, in the order in which those are read.
  std::vector<catalog::StoredBox> InBatches(const Catalog::Tensor& tensor,
                                            std::vector<catalog::StoredBox> boxes) const {
    if (tensor.shape.empty() || tensor.bytes == 0) return boxes;
    const int64_t rows = std::max<int64_t>(1, objects_.batch_bytes / (tensor.bytes / tensor.shape[0]));
    const int64_t element = SizeOf(*tensor.dtype);
    std::vector<catalog::StoredBox> cut;
    for (const catalog::StoredBox& box : boxes) {
      const int64_t end = box.offset[0] + box.size[0];
      for (int64_t row = box.offset[0], next = 0; row < end; row = next) {
        next = std::min(end, (row / rows + 1) * rows);
        catalog::StoredBox part = box;
        part.offset[0] = row;
        part.size[0] = next - row;
        for (catalog::StoredBox& small : catalog::CutBox(part, element, objects_.batch_bytes))
          cut.push_back(std::move(small));
      }
    }
    std::sort(cut.begin(), cut.end(),
              [](const catalog::StoredBox& a, const catalog::StoredBox& b) { return a.offset < b.offset; });
    return cut;
  }

  const DcpPlacing placing_;
  const ObjectTerms objects_;
  absl::flat_hash_map<int64_t, int32_t> files_;  // device -> index in the plan
};

}  // namespace

DcpPlacing PlacingOf(LayoutRules rules) {
  const auto shared = std::make_shared<const LayoutRules>(std::move(rules));
  return {[shared](const Catalog::Tensor& tensor) {
            return shared->LayoutFor(tensor.name, {tensor.shape.begin(), tensor.shape.end()});
          },
          [shared](int64_t) { return shared->mesh().Device(0); }};
}

std::unique_ptr<OutputFormat> MakeDcpOutput(DcpPlacing placing, ObjectTerms objects) {
  return std::make_unique<DcpOutput>(std::move(placing), std::move(objects));
}

}  // namespace reshard::output
