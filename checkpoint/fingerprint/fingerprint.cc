#include "reshard/checkpoint/fingerprint.h"

#include <algorithm>
#include <limits>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "checkpoint/catalog/boxes.h"
#include "checkpoint/source/source.h"
#include "checkpoint/tasks/run_tasks.h"
#include "reshard/checkpoint/describe.h"
#include "reshard/layout/checked.h"
#include "runtime/fingerprint/tensor_sum.h"
#include "status/macros.h"
#include "status/no_throw.h"
#include "status/view.h"

namespace reshard {
namespace {

constexpr int64_t kStripeBytes = int64_t{1} << 20;

struct StripeTask {
  size_t tensor = 0;  // its index in the catalog
  catalog::Stripe stripe;
  int64_t bytes = 0;  // of the stripe
};

absl::Status CheckKnown(const Catalog::Tensor& tensor) {
  if (tensor.dtype) return absl::OkStatus();
  return absl::UnimplementedError(absl::StrCat(status::View(tensor.name), ": elements of type ",
                                               status::View(DTypeText(tensor)),
                                               " have no fingerprint; leave the tensor out"));
}

absl::StatusOr<int64_t> BytesOfAll(const Catalog& catalog) {
  int64_t all = 0;
  for (const Catalog::Tensor& tensor : catalog.tensors()) {
    RETURN_IF_ERROR(CheckKnown(tensor));
    const std::optional<int64_t> more = CheckedAdd(all, tensor.bytes);
    if (!more) return absl::ResourceExhaustedError("the tensors have 2^63 bytes or more together");
    all = *more;
  }
  return all;
}

// The stripes whose first byte, of all bytes one after the other, falls into the part-th of `parts` equal shares.
absl::StatusOr<std::vector<StripeTask>> TasksOfPart(const Catalog& catalog, int64_t part, int64_t parts) {
  ASSIGN_OR_RETURN(const int64_t all, BytesOfAll(catalog));
  const auto share_begin = [&](int64_t index) { return all / parts * index + std::min(all % parts, index); };
  const int64_t begin = share_begin(part), end = share_begin(part + 1);
  std::vector<StripeTask> tasks;
  int64_t at = 0;
  for (size_t t = 0; t < catalog.tensors().size() && at < end; ++t) {
    const Catalog::Tensor& tensor = catalog.tensors()[t];
    const int64_t after = at + tensor.bytes;
    if (after > begin) {
      const int64_t element = SizeOf(*tensor.dtype);
      for (catalog::Stripe& stripe : catalog::CutIntoStripes(tensor.shape, element, kStripeBytes)) {
        const int64_t first = at + stripe.first * element, bytes = stripe.count * element;
        if (first >= begin && first < end) tasks.push_back({t, std::move(stripe), bytes});
      }
    }
    at = after;
  }
  return tasks;
}

absl::StatusOr<CheckpointFingerprint> Take(source::Source& source, const FingerprintOptions& options) {
  const Catalog& catalog = source.catalog();
  ASSIGN_OR_RETURN(const std::vector<StripeTask> tasks, TasksOfPart(catalog, options.part, options.parts));

  CheckpointFingerprint taken;
  std::vector<Fingerprint> identities;
  for (const Catalog::Tensor& tensor : catalog.tensors()) {
    identities.push_back(fingerprint::IdentityOf(tensor.name, *tensor.dtype, tensor.shape));
    fingerprint::TensorSum sum(identities.back());
    if (options.part == 0) sum.AddIdentity();
    taken.tensors.push_back(
        {std::string(tensor.name), *tensor.dtype, {tensor.shape.begin(), tensor.shape.end()}, sum.sum()});
  }
  for (const StripeTask& task : tasks) taken.bytes += task.bytes;

  const int threads = source.ReadThreads(options.threads, std::numeric_limits<int>::max());
  std::vector<std::string> buffers(static_cast<size_t>(threads));
  std::mutex mutex;
  tasks::ProgressMeter meter(taken.bytes, options.progress);
  const auto add = [&](int64_t i, int thread) -> absl::Status {
    const StripeTask& task = tasks[i];
    const catalog::StoredBox& box = task.stripe.box;
    CheckpointFingerprint::Tensor& tensor = taken.tensors[task.tensor];
    std::string& buffer = buffers[thread];
    buffer.resize(task.bytes);
    RETURN_IF_ERROR(source.Read(static_cast<int64_t>(task.tensor), box.offset, box.size, absl::MakeSpan(buffer)));
    fingerprint::TensorSum sum(identities[task.tensor]);
    sum.Add(buffer.data(), task.stripe.first * SizeOf(tensor.dtype), task.bytes);
    {
      const std::lock_guard<std::mutex> lock(mutex);
      tensor.fingerprint += sum.sum();
    }
    meter.Add(task.bytes);
    return absl::OkStatus();
  };
  RETURN_IF_ERROR(tasks::RunTasks(static_cast<int64_t>(tasks.size()), threads, add, options.stop));
  meter.Finish();

  for (const CheckpointFingerprint::Tensor& tensor : taken.tensors) taken.fingerprint += tensor.fingerprint;
  std::sort(taken.tensors.begin(), taken.tensors.end(), [](const auto& a, const auto& b) { return a.name < b.name; });
  return taken;
}

}  // namespace

absl::StatusOr<CheckpointFingerprint> FingerprintCheckpoint(const std::string& path,
                                                            const FingerprintOptions& options) {
  return status::NoThrow("taking a checkpoint's fingerprint", [&]() -> absl::StatusOr<CheckpointFingerprint> {
    if (options.part < 0 || options.part >= options.parts) {
      return absl::InvalidArgumentError(absl::StrCat("part ", options.part, " of ", options.parts));
    }
    // Each chunk is read whole once, by one of those who share the reading, to compare its checksum.
    const auto checks = options.parts == 1 ? source::ChunkChecks::kAll : source::ChunkChecks::kBegun;
    ASSIGN_OR_RETURN(const std::unique_ptr<source::Source> source,
                     source::Source::Open(path, {options.limits, options.ignore_sidecar, checks, options.recipe}));
    return Take(*source, options);
  });
}

}  // namespace reshard
