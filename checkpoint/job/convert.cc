#include "reshard/checkpoint/convert.h"

#include <libdeflate.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "absl/strings/cord.h"
#include "absl/strings/str_cat.h"
#include "checkpoint/dcp/tensor_frame.h"
#include "checkpoint/io/files.h"
#include "checkpoint/io/remove_tree.h"
#include "checkpoint/io/show.h"
#include "checkpoint/io/staged_directory.h"
#include "checkpoint/io/system.h"
#include "checkpoint/job/boxes.h"
#include "checkpoint/job/compare.h"
#include "checkpoint/job/hash.h"
#include "checkpoint/job/journal.h"
#include "checkpoint/job/output_plan.h"
#include "checkpoint/job/sidecar.h"
#include "checkpoint/job/source.h"
#include "checkpoint/job/workers.h"
#include "reshard/layout/text.h"

namespace reshard {
namespace {

constexpr absl::string_view kKindUrl = "reshard/checkpoint-error";

absl::Status WithKind(absl::Status status, CheckpointError kind) {
  if (!status.ok()) status.SetPayload(kKindUrl, absl::Cord(absl::StrCat(static_cast<int>(kind))));
  return status;
}

// Of the system's errors only a full disk looks like something else.
absl::Status FromSystem(absl::Status status) { return WithKind(std::move(status), CheckpointError::kSystem); }

// How a conversion uses its memory.
struct Buffers {
  int threads = 1;
  int64_t stripe = 0;  // bytes that a thread puts together at a time
  int64_t total = 0;   // with everything else that is in memory
};

// A thread has one stripe that it fills and one that it puts there from, and what reading takes (ReadBox, Source).
constexpr int64_t kStripesPerThread = 2;
constexpr int64_t kReadingPerThread = (int64_t{4} << 20) + (int64_t{256} << 10);
constexpr int64_t kLargestStripe = int64_t{1} << 20;
constexpr int64_t kSmallestStripe = int64_t{64} << 10;
// Metadata as it is written: a pickle and a sidecar.
constexpr int64_t kBytesPerPiece = 512;

int64_t CatalogBytes(const Catalog& catalog) {
  int64_t bytes = 0;
  for (const Catalog::Tensor& tensor : catalog.tensors()) {
    bytes += static_cast<int64_t>(sizeof(tensor) + tensor.name.size());
    bytes += tensor.num_chunks * static_cast<int64_t>(sizeof(Catalog::Place) + 16 * tensor.shape.size());
  }
  return bytes;
}

absl::StatusOr<Buffers> PlanBuffers(const Catalog& catalog, const OutputPlan& plan, const ConvertOptions& options) {
  const int64_t fixed =
      2 * CatalogBytes(catalog) + plan.MemoryBytes() + kBytesPerPiece * static_cast<int64_t>(plan.pieces().size());
  const auto of_thread = [](int64_t stripe) { return kStripesPerThread * stripe + kReadingPerThread; };
  Buffers buffers;
  const int64_t least = fixed + of_thread(kSmallestStripe);
  if (least > options.memory_limit) {
    return WithKind(
        absl::ResourceExhaustedError(absl::StrCat("this needs ", least, " bytes of memory, of which ", fixed,
                                                  " for metadata; the limit is ", options.memory_limit)),
        CheckpointError::kMemoryLimit);
  }
  const int64_t room = options.memory_limit - fixed;
  buffers.threads =
      static_cast<int>(std::clamp<int64_t>(room / of_thread(kSmallestStripe), 1, ThreadCount(options.threads)));
  buffers.stripe = std::min(kLargestStripe, (room / buffers.threads - kReadingPerThread) / kStripesPerThread);
  buffers.total = fixed + buffers.threads * of_thread(buffers.stripe);
  return buffers;
}

std::string ParentOf(std::string path) {
  while (path.size() > 1 && path.back() == '/') path.pop_back();
  const size_t slash = path.rfind('/');
  if (slash == std::string::npos) return ".";
  return slash == 0 ? "/" : path.substr(0, slash);
}

absl::StatusOr<int64_t> FreeBytes(const std::string& directory) {
  struct statvfs facts;
  if (CurrentSystem().StatVfs(directory.c_str(), &facts) != 0) return SystemError(errno, "look at", directory);
  return static_cast<int64_t>(facts.f_bavail) * static_cast<int64_t>(facts.f_frsize);
}

// Everything that decides what is written where, so that leavings of another job are not taken for this one's.
std::string JobName(const Catalog& source, const OutputPlan& plan) {
  ContentHasher hasher;
  const auto number = [&](int64_t value) { hasher.Add({reinterpret_cast<const char*>(&value), sizeof(value)}); };
  const auto text = [&](std::string_view value) {
    number(static_cast<int64_t>(value.size()));
    hasher.Add(value);
  };
  text(source.root());
  for (const Catalog::File& file : source.files()) {
    text(file.path);
    number(file.bytes);
  }
  for (const Catalog::Tensor& tensor : source.tensors()) {
    text(tensor.name);
    text(tensor.stored_dtype);
    for (int64_t i = 0; i < tensor.num_chunks; ++i) {
      const Catalog::Chunk chunk = source.chunk(tensor, i);
      for (const int64_t value : chunk.offset) number(value);
      for (const int64_t value : chunk.size) number(value);
      number(chunk.place.file);
      number(chunk.place.at);
    }
  }
  for (const OutputPlan::File& file : plan.files()) {
    text(file.name);
    number(file.bytes);
    text(file.head);
  }
  for (const OutputPlan::Piece& piece : plan.pieces()) {
    number(piece.tensor);
    number(piece.item);
    for (const int64_t value : plan.offset(piece)) number(value);
    for (const int64_t value : plan.size(piece)) number(value);
    number(piece.place.file);
    number(piece.payload_at);
  }
  for (const std::string& layout : plan.layouts()) text(layout);
  return hasher.Finish().ToText();
}

// A conversion that has been planned.
class Conversion {
 public:
  static absl::StatusOr<std::unique_ptr<Conversion>> Make(const std::string& source, const std::string& destination,
                                                          const std::optional<LayoutRules>& rules,
                                                          const ConvertOptions& options) {
    auto made = std::unique_ptr<Conversion>(new Conversion(destination, rules, options));
    absl::StatusOr<std::unique_ptr<Source>> opened = Source::Open(source, {options.limits, options.ignore_sidecar});
    if (!opened.ok()) return opened.status();
    made->source_ = *std::move(opened);
    absl::StatusOr<OutputPlan> plan = OutputPlan::Make(made->catalog(), options.format, rules, options.file_bytes);
    if (!plan.ok()) return plan.status();
    made->plan_ = std::make_unique<OutputPlan>(*std::move(plan));
    const absl::StatusOr<Buffers> buffers = PlanBuffers(made->catalog(), *made->plan_, options);
    if (!buffers.ok()) return buffers.status();
    made->buffers_ = *buffers;
    absl::Status summed = made->Summarize();
    if (!summed.ok()) return summed;
    return made;
  }

