#include "runtime/cuda/captured_graphs.h"

#include "status/macros.h"

namespace reshard::cuda {
namespace {

using Count = std::shared_ptr<std::atomic<int64_t>>;

void GraphEnded(void* count) {
  const std::unique_ptr<Count> held(static_cast<Count*>(count));
  (*held)->fetch_sub(1);
}

}  // namespace

absl::Status CapturedGraphs::Add(const CudaDevice& device, CudaStream stream) {
  const CudaDevice::Current current(device);
  const CudaApi& api = device.api();
  int status = kCudaCaptureNone;
  uint64_t capture = 0;
  CudaGraph graph = nullptr;
  RETURN_IF_ERROR(CudaStatus(api, api.StreamGetCaptureInfo(stream, &status, &capture, &graph, nullptr, nullptr),
                             "asking what captures the stream"));
  if (graph == nullptr || capture == last_capture_) return absl::OkStatus();
  auto count = std::make_unique<Count>(alive_);
  CudaUserObject object = nullptr;
  RETURN_IF_ERROR(CudaStatus(api,
                             api.UserObjectCreate(&object, count.get(), GraphEnded, 1, kCudaUserObjectNoDestructorSync),
                             "following a graph"));
  alive_->fetch_add(1);
  static_cast<void>(count.release());  // GraphEnded has it now
  const absl::Status retained =
      CudaStatus(api, api.GraphRetainUserObject(graph, object, 1, kCudaGraphUserObjectMove), "following a graph");
  if (!retained.ok()) {
    api.UserObjectRelease(object, 1);
    return retained;
  }
  last_capture_ = capture;
  return absl::OkStatus();
}

}  // namespace reshard::cuda
