// Checkpoints, conversions, comparisons and fingerprints as JSON.
#ifndef RESHARD_CHECKPOINT_REPORT_H_
#define RESHARD_CHECKPOINT_REPORT_H_

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "reshard/checkpoint/catalog.h"
#include "reshard/checkpoint/convert.h"
#include "reshard/checkpoint/fingerprint.h"
#include "reshard/checkpoint/recorded_layouts.h"
#include "reshard/checkpoint/side_files.h"
#include "reshard/checkpoint/verify.h"

namespace reshard {

// What is in a checkpoint: the tensors and byte items whose names match, in the order of the catalog, which they point
// into.
struct Listing {
  struct Totals {
    int64_t tensors = 0;
    int64_t chunks = 0;
    int64_t bytes = 0;       // of the elements of the tensors; 2^63 - 1 if the sum does not fit
    int64_t item_bytes = 0;  // of the byte items
    int64_t files = 0;       // of the checkpoint; with a pattern, those that the listed parts are in
  };
  const Catalog* catalog = nullptr;
  std::vector<const Catalog::Tensor*> tensors;
  std::vector<const Catalog::ByteItem*> byte_items;
  Totals totals;
  std::map<std::string, RecordedLayout> layouts;      // by the name of the tensor; filled by the caller
  std::vector<const Catalog::Attribute*> attributes;  // of the whole checkpoint; without a pattern
  AuxiliaryFiles beside;                              // filled by the caller
};

// `pattern` is as in layout rules; empty matches everything.
Listing List(const Catalog& catalog, std::string_view pattern);

// The layout recorded for the tensor, or null if there is none.
const RecordedLayout* LayoutOf(const Listing& listing, const Catalog::Tensor& tensor);

// One object on one line, schema reshard.inspect/1 (docs/inspect.schema.json). Ends with a newline.
std::string ListingToJson(const Listing& listing, bool with_chunks);

// What was requested, besides what ConvertSummary has.
struct ConversionTerms {
  bool dry_run = false;             // the summary is PlanConversion's
  bool verified = false;            // ConvertOptions::verify
  int64_t workers = 1;              // ConvertOptions::workers
  int64_t worker = 0;               // ConvertOptions::worker
  int64_t peak_resident_bytes = 0;  // of the process, as the caller measured it; 0: not known
};
// One object, schema reshard.checkpoint/1 (docs/checkpoint.schema.json), indented. Ends with a newline.
std::string ConversionToJson(const ConvertSummary& summary, const ConversionTerms& terms);

// One object, schema reshard.verify/1 (docs/verify.schema.json), indented. Ends with a newline.
std::string ComparisonToJson(const VerifyReport& report);

// One object on one line, schema reshard.fingerprint/1 (docs/fingerprint.schema.json). Ends with a newline.
std::string FingerprintToJson(const CheckpointFingerprint& taken);

}  // namespace reshard

#endif  // RESHARD_CHECKPOINT_REPORT_H_