  ConvertSummary& summary() { return summary_; }

  absl::Status Write() {
    const auto start = std::chrono::steady_clock::now();
    absl::StatusOr<std::unique_ptr<StagedDirectory>> stage =
        StagedDirectory::Begin(destination_, job_, {options_.overwrite, options_.resume, /*worker=*/0});
    if (!stage.ok()) return FromSystem(stage.status());
    if ((*stage)->was_committed()) {
      summary_.was_complete = true;
      return FromSystem((*stage)->Commit());
    }
    absl::Status status = Fill(**stage);
    if (status.ok()) status = FromSystem((*stage)->Commit());
    if (!status.ok() && KindOf(status) != CheckpointError::kSystem) {
      // Doing the same again would end the same way. An error of removing is not the one to report.
      (*stage)->Abandon().IgnoreError();
    }
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
    summary_.seconds = seconds.count();
    summary_.read_bytes = source_->bytes_read();
    return status;
  }

  // True when what is at the destination is the result of this job.
  bool IsComplete() const {
    const absl::StatusOr<std::unique_ptr<ReadFile>> file = ReadFile::Open(JoinPath(destination_, kSidecarName), false);
    if (!file.ok()) return false;
    const absl::StatusOr<std::string> text = (*file)->ReadAll(options_.limits.metadata_bytes);
    if (!text.ok()) return false;
    const absl::StatusOr<Sidecar> sidecar = Sidecar::Parse(*text);
    return sidecar.ok() && sidecar->job == job_;
  }

