#include "checkpoint/convert/conversion.h"

#include <algorithm>
#include <cerrno>
#include <limits>
#include <optional>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "checkpoint/auxiliary_files/config.h"
#include "checkpoint/auxiliary_files/find.h"
#include "checkpoint/auxiliary_files/loader.h"
#include "checkpoint/catalog/catalog_hash.h"
#include "checkpoint/hash/digest.h"
#include "checkpoint/hash/hash.h"
#include "checkpoint/io/error_kind.h"
#include "checkpoint/io/files.h"
#include "checkpoint/io/show.h"
#include "checkpoint/io/staged_directory.h"
#include "checkpoint/io/system.h"
#include "checkpoint/output/job_name.h"
#include "checkpoint/output/output_format.h"
#include "checkpoint/source/sidecar.h"
#include "checkpoint/stores/url.h"
#include "checkpoint/views/scales.h"
#include "reshard/layout/checked.h"
#include "status/macros.h"

namespace reshard::convert {
namespace {

// Defaults. The smaller objects are, the more of them are written at the same time, and the less
// is lost with one.
constexpr int64_t kFileBytes = int64_t{5} << 30, kObjectBytes = int64_t{1} << 30;
// Readers of Zarr read whole chunks.
constexpr int64_t kChunkBytes = int64_t{64} << 20;

// Small batches let many requests be under way in little memory, but each has a hash, and a chunk in DCP's metadata.
int64_t BatchBytesFor(const Catalog& catalog) {
  constexpr int64_t kLeast = int64_t{8} << 20, kMost = int64_t{32} << 20, kPieces = 4096;
  int64_t bytes = 0;
  for (const Catalog::Tensor& tensor : catalog.tensors()) {
    bytes = CheckedAdd(bytes, tensor.bytes).value_or(std::numeric_limits<int64_t>::max());
  }
  int64_t batch_bytes = kLeast;
  while (batch_bytes < kMost && bytes / batch_bytes > kPieces) batch_bytes *= 2;
  return batch_bytes;
}

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
  // A piece costs its bytes, and a little more whatever its size.
  constexpr int64_t kOfAnyPiece = 1024;
  int64_t total = 0;
  for (const output::OutputPlan::OutputPiece& piece : plan.pieces()) total += piece.payload_bytes + kOfAnyPiece;
  const auto before = [&](int64_t w) { return total / workers * w + total % workers * w / workers; };
  const int64_t from = before(worker), to = before(worker + 1);
  Share share;
  int64_t at = 0;
  for (const output::OutputPlan::OutputPiece& piece : plan.pieces()) {
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
  const bool to_store = stores::IsUrl(destination);
  std::string admitted = destination;
  if (to_store) {
    ASSIGN_OR_RETURN(admitted, stores::Admit(destination));
  }
  auto made = std::make_unique<Conversion>(admitted, rules, options);
  ASSIGN_OR_RETURN(std::unique_ptr<source::Source> opened,
                   source::Source::Open(source, {options.limits, options.ignore_sidecar, source::ChunkChecks::kAll,
                                                 options.recipe, options.unwrap}));
  made->source = std::move(opened);
  if (options.record_made) made->made = {options.recipe.selection.weights_only, made->source->wrappers()};
  RETURN_IF_ERROR(CheckAnnounced(made->catalog(), options));
  ASSIGN_OR_RETURN(AuxiliaryFiles beside, auxiliary_files::Find(source, made->catalog(), options.side_files));
  made->summary.side_files = std::move(beside.carried);
  made->summary.left_beside = std::move(beside.left);
  absl::StatusOr<auxiliary_files::Loader> loader =
      auxiliary_files::LoaderOf(made->source->stored(), made->summary.side_files, made->catalog());
  if (!loader.ok()) return io::FromSystem(loader.status());
  const int64_t file_bytes = options.file_bytes > 0 ? options.file_bytes : to_store ? kObjectBytes : kFileBytes;
  // An index makes objects a checkpoint. It is written once all of them are there.
  output::OutputTerms terms{rules, {file_bytes, options.always_index || to_store, loader->stem, loader->one_file}};
  terms.chunk_bytes = options.file_bytes > 0 ? options.file_bytes : kChunkBytes;
  if (to_store) {
    made->batch_bytes = BatchBytesFor(made->catalog());
    terms.objects = {file_bytes, made->batch_bytes, ""};
  }
  const auto plan = [&]() -> absl::Status {
    ASSIGN_OR_RETURN(std::unique_ptr<output::OutputFormat> format, output::MakeOutputFormat(options.format, terms));
    ASSIGN_OR_RETURN(output::OutputPlan planned, output::OutputPlan::Make(made->catalog(), std::move(format)));
    made->plan = std::make_unique<output::OutputPlan>(std::move(planned));
    return absl::OkStatus();
  };
  RETURN_IF_ERROR(plan());
  if (to_store && options.overwrite && !loader->one_file) {
    constexpr size_t kTagLength = 8;
    terms.objects.tag = output::JobName(made->catalog(), *made->plan).substr(0, kTagLength);
    RETURN_IF_ERROR(plan());
  }
  ASSIGN_OR_RETURN(const Buffers buffers, PlanBuffers(*made->source, *made->plan, made->batch_bytes, options));
  made->buffers = buffers;
  absl::StatusOr<std::vector<std::string>> contradictions =
      auxiliary_files::FindContradictions(made->catalog().root(), made->summary.side_files, made->catalog());
  if (!contradictions.ok()) return io::FromSystem(contradictions.status());
  made->summary.contradictions = *std::move(contradictions);
  // What is copied from beside the source is a part of the job.
  hash::Digest what, state_now;
  what.Add(std::string_view(output::JobName(made->catalog(), *made->plan)));
  if (made->source->views() != nullptr) {
    what.Add(std::string_view(catalog::HashOfCatalog(made->source->stored()).ToText()));
    made->source->AddViews(&what);
  }
  state_now.Add(std::string_view(output::SourceState(made->catalog())));
  for (const AuxiliaryFile& file : made->summary.side_files) {
    what.Add(std::string_view(file.path));
    state_now.Add({file.bytes, file.modified});
  }
  const std::string state = state_now.Hash().ToText();
  made->name = what.Hash().ToText();
  made->id = hash::ContentHash::Of(made->name + state).ToText();
  made->terms = absl::StrCat(options.workers, " workers, source state ", state);
  made->share = ShareOf(*made->plan, options.worker, options.workers);
  RETURN_IF_ERROR(made->Summarize());
  return made;
}

absl::Status Conversion::Summarize() {
  int64_t last = -1;
  for (const output::OutputPlan::OutputPiece& piece : plan->pieces()) {
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
  for (const AuxiliaryFile& file : summary.side_files) {
    const std::optional<int64_t> sum = CheckedAdd(summary.disk_bytes, file.bytes);
    if (!sum) return absl::InvalidArgumentError("the bytes of the auxiliary files overflow");
    summary.disk_bytes = *sum;
  }
  for (const Catalog::Attribute& attribute : catalog().attributes()) {
    if (attribute.of_files) summary.dropped_attributes.push_back(attribute.name);
  }
  if (source->views() != nullptr) {
    for (const views::PartlyUsed& part : views::FindPartlyUsed(*source->views(), source->stored())) {
      const Catalog::Tensor& tensor = source->stored().tensors()[part.stored];
      summary.partly_used.push_back(
          absl::StrCat(io::Shown(tensor.name), ": ", part.used, " of ", part.elements, " elements are used"));
    }
    const views::Unscaled unscaled = views::FindUnscaled(*source->views(), catalog(), source->stored(), options.recipe);
    const auto name_of = [&](int64_t tensor) { return std::string(source->stored().tensors()[tensor].name); };
    for (const int64_t tensor : unscaled.cast) summary.cast_unscaled.push_back(name_of(tensor));
    for (const int64_t tensor : unscaled.kept) summary.left_quantized.push_back(name_of(tensor));
  }
  summary.not_selected = source->not_selected();
  summary.taken_off = source->wrappers();
  if (options.unwrap) {
    constexpr size_t kFirst = 3;
    for (size_t t = 0;
         !auxiliary_files::HasConfig(summary.side_files) && t < std::min(kFirst, catalog().tensors().size()); ++t) {
      summary.first_names.emplace_back(catalog().tensors()[t].name);
    }
    std::optional<std::string> warning = auxiliary_files::NamesOfMegatron(catalog());
    if (warning && options.recipe.tensors.empty()) {
      summary.warnings.push_back(*std::move(warning));
    }
  }
  summary.memory_bytes = buffers.total;
  summary.left_out = plan->left_out();
  summary.left_out_items = plan->left_out_items();
  if (stores::IsUrl(destination)) {
    summary.free_bytes = std::numeric_limits<int64_t>::max();
    return absl::OkStatus();
  }
  const absl::StatusOr<int64_t> free = FreeBytes(ParentOf(destination));
  if (!free.ok()) return io::FromSystem(free.status());
  summary.free_bytes = *free;
  summary.staged_bytes = std::min(io::StagedDirectory::StagedBytes(destination, name), summary.disk_bytes);
  return absl::OkStatus();
}

std::vector<PlannedTensor> Conversion::Planned() const {
  std::vector<PlannedTensor> out;
  for (size_t t = 0; t < catalog().tensors().size(); ++t) {
    const Catalog::Tensor& tensor = catalog().tensors()[t];
    PlannedTensor planned{std::string(tensor.name), "", tensor.dtype.value_or(DType::kU8), {}, tensor.bytes,
                          plan->layouts()[t]};
    planned.shape.assign(tensor.shape.begin(), tensor.shape.end());
    // A selection may have renamed it; it is read under its stored name.
    planned.from = source->views() == nullptr ? std::string(tensor.stored_name) : (*source->views())[t].text;
    if (planned.from.empty()) {
      planned.from = std::string(source->stored().tensors()[(*source->views())[t].stored].stored_name);
    }
    out.push_back(std::move(planned));
  }
  return out;
}

bool Conversion::IsComplete() const {
  const absl::StatusOr<std::unique_ptr<io::ReadFile>> file =
      io::ReadFile::Open(io::JoinPath(destination, source::kSidecarName), false);
  if (!file.ok()) return false;
  const absl::StatusOr<std::string> text = (*file)->ReadAll(options.limits.metadata_bytes);
  if (!text.ok()) return false;
  const absl::StatusOr<source::Sidecar> sidecar = source::Sidecar::Parse(*text);
  if (!sidecar.ok() || sidecar->job != id) return false;
  if (!stores::IsUrl(destination)) return true;
  // In a store the sidecar may have come first.
  std::vector<std::string> headers;
  for (const auto& [header, hash] : sidecar->headers) headers.push_back(header);
  const std::vector<absl::StatusOr<io::FileFacts>> facts = io::LookAt(destination, headers, false);
  return std::all_of(facts.begin(), facts.end(), [](const auto& found) { return found.ok(); });
}

}  // namespace reshard::convert
