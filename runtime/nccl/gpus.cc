#include "reshard/nccl/gpus.h"

#include <utility>

#include "runtime/cuda/cuda_api.h"
#include "runtime/cuda/kernel_image.h"
#include "status/macros.h"

namespace reshard {

absl::StatusOr<GpuList> ListGpus() {
  ASSIGN_OR_RETURN(const cuda::CudaApi* const api, cuda::LoadCudaApi());
  GpuList list;
  RETURN_IF_ERROR(cuda::CudaStatus(*api, api->DriverGetVersion(&list.driver_version), "cuDriverGetVersion"));
  int count = 0;
  RETURN_IF_ERROR(cuda::CudaStatus(*api, api->DeviceGetCount(&count), "cuDeviceGetCount"));
  for (int i = 0; i < count; ++i) {
    cuda::CudaDeviceHandle device = 0;
    char name[256] = {};
    Gpu gpu;
    RETURN_IF_ERROR(cuda::CudaStatus(*api, api->DeviceGet(&device, i), "cuDeviceGet"));
    RETURN_IF_ERROR(cuda::CudaStatus(*api, api->DeviceGetName(name, sizeof(name) - 1, device), "cuDeviceGetName"));
    for (const auto& [into, attribute] :
         {std::pair{&gpu.major, cuda::kCudaAttributeMajor}, std::pair{&gpu.minor, cuda::kCudaAttributeMinor}}) {
      RETURN_IF_ERROR(cuda::CudaStatus(*api, api->DeviceGetAttribute(into, attribute, device), "cuDeviceGetAttribute"));
    }
    gpu.name = name;
    list.gpus.push_back(std::move(gpu));
  }
  return list;
}

bool HasGpuKernels() { return cuda::KernelImage() != nullptr; }

}  // namespace reshard
