#include "checkpoint/convert/buffers.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "checkpoint/catalog/boxes.h"
#include "checkpoint/io/error_kind.h"
#include "checkpoint/io/show.h"
#include "checkpoint/tasks/run_tasks.h"

namespace reshard::convert {
namespace {

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

}  // namespace

absl::Status CheckAnnounced(const Catalog& catalog, const ConvertOptions& options) {
  constexpr auto kPiece = static_cast<int64_t>(sizeof(output::OutputPlan::Piece)) + kBytesPerPiece;
  int64_t pieces = 0, most = std::max<int64_t>(options.memory_limit, 0) / kPiece;
  for (const Catalog::Tensor& tensor : catalog.tensors()) {
    pieces += std::min(most + 1, tensor.bytes / catalog::kLargestBox);
    if (pieces <= most) continue;
    return io::WithKind(
        absl::ResourceExhaustedError(absl::StrCat(
            "tensor ", io::Shown(tensor.name), " has ", tensor.bytes, " bytes, in pieces of ", catalog::kLargestBox,
            ": a list of them needs more memory than the limit of ", options.memory_limit, " bytes")),
        CheckpointError::kMemoryLimit);
  }
  return absl::OkStatus();
}

absl::StatusOr<Buffers> PlanBuffers(const Catalog& catalog, const output::OutputPlan& plan,
                                    const ConvertOptions& options) {
  const int64_t fixed =
      2 * CatalogBytes(catalog) + plan.MemoryBytes() + kBytesPerPiece * static_cast<int64_t>(plan.pieces().size());
  const auto of_thread = [](int64_t stripe) { return kStripesPerThread * stripe + kReadingPerThread; };
  Buffers buffers;
  const int64_t least = fixed + of_thread(kSmallestStripe);
  if (least > options.memory_limit) {
    return io::WithKind(
        absl::ResourceExhaustedError(absl::StrCat("this needs ", least, " bytes of memory, of which ", fixed,
                                                  " for metadata; the limit is ", options.memory_limit)),
        CheckpointError::kMemoryLimit);
  }
  const int64_t room = options.memory_limit - fixed;
  buffers.threads =
      static_cast<int>(std::clamp<int64_t>(room / of_thread(kSmallestStripe), 1, tasks::ThreadCount(options.threads)));
  buffers.stripe = std::min(kLargestStripe, (room / buffers.threads - kReadingPerThread) / kStripesPerThread);
  buffers.total = fixed + buffers.threads * of_thread(buffers.stripe);
  return buffers;
}

}  // namespace reshard::convert
