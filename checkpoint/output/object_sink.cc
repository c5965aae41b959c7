#include "checkpoint/output/object_sink.h"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"
#include "status/macros.h"

namespace reshard::output {
namespace {

// Fewer bytes wait for more: a call costs the same for few as for many.
constexpr int64_t kSentAtOnce = int64_t{1} << 20;

}  // namespace

absl::StatusOr<std::unique_ptr<ObjectSink>> ObjectSink::Begin(const OutputPlan::File& planned, int32_t file,
                                                              std::vector<Catalog::FileRange> places,
                                                              std::unique_ptr<ObjectUpload> upload) {
  std::unique_ptr<ObjectSink> sink(new ObjectSink(planned.bytes, file, std::move(upload)));
  std::sort(places.begin(), places.end(), [](const auto& x, const auto& y) { return x.at < y.at; });
  {
    const status::MutexLock lock(sink->mutex_);
    auto at = static_cast<int64_t>(planned.head.size());
    for (const Catalog::FileRange& place : places) {
      if (place.file != file || place.at < at) return absl::InternalError("pieces of an object that overlap");
      sink->MarkThere(at, place.at);
      at = place.at + place.length;
    }
    sink->MarkThere(at, planned.bytes);
  }
  RETURN_IF_ERROR(sink->WriteAt(file, 0, planned.head));
  return sink;
}

// Marks [begin, end) as there; it was not before.
void ObjectSink::MarkThere(int64_t begin, int64_t end) {
  if (begin == end) return;
  auto after = there_.lower_bound(begin);
  if (after != there_.begin()) {
    if (const auto before = std::prev(after); before->second == begin) {
      begin = before->first;
      there_.erase(before);
    }
  }
  if (after != there_.end() && after->first == end) {
    end = after->second;
    there_.erase(after);
  }
  there_[begin] = end;
}

absl::Status ObjectSink::WriteAt(int32_t file, int64_t at, std::string_view data) {
  const auto size = static_cast<int64_t>(data.size());
  const status::MutexLock lock(mutex_);
  if (file != file_ || at < sent_ || at > bytes_ - size)
    return absl::InternalError("bytes that are not of this object");
  if (size == 0) return absl::OkStatus();
  const auto from = static_cast<size_t>(at - sent_);
  if (window_.size() < from + data.size()) window_.resize(from + data.size(), '\0');
  std::memcpy(window_.data() + from, data.data(), data.size());
  MarkThere(at, at + size);
  return Send(kSentAtOnce);
}

absl::Status ObjectSink::Send(int64_t least) {
  const auto first = there_.begin();
  if (first == there_.end() || first->first != sent_ || first->second - sent_ < least) return absl::OkStatus();
  const auto count = static_cast<size_t>(first->second - sent_);
  if (window_.size() < count) window_.resize(count, '\0');
  RETURN_IF_ERROR(upload_->Write(std::string_view(window_).substr(0, count)));
  window_.erase(0, count);
  sent_ = first->second;
  there_.erase(first);
  return absl::OkStatus();
}

absl::StatusOr<StoredObject> ObjectSink::Finish() {
  const status::MutexLock lock(mutex_);
  RETURN_IF_ERROR(Send(1));
  if (sent_ != bytes_) return absl::InternalError(absl::StrCat("of an object of ", bytes_, " bytes ", sent_, " came"));
  ASSIGN_OR_RETURN(StoredObject object, upload_->Finish());
  if (object.bytes == bytes_) return object;
  return absl::UnavailableError(absl::StrCat("an object has ", object.bytes, " bytes after ", bytes_, " were sent"));
}

}  // namespace reshard::output
