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
#include "checkpoint/formats/torch_save/tensor_frame.h"
#include "checkpoint/formats/torch_save/torch_dtype.h"
#include "checkpoint/hash/content_sums.h"
#include "checkpoint/io/files.h"
#include "checkpoint/io/show.h"
#include "checkpoint/io/staged_directory.h"
#include "checkpoint/live/fragment.h"
#include "checkpoint/live/placement.h"
#include "checkpoint/live/progress.h"
#include "checkpoint/output/dcp_output.h"
#include "checkpoint/output/headers.h"
#include "checkpoint/output/job_name.h"
#include "checkpoint/output/journal.h"
#include "checkpoint/output/output_format.h"
#include "checkpoint/output/output_plan.h"
#include "checkpoint/tasks/run_tasks.h"
#include "reshard/layout/text.h"
#include "status/macros.h"
#include "status/mutex.h"
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
    status = Together("begun", [&] { return IsCoordinator() ? Begin() : absl::OkStatus(); });
    if (status.ok()) status = Together("written", [&] { return WriteOwn(); });
    if (status.ok()) status = Together("saved", [&] { return IsCoordinator() ? Finish() : absl::OkStatus(); });
    if (!status.ok()) {
      // The first error is the news.
      if (stage_ != nullptr && !stage_->was_committed()) stage_->Abandon().IgnoreError();
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
    return communicator_.Agree(own, Signature({{"step of saving", std::string(what)}}));
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
    job_ = output::JobName(*catalog_, *plan_);
    ASSIGN_OR_RETURN(std::string stage, io::StagedDirectory::StageOf(path_, job_));
    stage_path_ = std::move(stage);
    return absl::OkStatus();
  }

  static absl::Status Twice(const std::string& name) {
    return absl::InvalidArgumentError(absl::StrCat("the name ", io::Shown(name), " appears twice"));
  }

  static std::vector<Catalog::PathStep> PathOf(const std::string& name, const std::vector<Catalog::PathStep>& path) {
    return path.empty() ? std::vector<Catalog::PathStep>{name} : path;
  }

  absl::Status Begin() {
    ASSIGN_OR_RETURN(std::unique_ptr<io::StagedDirectory> stage,
                     io::StagedDirectory::Begin(path_, job_, {options_.overwrite, /*resume=*/false}));
    stage_ = std::move(stage);
    return absl::OkStatus();
  }

  std::string JournalOf(size_t file) const { return io::JoinPath(stage_path_, absl::StrCat("journal-", file)); }

  absl::Status WriteOwn() {
    const std::optional<int32_t> own = OwnFile();
    std::vector<size_t> pieces;
    for (size_t i = 0; own && i < plan_->pieces().size(); ++i) {
      if (plan_->pieces()[i].place.file != *own) continue;
      pieces.push_back(i);
      summary_.written_bytes += plan_->pieces()[i].payload_bytes;
    }
    live::Progress progress(summary_.written_bytes, summary_.written_bytes, options_.progress);
    RETURN_IF_ERROR(progress.Begin());
    if (own) RETURN_IF_ERROR(progress.During([&] { return WriteFile(*own, pieces, progress); }));
    return progress.End();
  }

  // Nothing where all that this rank holds is stored by others.
  std::optional<int32_t> OwnFile() const {
    const std::string name = absl::StrCat("__", communicator_.rank(), "_0.distcp");
    const auto found = std::find_if(plan_->files().begin(), plan_->files().end(),
                                    [&](const output::OutputPlan::File& file) { return file.name == name; });
    if (found == plan_->files().end()) return std::nullopt;
    return static_cast<int32_t>(found - plan_->files().begin());
  }

  // The file of this rank's pieces, and a journal of their hashes.
  absl::Status WriteFile(int32_t own, const std::vector<size_t>& pieces, live::Progress& progress) {
    const output::OutputPlan::File& planned = plan_->files()[own];
    const absl::StatusOr<std::unique_ptr<io::WriteFile>> file =
        io::WriteFile::Create(io::JoinPath(io::JoinPath(stage_path_, "data"), planned.name), planned.bytes);
    if (!file.ok()) {
      if (!absl::IsNotFound(file.status())) return file.status();
      return absl::NotFoundError(absl::StrCat(file.status().message(), "; do all ranks see the same directory?"));
    }
    ASSIGN_OR_RETURN(std::unique_ptr<output::Journal> journal,
                     output::Journal::Open(JournalOf(static_cast<size_t>(own)), job_));
    const int threads = tasks::ThreadCount(options_.threads, live::kMostThreads);
    std::vector<std::string> buffers(static_cast<size_t>(threads));
    absl::Status status = tasks::RunTasks(
        static_cast<int64_t>(pieces.size()), threads,
        [&](int64_t p, int thread) -> absl::Status {
          return WritePiece(pieces[p], **file, *journal, buffers[thread], progress);
        },
        progress.stop());
    if (status.ok()) status = (*file)->Sync();
    if (status.ok()) status = (*file)->Close();
    if (status.ok()) status = journal->Sync();
    return status;
  }

  absl::Status WritePiece(size_t index, io::WriteFile& file, output::Journal& journal, std::string& buffer,
                          live::Progress& progress) {
    const output::OutputPlan::OutputPiece& piece = plan_->pieces()[index];
    hash::ContentSums sums;
    int64_t at = piece.payload_at;
    const auto pass_on = [&](std::string_view bytes) -> absl::Status {
      if (progress.stop().stop_requested()) return tasks::Stopped();
      sums.Add(bytes);
      const auto size = static_cast<int64_t>(bytes.size());
      {
        // Writes to one file take turns in the kernel, where those that wait keep their cores busy.
        const status::MutexLock lock(writing_);
        RETURN_IF_ERROR(file.WriteAt(std::exchange(at, at + size), bytes));
      }
      progress.Add(size);
      return absl::OkStatus();
    };
    absl::Status status;
    if (piece.tensor < 0) {
      status = pass_on(items_[piece.item].bytes);
    } else {
      if (piece.payload_bytes > 0) status = PassOnBox(piece, buffer, pass_on);
      const absl::StatusOr<zip::StoredArchive> frame =
          torch_save::TensorFrame(entries_[piece.tensor].dtype, plan_->size(piece));
      if (status.ok()) status = frame.status();
      if (status.ok()) status = file.WriteAt(piece.place.at, frame->Before(sums.crc()));
      if (status.ok()) status = file.WriteAt(at, frame->After(sums.crc()));
    }
    if (!status.ok()) return status;
    const hash::ContentHash hash = sums.hash();
    return journal.Add(output::FinishedPiece{static_cast<uint64_t>(index), hash.low, hash.high, sums.crc()});
  }

  // The elements of a box of this rank's fragment, row-major: as they lie there, or put together in the buffer.
  template <typename PassOn>
  absl::Status PassOnBox(const output::OutputPlan::OutputPiece& piece, std::string& buffer, const PassOn& pass_on) {
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

  absl::Status Finish() {
    std::vector<hash::ContentHash> hashes(plan_->pieces().size());
    std::vector<char> known(hashes.size(), 0);
    for (size_t f = 0; f < plan_->files().size(); ++f) {
      ASSIGN_OR_RETURN(const std::vector<output::FinishedPiece> records, output::Journal::Look(JournalOf(f), job_));
      for (const output::FinishedPiece& record : records) {
        if (record.piece >= hashes.size()) continue;
        hashes[record.piece] = {record.hash_low, record.hash_high};
        known[record.piece] = 1;
      }
    }
    const auto missing = std::count(known.begin(), known.end(), 0);
    if (missing > 0) {
      return absl::UnavailableError(absl::StrCat("of ", known.size(), " pieces ", missing,
                                                 " cannot be seen by this rank; do all ranks see the same directory?"));
    }
    RETURN_IF_ERROR(output::WriteHeaders(*catalog_, *plan_, job_, stage_->data(), hashes));
    return stage_->Commit();
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
  std::string job_;
  std::string stage_path_;
  std::unique_ptr<io::StagedDirectory> stage_;  // on the coordinator
  status::Mutex writing_;                       // to this rank's file
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
