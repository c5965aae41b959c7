// A conversion before its first byte is written: what is read, where everything goes, and how much memory is used.
#ifndef RESHARD_CHECKPOINT_CONVERT_CONVERSION_H_
#define RESHARD_CHECKPOINT_CONVERT_CONVERSION_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "checkpoint/convert/buffers.h"
#include "checkpoint/output/output_plan.h"
#include "checkpoint/source/sidecar.h"
#include "checkpoint/source/source.h"
#include "reshard/checkpoint/convert.h"
#include "reshard/checkpoint/rules.h"

namespace reshard::convert {

// The pieces that one worker writes: [first, end) of the plan's.
struct Share {
  int64_t first = 0;
  int64_t end = 0;
  int64_t bytes = 0;  // of contents
};

// Divides the plan's pieces into one run per worker, of about equal bytes. Runs are in the plan's order, which is that
// of the source: each worker then reads, and checks, other parts of the source, and writes every file from its
// beginning to its end. All workers get the same answer.
Share ShareOf(const output::OutputPlan& plan, int64_t worker, int64_t workers);

struct Conversion {
  // Errors as Convert. `rules` and `options` must outlive it.
  static absl::StatusOr<std::unique_ptr<Conversion>> Make(const std::string& source, const std::string& destination,
                                                          const std::optional<LayoutRules>& rules,
                                                          const ConvertOptions& options);

  // True when what is at the destination is the result of this job.
  bool IsComplete() const;
  const Catalog& catalog() const { return source->catalog(); }
  // ConvertSummary::planned.
  std::vector<PlannedTensor> Planned() const;

  Conversion(std::string to, const std::optional<LayoutRules>& layout_rules, const ConvertOptions& asked)
      : destination(std::move(to)), rules(layout_rules), options(asked) {}

  const std::string destination;
  const std::optional<LayoutRules>& rules;
  const ConvertOptions& options;
  std::unique_ptr<source::Source> source;
  std::unique_ptr<output::OutputPlan> plan;
  int64_t batch_bytes = 0;  // ObjectTerms::batch_bytes
  Buffers buffers;
  Share share;
  std::string name;  // of the job: the same where the same is written to the same places
  std::string id;    // the same only for as long as the source is the same too
  std::optional<source::Sidecar::Made> made;
  std::string terms;  // what all workers must agree on
  ConvertSummary summary;

 private:
  absl::Status Summarize();
};

}  // namespace reshard::convert

#endif  // RESHARD_CHECKPOINT_CONVERT_CONVERSION_H_
