#include "tests/fakes/fake_cuda.h"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <utility>

#include "tests/fakes/fake_cuda_state.h"

namespace reshard::testing {
namespace fake {
namespace {

struct Context {
  Device* device = nullptr;
  uint64_t generation = 0;  // of the world that the device is of
};
std::vector<Context>& ContextStack() {
  thread_local std::vector<Context> stack;
  return stack;
}

Device* DeviceAt(int ordinal) {
  const auto& devices = TheWorld().devices;
  return ordinal < 0 || ordinal >= static_cast<int>(devices.size()) ? nullptr : devices[ordinal].get();
}

cuda::CudaResult Init(unsigned) {
  const Lock lock(TheWorld().mutex);
  return Enter("Init", nullptr);
}

cuda::CudaResult DriverGetVersion(int* version) {
  const Lock lock(TheWorld().mutex);
  if (const cuda::CudaResult result = Enter("DriverGetVersion", nullptr)) return result;
  *version = 13000;
  return cuda::kCudaSuccess;
}

cuda::CudaResult GetErrorString(cuda::CudaResult result, const char** text) {
  static const std::map<cuda::CudaResult, const char*> texts = {
      {cuda::kCudaSuccess, "no error"},
      {kInvalidValue, "invalid argument"},
      {cuda::kCudaOutOfMemory, "out of memory"},
      {cuda::kCudaNoDevice, "no CUDA-capable device is detected"},
      {kInvalidDevice, "invalid device ordinal"},
      {kInvalidContext, "invalid device context"},
      {kInvalidHandle, "invalid resource handle"},
      {kNotFound, "named symbol not found"},
      {cuda::kCudaNotReady, "device not ready"},
      {kIllegalAddress, "an illegal memory access was encountered"},
      {702, "the launch timed out and was terminated"},
      {719, "unspecified launch failure"},
      {kCaptureUnsupported, "operation not permitted when stream is capturing"},
      {kCaptureInvalidated, "operation failed due to a previous error during capture"},
      {kCaptureUnmatched, "capture was not initiated in this stream"},
      {kCaptureUnjoined, "capturing stream has unjoined work"},
      {kCaptureIsolation, "dependency created on uncaptured work in another stream"},
      {kCapturedEvent, "operation not permitted on an event last recorded in a capturing stream"},
      {kCaptureWrongThread, "attempt to terminate a thread-local capture sequence from another thread"}};
  const auto it = texts.find(result);
  *text = it == texts.end() ? nullptr : it->second;
  return it == texts.end() ? kInvalidValue : cuda::kCudaSuccess;
}

cuda::CudaResult DeviceGetCount(int* count) {
  const Lock lock(TheWorld().mutex);
  if (const cuda::CudaResult result = Enter("DeviceGetCount", nullptr)) return result;
  *count = static_cast<int>(TheWorld().devices.size());
  return cuda::kCudaSuccess;
}

cuda::CudaResult DeviceGet(cuda::CudaDeviceHandle* handle, int ordinal) {
  const Lock lock(TheWorld().mutex);
  if (const cuda::CudaResult result = Enter("DeviceGet", DeviceAt(ordinal))) return result;
  if (DeviceAt(ordinal) == nullptr) return kInvalidDevice;
  *handle = ordinal;
  return cuda::kCudaSuccess;
}

cuda::CudaResult DeviceGetName(char* name, int length, cuda::CudaDeviceHandle handle) {
  const Lock lock(TheWorld().mutex);
  if (const cuda::CudaResult result = Enter("DeviceGetName", DeviceAt(handle))) return result;
  if (DeviceAt(handle) == nullptr) return Wrong(kInvalidDevice, "no such device");
  std::snprintf(name, static_cast<size_t>(length), "Imagined device %d", handle);
  return cuda::kCudaSuccess;
}

cuda::CudaResult DeviceGetAttribute(int* value, int attribute, cuda::CudaDeviceHandle handle) {
  const Lock lock(TheWorld().mutex);
  if (const cuda::CudaResult result = Enter("DeviceGetAttribute", DeviceAt(handle))) return result;
  if (DeviceAt(handle) == nullptr) return Wrong(kInvalidDevice, "no such device");
  switch (attribute) {
    case cuda::kCudaAttributeMultiprocessors:
      *value = 4;
      return cuda::kCudaSuccess;
    case cuda::kCudaAttributeMajor:
      *value = 9;
      return cuda::kCudaSuccess;
    case cuda::kCudaAttributeMinor:
      *value = 0;
      return cuda::kCudaSuccess;
    default:
      return Wrong(kInvalidValue, "attribute " + std::to_string(attribute) + " is not known here");
  }
}

cuda::CudaResult DevicePrimaryCtxRetain(cuda::CudaContext* context, cuda::CudaDeviceHandle handle) {
  const Lock lock(TheWorld().mutex);
  Device* device = DeviceAt(handle);
  if (const cuda::CudaResult result = Enter("DevicePrimaryCtxRetain", device)) return result;
  if (device == nullptr) return Wrong(kInvalidDevice, "no such device");
  ++device->retained;
  *context = device;
  return cuda::kCudaSuccess;
}

cuda::CudaResult DevicePrimaryCtxRelease(cuda::CudaDeviceHandle handle) {
  const Lock lock(TheWorld().mutex);
  Device* device = DeviceAt(handle);
  if (const cuda::CudaResult result = Enter("DevicePrimaryCtxRelease", device)) return result;
  if (device == nullptr || device->retained == 0) return Wrong(kInvalidContext, "a context is released too often");
  --device->retained;
  return cuda::kCudaSuccess;
}

cuda::CudaResult CtxPushCurrent(cuda::CudaContext context) {
  const Lock lock(TheWorld().mutex);
  Device* found = nullptr;
  for (const auto& device : TheWorld().devices) {
    if (device.get() == context && device->retained > 0) found = device.get();
  }
  if (const cuda::CudaResult result = TheCuda().book.Count("CtxPushCurrent", found == nullptr ? -1 : found->ordinal)) {
    return result;
  }
  if (found == nullptr) return Wrong(kInvalidContext, "a context that nobody retains becomes current");
  ContextStack().push_back({found, TheWorld().generation});
  return cuda::kCudaSuccess;
}

cuda::CudaResult CtxPopCurrent(cuda::CudaContext* context) {
  const Lock lock(TheWorld().mutex);
  Device* const device = CurrentDevice();
  // The context goes even when the call fails on purpose: it is a call that reports older errors.
  const cuda::CudaResult result = TheCuda().book.Count("CtxPopCurrent", device == nullptr ? -1 : device->ordinal);
  if (ContextStack().empty()) return Wrong(kInvalidContext, "no context is current, so none can be popped");
  ContextStack().pop_back();
  if (context != nullptr) *context = device;
  return result;
}

}  // namespace

CudaState& TheCuda() {
  static CudaState* const state = new CudaState();
  return *state;
}

Device* CurrentDevice() {
  const std::vector<Context>& stack = ContextStack();
  if (stack.empty() || stack.back().generation != TheWorld().generation) return nullptr;
  return stack.back().device;
}

cuda::CudaResult Wrong(cuda::CudaResult result, const std::string& what) {
  TheWorld().Complain(what);
  return result;
}

cuda::CudaResult Enter(const char* function, Device* device, bool numbered) {
  const cuda::CudaResult planned = TheCuda().book.Count(function, device == nullptr ? -1 : device->ordinal, numbered);
  if (planned != cuda::kCudaSuccess) {
    if (planned >= 700 && planned < 900 && device != nullptr) device->sticky = planned;
    return planned;
  }
  return device == nullptr ? cuda::kCudaSuccess : device->sticky;
}

cuda::CudaResult EnterCurrent(const char* function, Device** device, bool numbered) {
  *device = CurrentDevice();
  if (const cuda::CudaResult result = Enter(function, *device, numbered)) return result;
  if (*device == nullptr) return Wrong(kInvalidContext, std::string(function) + " without a current context");
  return cuda::kCudaSuccess;
}

cuda::CudaResult EnterStream(const char* function, cuda::CudaStream handle, Stream** stream, bool numbered) {
  Device* device = nullptr;
  if (const cuda::CudaResult result = EnterCurrent(function, &device, numbered)) return result;
  *stream = handle == nullptr ? device->null_stream.get() : Find(TheWorld().streams, handle);
  if (*stream == nullptr) return Wrong(kInvalidHandle, std::string(function) + " on a stream that is not there");
  if ((*stream)->device != device) {
    return Wrong(kInvalidHandle, std::string(function) + " on a stream of device " +
                                     std::to_string((*stream)->device->ordinal) + " while the context of device " +
                                     std::to_string(device->ordinal) + " is current");
  }
  if ((*stream)->capture != nullptr && (*stream)->capture->invalid) return kCaptureInvalidated;
  return cuda::kCudaSuccess;
}

int& CaptureModeOfThread() {
  thread_local int mode = 0;
  return mode;
}

cuda::CudaResult UnsafeInCapture(const char* function) {
  const int mode = CaptureModeOfThread();
  if (mode == cuda::kCudaCaptureRelaxed) return cuda::kCudaSuccess;
  for (const auto& stream : TheWorld().streams) {
    if (stream->capture == nullptr) continue;
    const bool own = stream->capture->thread == std::this_thread::get_id();
    const bool all_global = stream->capture->mode == 0 && mode == 0;
    if (stream->capture->mode != cuda::kCudaCaptureRelaxed && (own || all_global)) {
      stream->capture->invalid = true;
      return Wrong(kCaptureUnsupported, std::string(function) + " while a stream is captured");
    }
  }
  return cuda::kCudaSuccess;
}

}  // namespace fake

const cuda::CudaApi& FakeCuda::Api() {
  static const cuda::CudaApi* const api = [] {
    auto* out = new cuda::CudaApi();
    out->Init = fake::Init;
    out->DriverGetVersion = fake::DriverGetVersion;
    out->GetErrorString = fake::GetErrorString;
    out->DeviceGetCount = fake::DeviceGetCount;
    out->DeviceGet = fake::DeviceGet;
    out->DeviceGetName = fake::DeviceGetName;
    out->DeviceGetAttribute = fake::DeviceGetAttribute;
    out->DevicePrimaryCtxRetain = fake::DevicePrimaryCtxRetain;
    out->DevicePrimaryCtxRelease = fake::DevicePrimaryCtxRelease;
    out->CtxPushCurrent = fake::CtxPushCurrent;
    out->CtxPopCurrent = fake::CtxPopCurrent;
    fake::FillStreamFunctions(out);
    fake::FillMemoryFunctions(out);
    return out;
  }();
  return *api;
}

void FakeCuda::Reset(int devices) {
  fake::ResetWorld(devices);
  const fake::Lock lock(fake::TheWorld().mutex);
  fake::TheCuda().book.Clear();
  fake::TheCuda().functions.clear();
  fake::TheCuda().modules.clear();
}

void FakeCuda::RegisterKernel(const std::string& name, Kernel kernel) {
  const fake::Lock lock(fake::TheWorld().mutex);
  fake::TheCuda().kernels[name] = std::move(kernel);
}

void FakeCuda::BindRank(int rank) { fake::BoundRank() = rank; }

int64_t FakeCuda::Calls(int rank) {
  const fake::Lock lock(fake::TheWorld().mutex);
  return fake::TheCuda().book.Calls(rank);
}

int64_t FakeCuda::Calls(int rank, const std::string& function) {
  const fake::Lock lock(fake::TheWorld().mutex);
  return fake::TheCuda().book.Calls(rank, function);
}

void FakeCuda::FailAt(int rank, int64_t call, cuda::CudaResult result) {
  const fake::Lock lock(fake::TheWorld().mutex);
  fake::TheCuda().book.FailAt(rank, call, result);
}

void FakeCuda::FailAt(int rank, const std::string& function, int64_t nth, cuda::CudaResult result) {
  const fake::Lock lock(fake::TheWorld().mutex);
  fake::TheCuda().book.FailAt(rank, function, nth, result);
}

void FakeCuda::Jitter(uint64_t seed) {
  const fake::Lock lock(fake::TheWorld().mutex);
  fake::TheWorld().jitter = seed;
}

void* FakeCuda::Allocate(int device, int64_t bytes) {
  const fake::Lock lock(fake::TheWorld().mutex);
  const cuda::CudaPointer memory = fake::NewBlock(bytes, fake::TheWorld().devices.at(device).get());
  fake::SetLive(memory);
  return reinterpret_cast<void*>(memory);
}

void FakeCuda::Free(void* memory) {
  const fake::Lock lock(fake::TheWorld().mutex);
  fake::SetFreed(reinterpret_cast<cuda::CudaPointer>(memory));
}

std::vector<std::string> FakeCuda::Complaints() {
  const fake::Lock lock(fake::TheWorld().mutex);
  return fake::TheWorld().complaints;
}

std::vector<std::string> FakeCuda::Leaks() {
  const fake::Lock lock(fake::TheWorld().mutex);
  std::vector<std::string> out = fake::LeaksOfWorld();
  for (const auto& module : fake::TheCuda().modules) {
    if (!module->unloaded) out.push_back("a module of device " + std::to_string(module->device->ordinal));
  }
  return out;
}

}  // namespace reshard::testing
