#include "checkpoint/job/finish.h"

#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "checkpoint/io/files.h"
#include "checkpoint/io/remove_tree.h"
#include "checkpoint/io/show.h"
#include "checkpoint/job/compare.h"
#include "checkpoint/job/convert_error.h"
#include "checkpoint/job/sidecar.h"
#include "reshard/layout/text.h"

namespace reshard {
namespace {

Sidecar MakeSidecar(const Conversion& conversion, absl::Span<const std::pair<std::string, std::string>> headers,
                    absl::Span<const ContentHash> hashes) {
  const OutputPlan& plan = *conversion.plan;
  Sidecar sidecar;
  sidecar.job = conversion.id;
  if (conversion.rules && conversion.options.format == CheckpointFormat::kDcp) {
    sidecar.mesh = ToString(*conversion.rules->mesh());
  }
  for (const auto& [name, bytes] : headers) sidecar.headers.emplace_back(name, ContentHash::Of(bytes));
  for (const OutputPlan::File& file : plan.files()) {
    if (!file.head.empty()) sidecar.headers.emplace_back(file.name, ContentHash::Of(file.head));
  }
  std::vector<char> written(conversion.catalog().tensors().size(), 0);
  for (size_t i = 0; i < plan.pieces().size(); ++i) {
    const OutputPlan::Piece& piece = plan.pieces()[i];
    const std::string& file = plan.files()[static_cast<size_t>(piece.place.file)].name;
    sidecar.chunks.push_back({file, piece.place.at, piece.place.length, hashes[i]});
    if (piece.tensor >= 0) written[static_cast<size_t>(piece.tensor)] = 1;
  }
  for (size_t t = 0; t < written.size(); ++t) {
    if (written[t] == 0) continue;
    sidecar.tensors.push_back({std::string(conversion.catalog().tensors()[t].name), plan.layouts()[t]});
  }
  return sidecar;
}

absl::Status WriteWhole(const std::string& path, std::string_view bytes) {
  if (absl::Status removed = RemoveTree(path); !removed.ok()) return removed;  // of an interrupted run
  const absl::StatusOr<std::unique_ptr<WriteFile>> file = WriteFile::Create(path);
  if (!file.ok()) return file.status();
  if (absl::Status put = (*file)->WriteAt(0, bytes); !put.ok()) return put;
  if (absl::Status synced = (*file)->Sync(); !synced.ok()) return synced;
  return (*file)->Close();
}

}  // namespace

absl::Status WriteHeaders(const Conversion& conversion, const std::string& directory,
                          absl::Span<const ContentHash> hashes) {
  absl::StatusOr<std::vector<std::pair<std::string, std::string>>> headers = conversion.plan->Headers(conversion.id);
  if (!headers.ok()) return headers.status();
  headers->emplace_back(kSidecarName, MakeSidecar(conversion, *headers, hashes).ToJson());
  for (const auto& [name, bytes] : *headers) {
    absl::Status written = WriteWhole(JoinPath(directory, name), bytes);
    if (!written.ok()) return FromSystem(std::move(written));
  }
  return absl::OkStatus();
}

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
