#include "checkpoint/job/compare_result.h"

#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "checkpoint/io/show.h"
#include "checkpoint/job/compare.h"
#include "checkpoint/job/source.h"

namespace reshard {

absl::Status CompareResult(const Conversion& conversion, const std::string& directory,
                           const std::function<void(const ConvertProgress&)>& progress) {
  const absl::StatusOr<std::unique_ptr<Source>> result = Source::Open(directory, {conversion.options.limits, false});
  if (!result.ok()) return result.status();
  const absl::StatusOr<VerifyReport> report =
      CompareSources(*conversion.source, **result, conversion.buffers.threads, progress);
  if (!report.ok()) return report.status();
  const size_t expected = conversion.summary.left_out.size();
  if (report->differences.size() == expected) return absl::OkStatus();
  const VerifyReport::Difference& first = report->differences.front();
  return absl::InternalError(absl::StrCat("the result differs from the source in ",
                                          report->differences.size() - expected, " entries, as ", Shown(first.name),
                                          ": ", first.what));
}

}  // namespace reshard
