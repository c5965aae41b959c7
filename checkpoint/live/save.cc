#include "reshard/live/save.h"

#include <algorithm>
#include <chrono>
#include <memory>
#include <optional>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "checkpoint/catalog/boxes.h"
#include "checkpoint/catalog/catalog_builder.h"
#include "checkpoint/formats/dcp/format.h"
#include "checkpoint/formats/torch_save/torch_dtype.h"
#include "checkpoint/hash/content_sums.h"
#include "checkpoint/io/show.h"
#include "checkpoint/live/fragment.h"
#include "checkpoint/live/placement.h"
#include "checkpoint/live/progress.h"
#include "checkpoint/live/save_place.h"
#include "checkpoint/output/dcp_output.h"
#include "checkpoint/output/job_name.h"
#include "checkpoint/output/output_format.h"
#include "checkpoint/output/output_plan.h"
#include "checkpoint/stores/url.h"
#include "checkpoint/tasks/run_tasks.h"
#include "reshard/layout/text.h"
#include "status/macros.h"
#include "status/no_throw.h"
#include "status/view.h"

namespace reshard {
namespace {

constexpr int64_t kStripe = int64_t{4} << 20;  // bytes that a thread puts together at a time

class Saving {
 public:
  Saving(const std::string& path, absl::Span<const SaveEntry> entries, absl::Span<const SaveItem> items,
         Communicator& communicator, const SaveOptions& options)
      : path_(path), entries_(entries), items_(items), communicator_(communicator), options_(options) {
    while (!communicator.has_rank(coordinator_)) ++coordinator_;
  }

  // Between two agreements either every rank does its part or none does.
  absl::StatusOr<SaveSummary> Run() {
    const auto start = std::chrono::steady_clock::now();
    absl::Status status = status::NoThrow("preparing to save", [&] { return Prepare(); });
    status = communicator_.Agree(status, status.ok() ? Signature(std::move(fields_)) : Signature());
    if (!status.ok()) return status;
    status = Together("begun", [&] { return IsCoordinator() ? place_->Begin() : absl::OkStatus(); });
    if (status.ok()) status = Together("written", [&] { return WriteOwn(); });
    if (status.ok()) status = Together("saved", [&] { return IsCoordinator() ? place_->Commit() : absl::OkStatus(); });
    if (!status.ok()) {
      if (IsCoordinator()) place_->Abandon(has_agreed_);
      return status;
    }
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
    summary_.tensors = static_cast<int64_t>(entries_.size());
    summary_.seconds = seconds.count();
    return summary_;
  }

 private:
  bool IsCoordinator() const { return communicator_.rank() == coordinator_; }

  template <typename Part>
  absl::Status Together(absl::string_view what, const Part& part) {
    const absl::Status own = status::NoThrow("saving", part);
    absl::Status agreed = communicator_.Agree(own, Signature({{"step of saving", std::string(what)}}));
    // Otherwise a rank is lost, or late, and may still be writing.
    has_agreed_ = agreed.ok() || absl::IsAborted(agreed) || (!own.ok() && agreed == own);
    return agreed;
  }

