#include "checkpoint/output/safetensors_output.h"

#include <algorithm>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "checkpoint/catalog/boxes.h"
#include "checkpoint/formats/safetensors/dtypes.h"
#include "checkpoint/formats/safetensors/write_header.h"
#include "reshard/layout/checked.h"
#include "status/macros.h"
#include "status/view.h"

namespace reshard::output {
namespace {

class SafetensorsOutput final : public OutputFormat {
 public:
  SafetensorsOutput(SafetensorsTerms terms, ObjectTerms objects)
      : terms_(std::move(terms)), objects_(std::move(objects)) {}

  absl::Status Plan(OutputPlan* plan) override {
    for (const Catalog::ByteItem& item : plan->source().byte_items()) {
      plan->LeaveOutItem(item.name);
    }
    for (const Catalog::Attribute& attribute : plan->source().attributes()) {
      if (attribute.of_files) continue;
      plan->LeaveOut(attribute.Label(), "safetensors has no place for it");
    }
    const Kept kept = Keep(plan);
    std::vector<std::pair<std::string, std::string>> notes = plan->source().notes();
    const auto is_format = [](const auto& note) { return note.first == "format"; };
    if (std::none_of(notes.begin(), notes.end(), is_format)) notes.emplace_back("format", "pt");

    std::vector<std::pair<size_t, size_t>> runs = safetensors::SplitIntoFiles(
        kept.bytes, terms_.one_file ? std::numeric_limits<int64_t>::max() : terms_.file_bytes);
    if (runs.empty()) runs.emplace_back(0, 0);
    const auto count = static_cast<int64_t>(runs.size());
    for (size_t f = 0; f < runs.size(); ++f) {
      const auto [first, end] = runs[f];
      ASSIGN_OR_RETURN(
          safetensors::SafetensorsLayout laid,
          safetensors::LayOutSafetensors(absl::MakeConstSpan(kept.entries).subspan(first, end - first), notes));
      const std::string name = safetensors::SafetensorsFileName(
          objects_.tag.empty() ? terms_.stem : absl::StrCat(terms_.stem, "-", objects_.tag), static_cast<int64_t>(f),
          count);
      const int32_t file = plan->AddFile({name, laid.bytes, std::move(laid.head)});
      for (size_t k = first; k < end; ++k) {
        index_.emplace_back(kept.entries[k].name, name);
        AddPieces(plan, kept.tensors[k], file, laid.places[k - first].at);
      }
    }
    return absl::OkStatus();
  }

  absl::StatusOr<std::vector<NamedBytes>> Headers(const OutputPlan& plan, const std::string&) const override {
    const bool is_wanted = terms_.always_index || plan.source().has_index();
    if (terms_.one_file || (plan.files().size() == 1 && !is_wanted)) return std::vector<NamedBytes>();
    ASSIGN_OR_RETURN(std::string index, safetensors::SafetensorsIndex(index_, plan.bytes()));
    return std::vector<NamedBytes>{{safetensors::SafetensorsIndexName(terms_.stem), std::move(index)}};
  }

 private:
  // The tensors that the format can hold.
  struct Kept {
    std::vector<int64_t> tensors;  // indices in the catalog
    std::vector<safetensors::SafetensorsTensor> entries;
    std::vector<int64_t> bytes;
  };

  static Kept Keep(OutputPlan* plan) {
    Kept kept;
    const absl::Span<const Catalog::Tensor> tensors = plan->source().tensors();
    for (size_t t = 0; t < tensors.size(); ++t) {
      const Catalog::Tensor& tensor = tensors[t];
      const safetensors::SafetensorsDType* dtype =
          tensor.dtype ? safetensors::FindSafetensorsDType(*tensor.dtype) : nullptr;
      if (dtype == nullptr) {
        plan->Refuse(tensor.name, absl::StrCat("elements of type ", status::View(tensor.stored_dtype),
                                               ", which safetensors does not have"));
        continue;
      }
      safetensors::SafetensorsTensor entry{std::string(tensor.name), std::string(dtype->name),
                                           std::vector<int64_t>(tensor.shape.begin(), tensor.shape.end())};
      if (dtype->packed() > 1) {
        const auto last = entry.shape.empty() ? std::nullopt : CheckedMul(entry.shape.back(), dtype->packed());
        if (!last) {
          plan->Refuse(tensor.name, "two elements in a byte need a dimension of their own");
          continue;
        }
        entry.shape.back() = *last;
      }
      const absl::StatusOr<safetensors::SafetensorsLayout> alone = safetensors::LayOutSafetensors({&entry, 1}, {});
      if (!alone.ok()) {
        plan->Refuse(tensor.name, std::string(alone.status().message()));
        continue;
      }
      kept.tensors.push_back(static_cast<int64_t>(t));
      kept.bytes.push_back(tensor.bytes);
      kept.entries.push_back(std::move(entry));
    }
    return kept;
  }

  // A tensor whose elements begin there, in boxes that are read and written one at a time.
  void AddPieces(OutputPlan* plan, int64_t index, int32_t file, int64_t at) const {
    const Catalog::Tensor& tensor = plan->source().tensors()[index];
    const catalog::StoredBox whole{
        std::vector<int64_t>(tensor.shape.size(), 0), {tensor.shape.begin(), tensor.shape.end()}, 0};
    plan->AddDense(index, file, at, whole, objects_.bytes > 0 ? objects_.batch_bytes : catalog::kLargestBox);
  }

  const SafetensorsTerms terms_;
  const ObjectTerms objects_;
  std::vector<std::pair<std::string, std::string>> index_;  // tensor and file
};

}  // namespace

std::unique_ptr<OutputFormat> MakeSafetensorsOutput(SafetensorsTerms terms, ObjectTerms objects) {
  return std::make_unique<SafetensorsOutput>(std::move(terms), std::move(objects));
}

}  // namespace reshard::output
