#include "checkpoint/convert/compare_result.h"

#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "checkpoint/auxiliary_files/copy.h"
#include "checkpoint/io/show.h"
#include "checkpoint/source/source.h"
#include "checkpoint/verify/compare.h"
#include "status/macros.h"

namespace reshard::convert {

absl::Status CompareResult(const Conversion& conversion, const std::string& directory,
                           const std::function<void(const ConvertProgress&)>& progress) {
  ASSIGN_OR_RETURN(const std::unique_ptr<source::Source> result,
                   source::Source::Open(directory, {conversion.options.limits, false}));
  ASSIGN_OR_RETURN(const VerifyReport report,
                   verify::CompareSources(*conversion.source, *result, conversion.buffers.threads, progress,
                                          conversion.options.stop));
  const std::vector<AuxiliaryFile>& beside = conversion.summary.side_files;
  ASSIGN_OR_RETURN(const size_t other, auxiliary_files::FirstDifferent(conversion.catalog().root(), beside, directory));
  if (other < beside.size()) {
    return absl::InternalError(
        absl::StrCat("the result differs from the source in the auxiliary file ", io::Shown(beside[other].path)));
  }
  const size_t expected = conversion.summary.left_out.size() + conversion.summary.left_out_items.size();
  if (report.differences.size() == expected) return absl::OkStatus();
  const VerifyReport::Difference& first = report.differences.front();
  return absl::InternalError(absl::StrCat("the result differs from the source in ",
                                          report.differences.size() - expected, " entries, as ", io::Shown(first.name),
                                          ": ", first.what));
}

}  // namespace reshard::convert