  absl::Status Prepare() {
    fields_.push_back({"operation", "save"});
    fields_.push_back({"overwrite", options_.overwrite ? "yes" : "no"});
    catalog::CatalogBuilder builder(dcp::kFormat, path_);
    std::set<std::string_view> names;
    for (const SaveItem& item : items_) {
      if (!names.insert(item.name).second) return Twice(item.name);
      const bool is_here = item.rank == communicator_.rank();
      if (!communicator_.has_rank(item.rank) || item.length < 0 ||
          (is_here && static_cast<int64_t>(item.bytes.size()) != item.length)) {
        return absl::InvalidArgumentError(absl::StrCat("byte item ", io::Shown(item.name), " of ", item.length,
                                                       " bytes of rank ", item.rank, ", where there are ",
                                                       item.bytes.size()));
      }
      RETURN_IF_ERROR(builder.AddByteItem(item.name, {0, 0, item.length}));
      builder.AddPath(item.name, PathOf(item.name, item.path));
      fields_.push_back({"byte item", absl::StrCat(item.name, " ", item.rank, " ", item.length)});
    }
    for (const SaveEntry& entry : entries_) {
      if (!names.insert(entry.name).second) return Twice(entry.name);
      const absl::StatusOr<live::Placement> placement = placements_.Find(entry.layout);
      absl::Status fits = placement.status();
      if (fits.ok()) fits = live::CheckFragment(*placement, entry.dtype, entry.from);
      if (fits.ok()) {
        fits = builder.AddTensor(entry.name, absl::StrCat("torch.", status::View(torch_save::TorchName(entry.dtype))),
                                 entry.dtype, placement->layout.shape(), entry.requires_grad);
      }
      if (!fits.ok()) {
        return absl::Status(fits.code(), absl::StrCat("tensor ", io::Shown(entry.name), ": ", fits.message()));
      }
      placed_.push_back(*placement);
      builder.AddPath(entry.name, PathOf(entry.name, entry.path));
      fields_.push_back({absl::StrCat("tensor ", placed_.size() - 1),
                         absl::StrCat(entry.name, " ", ToString(entry.layout.mesh()), " ", ToString(entry.layout), " ",
                                      status::View(Name(entry.dtype)), entry.requires_grad ? " requires_grad" : "")});
    }
    catalog_ = std::move(builder).BuildUnstored();
    ASSIGN_OR_RETURN(
        output::OutputPlan plan,
        output::OutputPlan::Make(*catalog_,
                                 output::MakeDcpOutput({[&](const Catalog::Tensor& tensor) -> absl::StatusOr<Layout> {
                                                          return placed_[&tensor - catalog_->tensors().data()].layout;
                                                        },
                                                        [&](int64_t item) { return items_[item].rank; }})));
    plan_.emplace(std::move(plan));
    own_file_ = OwnFile();
    job_ = output::JobName(*catalog_, *plan_);
    const live::SavePlan saved{*catalog_, *plan_, job_, communicator_.rank(), options_.overwrite};
    ASSIGN_OR_RETURN(place_,
                     stores::IsUrl(path_) ? live::PlaceInStore(path_, saved) : live::PlaceInDirectory(path_, saved));
    return absl::OkStatus();
  }

  static absl::Status Twice(const std::string& name) {
    return absl::InvalidArgumentError(absl::StrCat("the name ", io::Shown(name), " appears twice"));
  }

  static std::vector<Catalog::PathStep> PathOf(const std::string& name, const std::vector<Catalog::PathStep>& path) {
    return path.empty() ? std::vector<Catalog::PathStep>{name} : path;
  }

  absl::Status WriteOwn() {
    std::vector<size_t> pieces;
    for (size_t i = 0; own_file_ && i < plan_->pieces().size(); ++i) {
      if (plan_->pieces()[i].place.file != *own_file_) continue;
      pieces.push_back(i);
      summary_.written_bytes += plan_->pieces()[i].payload_bytes;
    }
    live::Progress progress(summary_.written_bytes, summary_.written_bytes, options_.progress);
    RETURN_IF_ERROR(progress.Begin());
    if (own_file_) RETURN_IF_ERROR(progress.During([&] { return WriteFile(*own_file_, pieces, progress); }));
    return progress.End();
  }

  // This rank's file in the plan; nullopt if others store everything that it holds.
  std::optional<int32_t> OwnFile() const {
    const std::string name = absl::StrCat("__", communicator_.rank(), "_0.distcp");
    const auto found = std::find_if(plan_->files().begin(), plan_->files().end(),
                                    [&](const output::OutputPlan::File& file) { return file.name == name; });
    if (found == plan_->files().end()) return std::nullopt;
    return static_cast<int32_t>(found - plan_->files().begin());
  }

  absl::Status WriteFile(int32_t own, const std::vector<size_t>& pieces, live::Progress& progress) {
    ASSIGN_OR_RETURN(const std::unique_ptr<live::SaveFile> file, place_->Create(own, pieces));
    const int threads = place_->is_in_order() ? 1 : tasks::ThreadCount(options_.threads, live::kMostThreads);
    std::vector<std::string> buffers(static_cast<size_t>(threads));
    const auto write = [&](int64_t p, int thread) { return WritePiece(pieces[p], *file, buffers[thread], progress); };
    RETURN_IF_ERROR(tasks::RunTasks(static_cast<int64_t>(pieces.size()), threads, write, progress.stop()));
    return file->Finish();
  }

