#include "absl/strings/str_cat.h"
#include "checkpoint/output/dcp_output.h"
#include "checkpoint/output/orbax_output.h"
#include "checkpoint/output/output_format.h"
#include "checkpoint/output/safetensors_output.h"
#include "reshard/checkpoint/rules.h"
#include "status/view.h"

namespace reshard::output {
namespace {

struct WritableFormat {
  CheckpointFormat format;
  enum class Rules { kNone, kMay, kMust } rules;
  std::unique_ptr<OutputFormat> (*make)(const OutputTerms& terms);
};

constexpr WritableFormat kWritableFormats[] = {
    {CheckpointFormat::kDcp, WritableFormat::Rules::kMust,
     [](const OutputTerms& terms) { return MakeDcpOutput(PlacingOf(*terms.rules), terms.objects); }},
    {CheckpointFormat::kSafetensors, WritableFormat::Rules::kNone,
     [](const OutputTerms& terms) { return MakeSafetensorsOutput(terms.safetensors, terms.objects); }},
    {CheckpointFormat::kOrbax, WritableFormat::Rules::kMay,
     [](const OutputTerms& terms) { return MakeOrbaxOutput(terms.rules, terms.chunk_bytes, terms.objects); }},
};

const WritableFormat* Find(CheckpointFormat format) {
  for (const WritableFormat& writable : kWritableFormats) {
    if (writable.format == format) return &writable;
  }
  return nullptr;
}

}  // namespace

bool OutputFormat::IsHashed(std::string_view) const { return true; }

absl::StatusOr<OutputFormat::Frame> OutputFormat::FrameOf(const OutputPlan&, const OutputPlan::OutputPiece&,
                                                          uint32_t) const {
  return Frame{};
}

absl::StatusOr<std::unique_ptr<OutputFormat>> MakeOutputFormat(CheckpointFormat format, const OutputTerms& terms) {
  const WritableFormat* const writable = Find(format);
  if (writable == nullptr) {
    return absl::InvalidArgumentError(absl::StrCat(status::View(Name(format)), " is read but not written"));
  }
  if (writable->rules == WritableFormat::Rules::kMust && !terms.rules) {
    return absl::InvalidArgumentError("layout rules are needed: how shall tensors be cut?");
  }
  return writable->make(terms);
}

bool NeedsRules(CheckpointFormat format) {
  const WritableFormat* const writable = Find(format);
  return writable != nullptr && writable->rules == WritableFormat::Rules::kMust;
}

bool TakesRules(CheckpointFormat format) {
  const WritableFormat* const writable = Find(format);
  return writable != nullptr && writable->rules != WritableFormat::Rules::kNone;
}

}  // namespace reshard::output
