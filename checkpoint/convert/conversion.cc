#include "checkpoint/convert/conversion.h"

#include <cerrno>
#include <utility>

#include "absl/strings/str_cat.h"
#include "checkpoint/hash/hash.h"
#include "checkpoint/io/error_kind.h"
#include "checkpoint/io/files.h"
#include "checkpoint/io/system.h"
#include "checkpoint/output/job_name.h"
#include "checkpoint/output/output_format.h"
#include "checkpoint/source/sidecar.h"
#include "status/macros.h"

namespace reshard::convert {
namespace {

std::string ParentOf(std::string path) {
  while (path.size() > 1 && path.back() == '/') path.pop_back();
  const size_t slash = path.rfind('/');
  if (slash == std::string::npos) return ".";
  return slash == 0 ? "/" : path.substr(0, slash);
}

absl::StatusOr<int64_t> FreeBytes(const std::string& directory) {
  struct statvfs facts;
  if (io::Uninterrupted([&] { return io::CurrentSystem().StatVfs(directory.c_str(), &facts); }) != 0) {
    return io::SystemError(errno, "look at", directory);
  }
  return static_cast<int64_t>(facts.f_bavail) * static_cast<int64_t>(facts.f_frsize);
}

}  // namespace

Share ShareOf(const output::OutputPlan& plan, int64_t worker, int64_t workers) {
  // A piece costs its bytes, and a little whatever it is.
  constexpr int64_t kOfAnyPiece = 1024;
  int64_t total = 0;
  for (const output::OutputPlan::Piece& piece : plan.pieces()) total += piece.payload_bytes + kOfAnyPiece;
  const auto before = [&](int64_t w) { return total / workers * w + total % workers * w / workers; };
  const int64_t from = before(worker), to = before(worker + 1);
  Share share;
  int64_t at = 0;
  for (const output::OutputPlan::Piece& piece : plan.pieces()) {
    if (at < from) ++share.first;
    if (at < to) ++share.end;
    if (at >= from && at < to) share.bytes += piece.payload_bytes;
    at += piece.payload_bytes + kOfAnyPiece;
  }
  return share;
}

absl::StatusOr<std::unique_ptr<Conversion>> Conversion::Make(const std::string& source, const std::string& destination,
                                                             const std::optional<LayoutRules>& rules,
                                                             const ConvertOptions& options) {
  auto made = std::make_unique<Conversion>(destination, rules, options);
  ASSIGN_OR_RETURN(std::unique_ptr<source::Source> opened,
                   source::Source::Open(source, {options.limits, options.ignore_sidecar}));
  made->source = std::move(opened);
  ASSIGN_OR_RETURN(std::unique_ptr<output::OutputFormat> format,
                   output::MakeOutputFormat(options.format, {rules, options.file_bytes}));
  ASSIGN_OR_RETURN(output::OutputPlan plan, output::OutputPlan::Make(made->catalog(), std::move(format)));
  made->plan = std::make_unique<output::OutputPlan>(std::move(plan));
  ASSIGN_OR_RETURN(const Buffers buffers, PlanBuffers(made->catalog(), *made->plan, options));
  made->buffers = buffers;
  const std::string state = output::SourceState(made->catalog());
  made->name = output::JobName(made->catalog(), *made->plan);
  made->id = hash::ContentHash::Of(made->name + state).ToText();
  made->terms = absl::StrCat(options.workers, " workers, source state ", state);
  made->share = ShareOf(*made->plan, options.worker, options.workers);
  RETURN_IF_ERROR(made->Summarize());
  return made;
}

absl::Status Conversion::Summarize() {
  int64_t last = -1;
  for (const output::OutputPlan::Piece& piece : plan->pieces()) {
    summary.byte_items += piece.tensor < 0 ? 1 : 0;
    if (piece.tensor >= 0 && piece.tensor != last) ++summary.tensors;
    last = piece.tensor;
  }
  summary.pieces = static_cast<int64_t>(plan->pieces().size());
  summary.bytes = plan->bytes();
  summary.own_pieces = share.end - share.first;
  summary.own_bytes = share.bytes;
  summary.files = static_cast<int64_t>(plan->files().size());
  summary.disk_bytes = plan->disk_bytes();
  summary.memory_bytes = buffers.total;
  summary.left_out = plan->left_out();
  const absl::StatusOr<int64_t> free = FreeBytes(ParentOf(destination));
  if (!free.ok()) return io::FromSystem(free.status());
  summary.free_bytes = *free;
  return absl::OkStatus();
}

bool Conversion::IsComplete() const {
  const absl::StatusOr<std::unique_ptr<io::ReadFile>> file =
      io::ReadFile::Open(io::JoinPath(destination, source::kSidecarName), false);
  if (!file.ok()) return false;
  const absl::StatusOr<std::string> text = (*file)->ReadAll(options.limits.metadata_bytes);
  if (!text.ok()) return false;
  const absl::StatusOr<source::Sidecar> sidecar = source::Sidecar::Parse(*text);
  return sidecar.ok() && sidecar->job == id;
}

}  // namespace reshard::convert
