#include "runtime/cuda/cuda_api.h"

#include <dlfcn.h>

#include <type_traits>

#include "absl/strings/str_cat.h"

namespace reshard::cuda {
namespace {

constexpr char kDriver[] = "libcuda.so.1";
constexpr int kOldestDriver = 12000;

std::string LoaderWords() {
  const char* words = dlerror();
  return words == nullptr ? "the loader gives no reason" : words;
}

absl::Status Missing(absl::string_view what, absl::string_view driver_words) {
  return absl::UnavailableError(absl::StrCat("there is no GPU to be used: ", what, ": ", driver_words));
}

}  // namespace

absl::StatusOr<CudaApi> OpenCudaDriver(const std::string& name) {
  void* const library = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    return Missing("the CUDA driver cannot be loaded", absl::StrCat(LoaderWords(), "; install the NVIDIA driver"));
  }
  CudaApi api;
  const char* missing = nullptr;
  const auto need = [&](const char* function, auto** entry) {
    *entry = reinterpret_cast<std::remove_reference_t<decltype(*entry)>>(dlsym(library, function));
    if (*entry == nullptr && missing == nullptr) missing = function;
  };
  // The versions that <cuda.h> of CUDA 12 means by the names without one.
  need("cuInit", &api.Init);
  need("cuDriverGetVersion", &api.DriverGetVersion);
  need("cuGetErrorString", &api.GetErrorString);
  need("cuDeviceGetCount", &api.DeviceGetCount);
  need("cuDeviceGet", &api.DeviceGet);
  need("cuDeviceGetName", &api.DeviceGetName);
  need("cuDeviceGetAttribute", &api.DeviceGetAttribute);
  need("cuDevicePrimaryCtxRetain", &api.DevicePrimaryCtxRetain);
  need("cuDevicePrimaryCtxRelease_v2", &api.DevicePrimaryCtxRelease);
  need("cuCtxPushCurrent_v2", &api.CtxPushCurrent);
  need("cuCtxPopCurrent_v2", &api.CtxPopCurrent);
  need("cuCtxSynchronize", &api.CtxSynchronize);
  need("cuMemPoolCreate", &api.MemPoolCreate);
  need("cuMemPoolSetAttribute", &api.MemPoolSetAttribute);
  need("cuMemPoolDestroy", &api.MemPoolDestroy);
  need("cuMemAllocFromPoolAsync", &api.MemAllocFromPoolAsync);
  need("cuMemFreeAsync", &api.MemFreeAsync);
  need("cuMemAllocHost_v2", &api.MemAllocHost);
  need("cuMemFreeHost", &api.MemFreeHost);
  need("cuMemcpyAsync", &api.MemcpyAsync);
  need("cuStreamCreate", &api.StreamCreate);
  need("cuStreamDestroy_v2", &api.StreamDestroy);
  need("cuStreamSynchronize", &api.StreamSynchronize);
  need("cuStreamQuery", &api.StreamQuery);
  need("cuStreamWaitEvent", &api.StreamWaitEvent);
  need("cuStreamIsCapturing", &api.StreamIsCapturing);
  need("cuStreamGetCaptureInfo_v2", &api.StreamGetCaptureInfo);
  need("cuStreamBeginCapture_v2", &api.StreamBeginCapture);
  need("cuStreamEndCapture", &api.StreamEndCapture);
  need("cuThreadExchangeStreamCaptureMode", &api.ThreadExchangeStreamCaptureMode);
  need("cuGraphInstantiateWithFlags", &api.GraphInstantiateWithFlags);
  need("cuGraphLaunch", &api.GraphLaunch);
  need("cuGraphExecDestroy", &api.GraphExecDestroy);
  need("cuGraphDestroy", &api.GraphDestroy);
  need("cuUserObjectCreate", &api.UserObjectCreate);
  need("cuUserObjectRelease", &api.UserObjectRelease);
  need("cuGraphRetainUserObject", &api.GraphRetainUserObject);
  need("cuEventCreate", &api.EventCreate);
  need("cuEventDestroy_v2", &api.EventDestroy);
  need("cuEventRecord", &api.EventRecord);
  need("cuEventQuery", &api.EventQuery);
  need("cuEventElapsedTime", &api.EventElapsedTime);
  need("cuModuleLoadData", &api.ModuleLoadData);
  need("cuModuleUnload", &api.ModuleUnload);
  need("cuModuleGetFunction", &api.ModuleGetFunction);
  need("cuLaunchKernel", &api.LaunchKernel);
  if (missing != nullptr) {
    return Missing(absl::StrCat(name, " has no function ", missing),
                   "update the NVIDIA driver to one for CUDA 12.0 or newer");
  }

  // The version is available without a device, so that an old driver is named as such.
  int version = 0;
  if (const CudaResult result = api.DriverGetVersion(&version); result != kCudaSuccess) {
    return Missing("cuDriverGetVersion", CudaStatus(api, result, name).message());
  }
  if (version < kOldestDriver) {
    return Missing(absl::StrCat("the driver is for CUDA ", version / 1000, ".", version % 1000 / 10),
                   "update the NVIDIA driver to one for CUDA 12.0 or newer");
  }
  if (const CudaResult result = api.Init(0); result != kCudaSuccess) {
    return Missing("cuInit", CudaStatus(api, result, name).message());
  }
  int devices = 0;
  if (const CudaResult result = api.DeviceGetCount(&devices); result != kCudaSuccess) {
    return Missing("cuDeviceGetCount", CudaStatus(api, result, name).message());
  }
  if (devices == 0) return Missing("cuDeviceGetCount", "the driver sees no device (is CUDA_VISIBLE_DEVICES set?)");
  return api;
}

absl::StatusOr<const CudaApi*> LoadCudaApi() {
  // Never destroyed: other threads may still use it when main() has returned.
  static const auto* const loaded = new absl::StatusOr<CudaApi>(OpenCudaDriver(kDriver));
  if (!loaded->ok()) return loaded->status();
  return &**loaded;
}

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

}  // namespace reshard::cuda