  // For a result that is in its place: removes what an interrupted run may have left beside it.
  absl::StatusOr<ConvertSummary> TidyUp() {
    summary_.was_complete = true;
    const absl::StatusOr<std::unique_ptr<StagedDirectory>> stage =
        StagedDirectory::Begin(destination_, job_, {/*replace=*/false, /*resume=*/true, /*worker=*/0});
    absl::Status tidied;
    if (stage.ok()) {
      tidied = (*stage)->was_committed() ? (*stage)->Commit() : (*stage)->Abandon();
    } else if (!absl::IsAlreadyExists(stage.status())) {
      tidied = stage.status();
    }
    if (!tidied.ok()) return FromSystem(tidied);
    return summary_;
  }

 private:
  Conversion(std::string destination, const std::optional<LayoutRules>& rules, const ConvertOptions& options)
      : destination_(std::move(destination)), rules_(rules), options_(options) {}

  const Catalog& catalog() const { return source_->catalog(); }

  absl::Status Summarize() {
    job_ = JobName(catalog(), *plan_);
    for (const OutputPlan::Piece& piece : plan_->pieces()) summary_.byte_items += piece.tensor < 0 ? 1 : 0;
    int64_t last = -1;
    for (const OutputPlan::Piece& piece : plan_->pieces()) {
      if (piece.tensor >= 0 && piece.tensor != last) ++summary_.tensors;
      last = piece.tensor;
    }
    summary_.pieces = static_cast<int64_t>(plan_->pieces().size());
    summary_.bytes = plan_->bytes();
    summary_.files = static_cast<int64_t>(plan_->files().size());
    summary_.disk_bytes = plan_->disk_bytes();
    summary_.memory_bytes = buffers_.total;
    summary_.left_out = plan_->left_out();
    const absl::StatusOr<int64_t> free = FreeBytes(ParentOf(destination_));
    if (!free.ok()) return FromSystem(free.status());
    summary_.free_bytes = *free;
    return absl::OkStatus();
  }

  absl::Status Fill(StagedDirectory& stage) {
    absl::StatusOr<std::unique_ptr<Journal>> journal = Journal::Open(JoinPath(stage.stage(), "journal-0"), job_);
    if (!journal.ok()) return FromSystem(journal.status());
    hashes_.assign(plan_->pieces().size(), ContentHash());
    std::vector<char> kept(plan_->pieces().size(), 0);
    absl::Status status = OpenFiles(stage);
    if (!status.ok()) return FromSystem(std::move(status));
    ProgressMeter meter(summary_.bytes, options_.progress);
    status = Recheck(stage, **journal, &kept, &meter);
    if (!status.ok()) return FromSystem(std::move(status));

    std::vector<std::string> buffers(static_cast<size_t>(buffers_.threads));
    status = RunTasks(summary_.pieces, buffers_.threads, [&](int64_t i, int thread) -> absl::Status {
      if (kept[static_cast<size_t>(i)] != 0) return absl::OkStatus();
      uint32_t crc = 0;
      absl::Status written = WritePiece(static_cast<size_t>(i), buffers[static_cast<size_t>(thread)], &crc, &meter);
      if (!written.ok()) return written;
      const ContentHash& hash = hashes_[static_cast<size_t>(i)];
      return FromSystem((*journal)->Add(FinishedPiece{static_cast<uint64_t>(i), hash.low, hash.high, crc}));
    });
    if (!status.ok()) return status;
    status = RunTasks(summary_.files, buffers_.threads, [&](int64_t i, int) -> absl::Status {
      WriteFile& file = *files_[static_cast<size_t>(i)];
      absl::Status synced = file.Sync();
      if (synced.ok()) synced = file.Close();
      return FromSystem(std::move(synced));
    });
    if (!status.ok()) return status;
    status = WriteHeaders(stage);
    if (!status.ok()) return status;
    meter.Finish();
    return options_.verify ? Verify(stage) : absl::OkStatus();
  }

