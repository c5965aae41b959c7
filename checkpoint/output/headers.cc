#include "checkpoint/output/headers.h"

#include <utility>
#include <vector>

#include "checkpoint/io/files.h"
#include "checkpoint/io/whole_file.h"
#include "checkpoint/tasks/run_tasks.h"
#include "status/macros.h"

namespace reshard::output {
namespace {

source::Sidecar MakeSidecar(const Catalog& contents, const OutputPlan& plan, const std::string& id,
                            absl::Span<const std::pair<std::string, std::string>> headers,
                            absl::Span<const hash::ContentHash> hashes,
                            const std::optional<source::Sidecar::Made>& made) {
  source::Sidecar sidecar;
  sidecar.job = id;
  sidecar.made = made;
  for (const auto& [name, bytes] : headers) {
    if (plan.format().IsHashed(name)) sidecar.headers.emplace_back(name, hash::ContentHash::Of(bytes));
  }
  for (const OutputPlan::File& file : plan.files()) {
    if (!file.head.empty()) sidecar.headers.emplace_back(file.name, hash::ContentHash::Of(file.head));
  }
  std::vector<char> written(contents.tensors().size(), 0);
  for (size_t i = 0; i < plan.pieces().size(); ++i) {
    const OutputPlan::OutputPiece& piece = plan.pieces()[i];
    const std::string& file = plan.files()[piece.place.file].name;
    sidecar.chunks.push_back({file, piece.place.at, piece.place.length, hashes[i]});
    if (piece.tensor >= 0) written[piece.tensor] = 1;
  }
  for (size_t t = 0; t < written.size(); ++t) {
    if (written[t] == 0) continue;
    if (sidecar.mesh.empty()) sidecar.mesh = plan.meshes()[t];
    sidecar.tensors.push_back({std::string(contents.tensors()[t].name), plan.layouts()[t], plan.meshes()[t]});
  }
  return sidecar;
}

}  // namespace

absl::StatusOr<std::vector<OutputFormat::NamedBytes>> MakeHeaders(const Catalog& contents, const OutputPlan& plan,
                                                                  const std::string& id,
                                                                  absl::Span<const hash::ContentHash> hashes,
                                                                  const std::optional<source::Sidecar::Made>& made) {
  ASSIGN_OR_RETURN(auto headers, plan.format().Headers(plan, id));
  std::string sidecar = MakeSidecar(contents, plan, id, headers, hashes, made).ToJson();
  headers.insert(headers.begin(), {std::string(source::kSidecarName), std::move(sidecar)});
  return headers;
}

absl::Status WriteHeaders(const Catalog& contents, const OutputPlan& plan, const std::string& id,
                          const std::string& directory, absl::Span<const hash::ContentHash> hashes,
                          const std::optional<source::Sidecar::Made>& made) {
  ASSIGN_OR_RETURN(const auto headers, MakeHeaders(contents, plan, id, hashes, made));
  const auto write = [&](int64_t i, int) -> absl::Status {
    const auto& [name, bytes] = headers[i];
    RETURN_IF_ERROR(io::MakeParents(directory, name));
    // An interrupted run may have left one.
    return io::WriteWholeFile(io::JoinPath(directory, name), bytes);
  };
  const auto count = static_cast<int64_t>(headers.size());
  return tasks::RunTasks(count, tasks::WaitingThreads(1, count), write);
}

}  // namespace reshard::output