  // Writes the payload and its frame. The part of the frame before the payload has the payload's checksum, so if bytes
  // have to come in order, the checksums are computed first.
  absl::Status WritePiece(size_t index, live::SaveFile& file, std::string& buffer, live::Progress& progress) {
    const output::OutputPlan::OutputPiece& piece = plan_->pieces()[index];
    hash::ContentSums sums;
    int64_t at = piece.payload_at;
    const auto add = [&](std::string_view bytes) -> absl::Status {
      if (progress.stop().stop_requested()) return tasks::Stopped();
      sums.Add(bytes);
      return absl::OkStatus();
    };
    const auto write = [&](std::string_view bytes) -> absl::Status {
      if (progress.stop().stop_requested()) return tasks::Stopped();
      const auto size = static_cast<int64_t>(bytes.size());
      RETURN_IF_ERROR(file.WriteAt(std::exchange(at, at + size), bytes));
      progress.Add(size);
      return absl::OkStatus();
    };
    const bool is_in_order = place_->is_in_order();
    const auto frame = [&] { return plan_->format().FrameOf(*plan_, piece, sums.crc()); };
    if (is_in_order) {
      RETURN_IF_ERROR(PassOn(piece, buffer, add));
      ASSIGN_OR_RETURN(const output::OutputFormat::Frame around, frame());
      RETURN_IF_ERROR(file.WriteAt(piece.place.at, around.before));
      RETURN_IF_ERROR(PassOn(piece, buffer, write));
      RETURN_IF_ERROR(file.WriteAt(at, around.after));
    } else {
      const auto add_and_write = [&](std::string_view bytes) -> absl::Status {
        sums.Add(bytes);
        return write(bytes);
      };
      RETURN_IF_ERROR(PassOn(piece, buffer, add_and_write));
      ASSIGN_OR_RETURN(const output::OutputFormat::Frame around, frame());
      RETURN_IF_ERROR(file.WriteAt(piece.place.at, around.before));
      RETURN_IF_ERROR(file.WriteAt(at, around.after));
    }
    return file.Note(index, sums);
  }

  template <typename Pass>
  absl::Status PassOn(const output::OutputPlan::OutputPiece& piece, std::string& buffer, const Pass& pass_on) {
    if (piece.tensor < 0) return pass_on(items_[piece.item].bytes);
    return piece.payload_bytes > 0 ? PassOnBox(piece, buffer, pass_on) : absl::OkStatus();
  }

  // Passes on the elements of a box of this rank's fragment, row-major: in place, or gathered in the buffer.
  template <typename Pass>
  absl::Status PassOnBox(const output::OutputPlan::OutputPiece& piece, std::string& buffer, const Pass& pass_on) {
    const auto tensor = static_cast<size_t>(piece.tensor);
    const ConstTensorView& from = entries_[tensor].from;
    const live::Placement& placement = placed_[tensor];
    const int64_t element = SizeOf(from.dtype);
    const absl::Span<const int64_t> offset = plan_->offset(piece);
    const absl::Span<const int64_t> size = plan_->size(piece);
    const catalog::StoredBox box{{offset.begin(), offset.end()}, {size.begin(), size.end()}, 0};
    for (const catalog::StoredBox& part : catalog::CutBox(box, element, kStripe)) {
      const live::InFragment at = live::At(
          placement.layout, live::LocalOffset(placement.layout, placement.position, part.offset), from.strides);
      const char* const data = static_cast<const char*>(from.data) + at.elements * element;
      const StridedCopy copy =
          live::FragmentToBox(part.size, std::vector<int64_t>(part.size.size(), 0), element, at.strides);
      const auto bytes = static_cast<size_t>(copy.bytes());
      absl::Status passed;
      if (copy.contiguous()) {
        passed = pass_on({data + copy.from_offset(), bytes});
      } else {
        buffer.resize(bytes);
        copy.Run(data, buffer.data());
        passed = pass_on(buffer);
      }
      if (!passed.ok()) return passed;
    }
    return absl::OkStatus();
  }

  const std::string& path_;
  const absl::Span<const SaveEntry> entries_;
  const absl::Span<const SaveItem> items_;
  Communicator& communicator_;
  const SaveOptions& options_;
  int64_t coordinator_ = 0;  // the rank that begins and commits
  live::Placements placements_{communicator_};
  std::vector<live::Placement> placed_;  // of the entries
  std::vector<Signature::Field> fields_;
  std::optional<Catalog> catalog_;
  std::optional<output::OutputPlan> plan_;
  std::optional<int32_t> own_file_;
  std::string job_;
  std::unique_ptr<live::SavePlace> place_;
  bool has_agreed_ = true;  // every rank has ended what came before the last agreement
  SaveSummary summary_;
};

}  // namespace

absl::StatusOr<SaveSummary> Save(const std::string& path, absl::Span<const SaveEntry> entries,
                                 absl::Span<const SaveItem> items, Communicator& communicator,
                                 const SaveOptions& options) {
  return status::NoThrow("saving a checkpoint",
                         [&] { return Saving(path, entries, items, communicator, options).Run(); });
}

}  // namespace reshard