  absl::Status OpenFiles(const StagedDirectory& stage) {
    for (const OutputPlan::File& file : plan_->files()) {
      const std::string path = JoinPath(stage.data(), file.name);
      absl::StatusOr<std::unique_ptr<WriteFile>> opened = WriteFile::Create(path, file.bytes);
      if (absl::IsAlreadyExists(opened.status())) opened = WriteFile::Reopen(path);
      if (!opened.ok()) return opened.status();
      files_.push_back(*std::move(opened));
      const absl::Status headed = files_.back()->WriteAt(0, file.head);
      if (!headed.ok()) return headed;
    }
    return absl::OkStatus();
  }

  // Pieces that an interrupted run finished are kept when they are what it says they are.
  absl::Status Recheck(const StagedDirectory& stage, const Journal& journal, std::vector<char>* kept,
                       ProgressMeter* meter) {
    const std::vector<FinishedPiece>& records = journal.found();
    std::vector<std::unique_ptr<ReadFile>> files;
    if (!records.empty()) {
      for (const OutputPlan::File& file : plan_->files()) {
        absl::StatusOr<std::unique_ptr<ReadFile>> opened = ReadFile::Open(JoinPath(stage.data(), file.name));
        if (!opened.ok()) return opened.status();
        files.push_back(*std::move(opened));
      }
    }
    std::atomic<int64_t> bytes{0};
    std::vector<std::string> buffers(static_cast<size_t>(buffers_.threads));
    const absl::Status checked =
        RunTasks(static_cast<int64_t>(records.size()), buffers_.threads, [&](int64_t r, int thread) -> absl::Status {
          const FinishedPiece& record = records[static_cast<size_t>(r)];
          if (record.piece >= plan_->pieces().size()) return absl::OkStatus();
          const OutputPlan::Piece& piece = plan_->pieces()[record.piece];
          std::string& buffer = buffers[static_cast<size_t>(thread)];
          ContentHasher hasher;
          for (int64_t at = 0; at < piece.payload_bytes; at += buffers_.stripe) {
            buffer.resize(static_cast<size_t>(std::min(buffers_.stripe, piece.payload_bytes - at)));
            const absl::Status read =
                files[static_cast<size_t>(piece.place.file)]->ReadAt(piece.payload_at + at, absl::MakeSpan(buffer));
            if (absl::IsDataLoss(read)) return absl::OkStatus();  // a file that was cut off: written again
            if (!read.ok()) return read;
            hasher.Add(buffer);
          }
          const ContentHash hash = hasher.Finish();
          if (hash != ContentHash{record.hash_low, record.hash_high}) return absl::OkStatus();
          hashes_[record.piece] = hash;
          (*kept)[record.piece] = 1;
          bytes += piece.payload_bytes;
          meter->Add(piece.payload_bytes);
          // The frame is small, and whether it was written is not known.
          return WriteFrame(piece, record.crc);
        });
    summary_.kept_bytes = bytes;
    return checked;
  }

