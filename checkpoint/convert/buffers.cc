#include "checkpoint/convert/buffers.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "checkpoint/catalog/boxes.h"
#include "checkpoint/catalog/format_traits.h"
#include "checkpoint/catalog/stored_elements.h"
#include "checkpoint/io/error_kind.h"
#include "checkpoint/io/remote_file.h"
#include "checkpoint/io/show.h"
#include "checkpoint/stores/url.h"
#include "checkpoint/tasks/run_tasks.h"
#include "checkpoint/views/read_view.h"
#include "reshard/planner/units.h"

namespace reshard::convert {
namespace {

// A thread has one stripe to fill and one to copy from, and what reading takes (ReadBox, Source).
constexpr int64_t kStripesPerThread = 2;
constexpr int64_t kReadingPerThread = (int64_t{4} << 20) + (int64_t{256} << 10);
constexpr int64_t kLargestStripe = int64_t{1} << 20;
// A view may take a few elements out of every row: the longer the stripe, the less often the rows are read.
constexpr int64_t kLargestViewStripe = int64_t{16} << 20;
constexpr int64_t kSmallestStripe = int64_t{64} << 10;
// Memory of a Python interpreter with a store in it, as measured.
constexpr int64_t kPython = int64_t{64} << 20;
// For uploads: twice what obstore sends in one request; and enough to keep 32 connections busy.
constexpr int64_t kLeastUpload = int64_t{16} << 20, kLargestUpload = int64_t{264} << 20;
// Batches of an object that are put together while a thread reads one (StoreRun).
constexpr int64_t kBatchesAhead = 2;
constexpr int64_t kStripeOfStore = int64_t{4} << 20;
// Metadata as it is written: a pickle and a sidecar.
constexpr int64_t kBytesPerPiece = 512;

int64_t CatalogBytes(const Catalog& catalog) {
  int64_t bytes = 0;
  for (const Catalog::Tensor& tensor : catalog.tensors()) {
    bytes += static_cast<int64_t>(sizeof(tensor) + tensor.name.size());
    bytes += tensor.num_chunks * static_cast<int64_t>(sizeof(Catalog::FileRange) + 16 * tensor.shape.size());
    if (tensor.num_chunks > 0 && catalog.StoredAs(tensor, 0) != nullptr) {
      bytes += tensor.num_chunks * static_cast<int64_t>(sizeof(catalog::StoredElements) + 16 * tensor.shape.size());
    }
  }
  for (const Catalog::File& file : catalog.files()) {
    if (file.content != nullptr) bytes += file.bytes;
  }
  return bytes;
}

int64_t NodeBytes(const views::Node& node) {
  auto bytes = static_cast<int64_t>(sizeof(node) +
                                    8 * (node.shape.size() + node.ends.size() + node.dims.size() + node.blocks.size()));
  for (const views::Node& input : node.inputs) bytes += NodeBytes(input);
  return bytes;
}

int64_t ViewBytes(const std::vector<views::View>& views) {
  int64_t bytes = 0;
  for (const views::View& view : views) {
    bytes += static_cast<int64_t>(sizeof(view) + view.text.size()) + (view.node ? NodeBytes(*view.node) : 0);
  }
  return bytes;
}

// The most buffers that reading one of the views takes.
int64_t ReadBuffers(const std::vector<views::View>& views) {
  int64_t most = 0;
  for (const views::View& view : views) {
    if (view.node) most = std::max(most, views::ReadBuffers(*view.node));
  }
  return most;
}

}  // namespace

absl::Status CheckAnnounced(const Catalog& catalog, const ConvertOptions& options) {
  constexpr auto kPiece = static_cast<int64_t>(sizeof(output::OutputPlan::OutputPiece)) + kBytesPerPiece;
  int64_t pieces = 0, most = std::max<int64_t>(options.memory_limit, 0) / kPiece;
  for (const Catalog::Tensor& tensor : catalog.tensors()) {
    pieces += std::min(most + 1, tensor.bytes / catalog::kLargestBox);
    if (pieces <= most) continue;
    return io::WithKind(
        absl::ResourceExhaustedError(absl::StrCat(
            "tensor ", io::Shown(tensor.name), " has ", tensor.bytes, " bytes, in pieces of ", catalog::kLargestBox,
            ": a list of them needs more memory than the limit of ", ExactBytes(options.memory_limit))),
        CheckpointError::kMemoryLimit);
  }
  return absl::OkStatus();
}

absl::StatusOr<Buffers> PlanBuffers(const source::Source& source, const output::OutputPlan& plan, int64_t batch_bytes,
                                    const ConvertOptions& options) {
  const bool has_views = source.views() != nullptr;
  const int64_t of_views = has_views ? CatalogBytes(source.stored()) + ViewBytes(*source.views()) : 0;
  const std::string from = stores::SchemeOf(source.catalog().root());
  const bool from_store = !from.empty(), to_store = batch_bytes > 0;
  const int64_t least_upload = to_store ? kLeastUpload : 0;
  const int64_t fixed = 2 * CatalogBytes(source.catalog()) + of_views + (from_store ? io::kRemoteMemory : 0) +
                        (from_store && source.stored().traits().chunks_are_archives ? io::kAheadMemory : 0) +
                        (to_store || (from_store && from != "https") ? kPython : 0) + plan.MemoryBytes() +
                        kBytesPerPiece * static_cast<int64_t>(plan.pieces().size());
  static_assert(kSmallestStripe >= views::kLeastRead);
  const int64_t stripes = kStripesPerThread + (has_views ? ReadBuffers(*source.views()) : 0);
  // What a thread has beside its stripes.
  const int64_t beside = (from_store ? io::kRemoteMost : kReadingPerThread) + kBatchesAhead * batch_bytes;
  const auto of_thread = [&](int64_t stripe) { return stripes * stripe + beside; };
  Buffers buffers;
  const int64_t least = fixed + of_thread(kSmallestStripe) + least_upload;
  if (least > options.memory_limit) {
    return io::WithKind(absl::ResourceExhaustedError(
                            absl::StrCat("this needs ", ExactBytes(least), " of memory, of which ", ExactBytes(fixed),
                                         " for metadata; the limit is ", ExactBytes(options.memory_limit))),
                        CheckpointError::kMemoryLimit);
  }
  int64_t room = options.memory_limit - fixed;
  if (to_store) {
    constexpr int64_t kPart = 4;  // of the room
    buffers.upload = std::clamp(room / kPart, least_upload, kLargestUpload);
    room -= buffers.upload;
  }
  // Threads that wait for a store need no core. An https server should not get too many requests.
  const bool waits = (from_store && from != "https") || to_store;
  const int wanted = options.threads == 0 && waits ? source::kThreadsForStores : tasks::ThreadCount(options.threads);
  const int64_t smallest = waits ? std::max(batch_bytes, kStripeOfStore) : kSmallestStripe;
  buffers.threads = static_cast<int>(std::clamp<int64_t>(room / of_thread(smallest), 1, wanted));
  const int64_t largest = waits ? smallest : has_views ? kLargestViewStripe : kLargestStripe;
  buffers.stripe = std::min(largest, (room / buffers.threads - beside) / stripes);
  buffers.total = fixed + buffers.upload + buffers.threads * of_thread(buffers.stripe);
  return buffers;
}

}  // namespace reshard::convert
