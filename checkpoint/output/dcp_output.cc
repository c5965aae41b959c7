#include "checkpoint/output/dcp_output.h"

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
  explicit DcpOutput(DcpPlacing placing) : placing_(std::move(placing)) {}

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
    std::vector<std::string> names;
    for (const OutputPlan::File& file : plan.files()) names.push_back(file.name);
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
  // The next bytes of the device's file.
  Catalog::FileRange Take(OutputPlan* plan, int64_t device, int64_t bytes) {
    const auto [found, fresh] = files_.try_emplace(device, 0);
    if (fresh) found->second = plan->AddFile({absl::StrCat("__", device, "_0.distcp"), 0, ""});
    const int64_t at = Aligned(plan->files()[found->second].bytes);
    plan->GrowFile(found->second, at + bytes);
    return {found->second, at, bytes};
  }

  const DcpPlacing placing_;
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

std::unique_ptr<OutputFormat> MakeDcpOutput(DcpPlacing placing) {
  return std::make_unique<DcpOutput>(std::move(placing));
}

}  // namespace reshard::output