  absl::Status WriteFrame(const OutputPlan::Piece& piece, uint32_t crc) {
    if (options_.format != CheckpointFormat::kDcp || piece.tensor < 0) return absl::OkStatus();
    const Catalog::Tensor& tensor = catalog().tensors()[static_cast<size_t>(piece.tensor)];
    const absl::StatusOr<StoredArchive> frame = TensorFrame(*tensor.dtype, plan_->size(piece));
    if (!frame.ok()) return frame.status();
    WriteFile& file = *files_[static_cast<size_t>(piece.place.file)];
    absl::Status written = file.WriteAt(piece.place.at, frame->Before(crc));
    if (written.ok()) written = file.WriteAt(piece.payload_at + piece.payload_bytes, frame->After(crc));
    return FromSystem(std::move(written));
  }

  absl::Status WritePiece(size_t index, std::string& buffer, uint32_t* crc, ProgressMeter* meter) {
    const OutputPlan::Piece& piece = plan_->pieces()[index];
    WriteFile& file = *files_[static_cast<size_t>(piece.place.file)];
    ContentHasher hasher;
    int64_t done = 0;
    const auto pass_on = [&]() -> absl::Status {
      *crc = libdeflate_crc32(*crc, buffer.data(), buffer.size());
      hasher.Add(buffer);
      absl::Status written = file.WriteAt(piece.payload_at + done, buffer);
      done += static_cast<int64_t>(buffer.size());
      meter->Add(static_cast<int64_t>(buffer.size()));
      return FromSystem(std::move(written));
    };
    if (piece.tensor < 0) {
      while (done < piece.payload_bytes) {
        buffer.resize(static_cast<size_t>(std::min(buffers_.stripe, piece.payload_bytes - done)));
        absl::Status status = source_->ReadItem(piece.item, done, absl::MakeSpan(buffer));
        if (status.ok()) status = pass_on();
        if (!status.ok()) return status;
      }
    } else if (piece.payload_bytes > 0) {
      const int64_t element = SizeOf(*catalog().tensors()[static_cast<size_t>(piece.tensor)].dtype);
      const absl::Span<const int64_t> offset = plan_->offset(piece);
      const absl::Span<const int64_t> size = plan_->size(piece);
      const StoredBox box{{offset.begin(), offset.end()}, {size.begin(), size.end()}, 0};
      for (const StoredBox& stripe : CutBox(box, element, buffers_.stripe)) {
        int64_t bytes = element;
        for (const int64_t n : stripe.size) bytes *= n;
        buffer.resize(static_cast<size_t>(bytes));
        absl::Status status = source_->Read(piece.tensor, stripe.offset, stripe.size, absl::MakeSpan(buffer));
        if (status.ok()) status = pass_on();
        if (!status.ok()) return status;
      }
    }
    hashes_[index] = hasher.Finish();
    return WriteFrame(piece, *crc);
  }

  absl::Status WriteHeaders(const StagedDirectory& stage) {
    absl::StatusOr<std::vector<std::pair<std::string, std::string>>> headers = plan_->Headers(job_);
    if (!headers.ok()) return headers.status();
    Sidecar sidecar;
    sidecar.job = job_;
    if (rules_ && options_.format == CheckpointFormat::kDcp) sidecar.mesh = ToString(*rules_->mesh());
    for (const auto& [name, bytes] : *headers) sidecar.headers.emplace_back(name, ContentHash::Of(bytes));
    for (const OutputPlan::File& file : plan_->files()) {
      if (!file.head.empty()) sidecar.headers.emplace_back(file.name, ContentHash::Of(file.head));
    }
    std::vector<char> written(catalog().tensors().size(), 0);
    for (size_t i = 0; i < plan_->pieces().size(); ++i) {
      const OutputPlan::Piece& piece = plan_->pieces()[i];
      const std::string& file = plan_->files()[static_cast<size_t>(piece.place.file)].name;
      sidecar.chunks.push_back({file, piece.place.at, piece.place.length, hashes_[i]});
      if (piece.tensor >= 0) written[static_cast<size_t>(piece.tensor)] = 1;
    }
    for (size_t t = 0; t < written.size(); ++t) {
      if (written[t] == 0) continue;
      sidecar.tensors.push_back({std::string(catalog().tensors()[t].name), plan_->layouts()[t]});
    }
    headers->emplace_back(kSidecarName, sidecar.ToJson());
    for (const auto& [name, bytes] : *headers) {
      const std::string path = JoinPath(stage.data(), name);
      absl::Status status = RemoveTree(path);  // of an interrupted run
      if (!status.ok()) return FromSystem(std::move(status));
      absl::StatusOr<std::unique_ptr<WriteFile>> file = WriteFile::Create(path);
      if (!file.ok()) return FromSystem(file.status());
      status = (*file)->WriteAt(0, bytes);
      if (status.ok()) status = (*file)->Sync();
      if (status.ok()) status = (*file)->Close();
      if (!status.ok()) return FromSystem(std::move(status));
    }
    return absl::OkStatus();
  }

