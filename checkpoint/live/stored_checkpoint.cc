#include "reshard/live/stored_checkpoint.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "checkpoint/io/show.h"
#include "checkpoint/live/placement.h"
#include "checkpoint/live/read_parts.h"
#include "checkpoint/source/source.h"
#include "checkpoint/tasks/run_tasks.h"
#include "status/macros.h"
#include "status/no_throw.h"
#include "status/view.h"

namespace reshard {
namespace {

constexpr int64_t kLargestPart = int64_t{4} << 20;  // bytes that a thread reads at a time

absl::Status CheckBox(const Catalog::Tensor& tensor, const BoxRead& box) {
  const TensorView& into = box.into;
  if (!tensor.dtype) {
    return absl::InvalidArgumentError(
        absl::StrCat("elements of type ", status::View(tensor.stored_dtype), " cannot be loaded"));
  }
  if (into.dtype != *tensor.dtype) {
    return absl::InvalidArgumentError(absl::StrCat("the checkpoint has ", status::View(Name(*tensor.dtype)), ", not ",
                                                   status::View(Name(into.dtype))));
  }
  bool within = box.offset.size() == tensor.shape.size() && into.shape.size() == tensor.shape.size();
  for (size_t d = 0; within && d < tensor.shape.size(); ++d) {
    within = box.offset[d] >= 0 && into.shape[d] >= 0 && into.shape[d] <= tensor.shape[d] &&
             box.offset[d] <= tensor.shape[d] - into.shape[d];
  }
  if (!within) {
    return absl::InvalidArgumentError(absl::StrCat("the box of ", io::Shown(into.shape), " at ", io::Shown(box.offset),
                                                   " is not within its shape ", io::Shown(tensor.shape)));
  }
  if (into.memory != MemoryKind::kHost || (into.data == nullptr && NumElements(into.shape) > 0)) {
    return absl::InvalidArgumentError("the view to load into is not memory of the host");
  }
  if (MayOverlapItself(into)) {
    return absl::InvalidArgumentError("the view to load into has several indices for one element");
  }
  return absl::OkStatus();
}

}  // namespace

StoredCheckpoint::StoredCheckpoint(std::unique_ptr<source::Source> source) : source_(std::move(source)) {}
StoredCheckpoint::StoredCheckpoint(StoredCheckpoint&& other) noexcept = default;
StoredCheckpoint& StoredCheckpoint::operator=(StoredCheckpoint&& other) noexcept = default;
StoredCheckpoint::~StoredCheckpoint() = default;

absl::StatusOr<StoredCheckpoint> StoredCheckpoint::Open(const std::string& path, const StoredOptions& options) {
  return status::NoThrow("opening a checkpoint", [&]() -> absl::StatusOr<StoredCheckpoint> {
    source::SourceOptions open;
    open.limits = options.limits;
    open.ignore_sidecar = options.ignore_sidecar;
    open.recipe = options.recipe;
    open.checks = options.check ? source::ChunkChecks::kBegun : source::ChunkChecks::kNone;
    ASSIGN_OR_RETURN(std::unique_ptr<source::Source> source, source::Source::Open(path, open));
    return StoredCheckpoint(std::move(source));
  });
}

const Catalog& StoredCheckpoint::catalog() const { return source_->catalog(); }
int64_t StoredCheckpoint::bytes_read() const { return source_->bytes_read(); }

absl::Status StoredCheckpoint::Read(absl::Span<const BoxRead> boxes, int threads) {
  return status::NoThrow("reading a checkpoint", [&]() -> absl::Status {
    std::vector<TensorView> views(boxes.size());
    std::vector<live::PartRead> parts;
    for (size_t i = 0; i < boxes.size(); ++i) {
      const BoxRead& box = boxes[i];
      if (box.tensor < 0 || box.tensor >= static_cast<int64_t>(catalog().tensors().size())) {
        return absl::InvalidArgumentError(absl::StrCat("there is no tensor ", box.tensor));
      }
      const Catalog::Tensor& tensor = catalog().tensors()[box.tensor];
      const absl::Status fits = CheckBox(tensor, box);
      if (!fits.ok()) {
        return absl::Status(fits.code(), absl::StrCat("tensor ", io::Shown(tensor.name), ": ", fits.message()));
      }
      views[i] = box.into;
      if (tensor.shape.empty()) {
        views[i].shape = {1};
        views[i].strides = {1};
        parts.push_back({box.tensor, {0}, {1}, {0}, &views[i]});
        continue;
      }
      if (NumElements(box.into.shape) == 0) continue;
      live::AddParts(*source_,
                     {box.tensor,
                      {box.offset.begin(), box.offset.end()},
                      {box.into.shape.begin(), box.into.shape.end()},
                      std::vector<int64_t>(box.offset.size(), 0),
                      &views[i]},
                     SizeOf(box.into.dtype), kLargestPart, &parts);
    }
    return live::ReadParts(*source_, parts, source_->ReadThreads(threads, live::kMostThreads));
  });
}

absl::StatusOr<std::string> StoredCheckpoint::ReadItem(int64_t item) {
  return status::NoThrow("reading a checkpoint", [&]() -> absl::StatusOr<std::string> {
    if (item < 0 || item >= static_cast<int64_t>(catalog().byte_items().size())) {
      return absl::InvalidArgumentError(absl::StrCat("there is no byte item ", item));
    }
    std::string bytes(static_cast<size_t>(catalog().byte_items()[item].place.length), '\0');
    RETURN_IF_ERROR(source_->ReadItem(item, 0, absl::MakeSpan(bytes)));
    return bytes;
  });
}

}  // namespace reshard
