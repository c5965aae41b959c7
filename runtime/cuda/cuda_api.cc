#include "runtime/cuda/cuda_api.h"

#include "absl/strings/str_cat.h"

namespace reshard {

absl::Status CudaStatus(const CudaApi& api, CudaResult result, absl::string_view what) {
  if (result == kCudaSuccess) return absl::OkStatus();
  const char* text = nullptr;
  if (api.GetErrorString == nullptr || api.GetErrorString(result, &text) != kCudaSuccess || text == nullptr) {
    text = "an error that the driver has no words for";
  }
  const std::string message = absl::StrCat(what, ": ", text, " (CUDA error ", result, ")");
  if (result == kCudaOutOfMemory) return absl::ResourceExhaustedError(message);
  return absl::InternalError(message);
}

}  // namespace reshard