  absl::Status Verify(const StagedDirectory& stage) {
    const absl::StatusOr<std::unique_ptr<Source>> result = Source::Open(stage.data(), {options_.limits, false});
    if (!result.ok()) return result.status();
    const absl::StatusOr<VerifyReport> report = CompareSources(*source_, **result, buffers_.threads, {});
    if (!report.ok()) return report.status();
    const size_t expected = summary_.left_out.size();
    if (report->differences.size() == expected) return absl::OkStatus();
    const VerifyReport::Difference& first = report->differences.front();
    return absl::InternalError(absl::StrCat("the result differs from the source in ",
                                            report->differences.size() - expected, " entries, as ", Shown(first.name),
                                            ": ", first.what));
  }

  const std::string destination_;
  const std::optional<LayoutRules>& rules_;
  const ConvertOptions& options_;
  std::unique_ptr<Source> source_;
  std::unique_ptr<OutputPlan> plan_;
  Buffers buffers_;
  std::string job_;
  ConvertSummary summary_;
  std::vector<std::unique_ptr<WriteFile>> files_;
  std::vector<ContentHash> hashes_;  // of the pieces
};

}  // namespace

CheckpointError KindOf(const absl::Status& status) {
  if (const absl::optional<absl::Cord> kind = status.GetPayload(kKindUrl)) {
    int value = 0;
    if (absl::SimpleAtoi(std::string(*kind), &value)) return static_cast<CheckpointError>(value);
  }
  switch (status.code()) {
    case absl::StatusCode::kNotFound:
    case absl::StatusCode::kUnavailable:
    case absl::StatusCode::kAlreadyExists:
      return CheckpointError::kSystem;
    case absl::StatusCode::kInternal:
    case absl::StatusCode::kUnknown:
      return CheckpointError::kInternal;
    default:
      return CheckpointError::kInput;
  }
}

absl::StatusOr<ConvertSummary> PlanConversion(const std::string& source, const std::string& destination,
                                              const std::optional<LayoutRules>& rules, const ConvertOptions& options) {
  absl::StatusOr<std::unique_ptr<Conversion>> conversion = Conversion::Make(source, destination, rules, options);
  if (!conversion.ok()) return conversion.status();
  return (*conversion)->summary();
}

absl::StatusOr<ConvertSummary> Convert(const std::string& source, const std::string& destination,
                                       const std::optional<LayoutRules>& rules, const ConvertOptions& options) {
  absl::StatusOr<std::unique_ptr<Conversion>> made = Conversion::Make(source, destination, rules, options);
  if (!made.ok()) return made.status();
  Conversion& conversion = **made;
  if (options.resume && conversion.IsComplete()) return conversion.TidyUp();
  const ConvertSummary& summary = conversion.summary();
  if (!options.resume && summary.disk_bytes > summary.free_bytes) {
    return FromSystem(absl::ResourceExhaustedError(
        absl::StrCat("the result has ", summary.disk_bytes, " bytes, the disk has ", summary.free_bytes, " left")));
  }
  const absl::Status written = conversion.Write();
  if (!written.ok()) return written;
  return conversion.summary();
}

}  // namespace reshard
