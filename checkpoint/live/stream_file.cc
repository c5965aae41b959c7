#include "checkpoint/live/stream_file.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "checkpoint/formats/torch_save/tensor_frame.h"
#include "checkpoint/io/files.h"
#include "checkpoint/io/show.h"
#include "checkpoint/live/save_place.h"
#include "checkpoint/output/object_sink.h"
#include "checkpoint/output/output_plan.h"
#include "checkpoint/stores/registry.h"
#include "checkpoint/stores/url.h"
#include "reshard/layout/checked.h"
#include "status/macros.h"

namespace reshard::live {
namespace {

constexpr size_t kBlock = size_t{1} << 20;  // bytes that are hashed and written while they are in the cache

int64_t Aligned(int64_t at) { return CeilDiv(at, zip::StoredArchive::kAlignment) * zip::StoredArchive::kAlignment; }

std::optional<int64_t> BytesOf(DType dtype, absl::Span<const int64_t> shape) {
  std::optional<int64_t> bytes = SizeOf(dtype);
  for (const int64_t size : shape) bytes = size < 0 || !bytes ? std::nullopt : CheckedMul(*bytes, size);
  return bytes;
}

absl::Status OutOfTurn(std::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat("a stream: ", absl::string_view(what.data(), what.size())));
}

}  // namespace

class StreamFile::Target {
 public:
  virtual ~Target() = default;
  virtual absl::Status WriteAt(int64_t at, std::string_view bytes) = 0;
  virtual absl::Status Finish(bool sync) = 0;
};

namespace {

class FileTarget final : public StreamFile::Target {
 public:
  explicit FileTarget(std::unique_ptr<io::WriteFile> file) : file_(std::move(file)) {}
  absl::Status WriteAt(int64_t at, std::string_view bytes) override { return file_->WriteAt(at, bytes); }
  absl::Status Finish(bool sync) override {
    if (sync) RETURN_IF_ERROR(file_->Sync());
    return file_->Close();
  }

 private:
  const std::unique_ptr<io::WriteFile> file_;
};

class ObjectTarget final : public StreamFile::Target {
 public:
  static absl::StatusOr<std::unique_ptr<ObjectTarget>> Begin(const std::string& url,
                                                             absl::Span<const int64_t> lengths) {
    std::vector<Catalog::FileRange> places;
    output::OutputPlan::File planned;
    for (const int64_t length : lengths) {
      const int64_t at = Aligned(planned.bytes);
      const std::optional<int64_t> end = length < 0 ? std::nullopt : CheckedAdd(at, length);
      if (!end) return OutOfTurn(absl::StrCat("of ", length, " bytes"));
      places.push_back({0, at, length});
      planned.bytes = *end;
    }
    ASSIGN_OR_RETURN(const stores::Destination at, stores::DestinationAt(url));
    ASSIGN_OR_RETURN(std::unique_ptr<ObjectUpload> upload, at.store->Begin(at.url, planned.bytes, kUploadMemory));
    ASSIGN_OR_RETURN(std::unique_ptr<output::ObjectSink> sink,
                     output::ObjectSink::Begin(planned, 0, std::move(places), std::move(upload)));
    return std::make_unique<ObjectTarget>(std::move(sink));
  }
  explicit ObjectTarget(std::unique_ptr<output::ObjectSink> sink) : sink_(std::move(sink)) {}
  absl::Status WriteAt(int64_t at, std::string_view bytes) override { return sink_->WriteAt(0, at, bytes); }
  absl::Status Finish(bool) override { return sink_->Finish().status(); }

 private:
  const std::unique_ptr<output::ObjectSink> sink_;
};

}  // namespace

StreamFile::StreamFile(std::unique_ptr<Target> target) : target_(std::move(target)) {}
StreamFile::~StreamFile() = default;

absl::StatusOr<std::unique_ptr<StreamFile>> StreamFile::Create(const std::string& path,
                                                               absl::Span<const int64_t> lengths) {
  std::unique_ptr<Target> target;
  if (stores::IsUrl(path)) {
    ASSIGN_OR_RETURN(target, ObjectTarget::Begin(path, lengths));
  } else {
    ASSIGN_OR_RETURN(std::unique_ptr<io::WriteFile> file, io::WriteFile::Create(path));
    target = std::make_unique<FileTarget>(std::move(file));
  }
  return std::unique_ptr<StreamFile>(new StreamFile(std::move(target)));
}

int64_t StreamFile::StreamBytes(DType dtype, absl::Span<const int64_t> shape) {
  if (!BytesOf(dtype, shape)) return -1;
  const absl::StatusOr<zip::StoredArchive> frame = torch_save::TensorFrame(dtype, shape);
  return frame.ok() ? frame->bytes() : -1;
}

absl::Status StreamFile::Begin(DType dtype, absl::Span<const int64_t> shape) {
  if (frame_) return OutOfTurn("one is begun already");
  const std::optional<int64_t> bytes = BytesOf(dtype, shape);
  if (!bytes) return OutOfTurn(absl::StrCat("a tensor of the shape ", io::Shown(shape)));
  ASSIGN_OR_RETURN(frame_, torch_save::TensorFrame(dtype, shape));
  payload_ = *bytes;
  done_ = 0;
  sums_.emplace();
  return absl::OkStatus();
}

absl::Status StreamFile::Append(std::string_view bytes) {
  if (!frame_) return OutOfTurn("none is begun");
  if (static_cast<int64_t>(bytes.size()) > payload_ - done_) {
    return OutOfTurn(absl::StrCat(bytes.size(), " bytes where ", payload_ - done_, " are left"));
  }
  while (!bytes.empty()) {
    const std::string_view block = bytes.substr(0, kBlock);
    bytes.remove_prefix(block.size());
    sums_->Add(block);
    RETURN_IF_ERROR(target_->WriteAt(end_ + frame_->large_at() + done_, block));
    done_ += static_cast<int64_t>(block.size());
  }
  return absl::OkStatus();
}

absl::StatusOr<Stream> StreamFile::End() {
  if (!frame_ || done_ != payload_) {
    return OutOfTurn(frame_ ? absl::StrCat("ends after ", done_, " bytes of ", payload_) : "none is begun");
  }
  const Stream stream{end_, frame_->bytes(), sums_->hash()};
  RETURN_IF_ERROR(target_->WriteAt(end_, frame_->Before(sums_->crc())));
  RETURN_IF_ERROR(target_->WriteAt(end_ + frame_->large_at() + payload_, frame_->After(sums_->crc())));
  end_ = Aligned(end_ + stream.length);
  frame_.reset();
  return stream;
}

absl::StatusOr<Stream> StreamFile::AddBytes(std::string_view bytes) {
  if (frame_) return OutOfTurn("one is begun already");
  const Stream stream{end_, static_cast<int64_t>(bytes.size()), hash::ContentHash::Of(bytes)};
  RETURN_IF_ERROR(target_->WriteAt(end_, bytes));
  end_ = Aligned(end_ + stream.length);
  return stream;
}

absl::Status StreamFile::Finish(bool sync) {
  if (frame_) return OutOfTurn("one is begun and not ended");
  return target_->Finish(sync);
}

}  // namespace reshard::live
