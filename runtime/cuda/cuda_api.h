// The functions of the CUDA driver that this library calls, as a table that is filled when the program runs: so
// everything builds, starts and is tested on machines without CUDA, and a test can substitute another implementation.
//
// The types are those of <cuda.h>, declared here because a build without the toolkit has no such header. A test
// compares them with it where it is available. A CUstream is a cudaStream_t, a CUevent a cudaEvent_t.
#ifndef RESHARD_RUNTIME_CUDA_CUDA_API_H_
#define RESHARD_RUNTIME_CUDA_CUDA_API_H_

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace reshard::cuda {

// Handles. Null streams are the legacy default stream.
using CudaContext = void*;
using CudaStream = void*;
using CudaEvent = void*;
using CudaModule = void*;
using CudaFunction = void*;
using CudaGraph = void*;
using CudaGraphExec = void*;
using CudaMemPool = void*;
using CudaUserObject = void*;
using CudaDeviceHandle = int;
using CudaPointer = uint64_t;

// CUresult, the values that are told apart.
using CudaResult = int;
inline constexpr CudaResult kCudaSuccess = 0;
inline constexpr CudaResult kCudaOutOfMemory = 2;
inline constexpr CudaResult kCudaNoDevice = 100;
inline constexpr CudaResult kCudaNotReady = 600;

inline constexpr unsigned kCudaStreamNonBlocking = 1;
inline constexpr unsigned kCudaEventDisableTiming = 2;
// CUdevice_attribute.
inline constexpr int kCudaAttributeMultiprocessors = 16;
inline constexpr int kCudaAttributeMajor = 75;
inline constexpr int kCudaAttributeMinor = 76;
// CUstreamCaptureMode, CUstreamCaptureStatus.
inline constexpr int kCudaCaptureThreadLocal = 1;
inline constexpr int kCudaCaptureRelaxed = 2;
inline constexpr int kCudaCaptureNone = 0;

// CUuserObject_flags, CUuserObjectRetain_flags.
inline constexpr unsigned kCudaUserObjectNoDestructorSync = 1;
inline constexpr unsigned kCudaGraphUserObjectMove = 1;

// CUmemPoolProps.
struct CudaMemPoolProps {
  int allocation_type = 1;  // pinned device memory
  int handle_types = 0;
  int location_type = 1;  // a device
  int location_id = 0;
  void* win32_security_attributes = nullptr;
  size_t max_size = 0;
  unsigned short usage = 0;
  unsigned char reserved[54] = {};
};
// CUmemPool_attribute: bytes (uint64_t) that a pool keeps when a stream is waited for.
inline constexpr int kCudaMemPoolReleaseThreshold = 4;

// One entry per function, named as in <cuda.h> without its prefix and version.
struct CudaApi {
  CudaResult (*Init)(unsigned flags) = nullptr;
  CudaResult (*DriverGetVersion)(int* version) = nullptr;
  CudaResult (*GetErrorString)(CudaResult result, const char** text) = nullptr;
  CudaResult (*DeviceGetCount)(int* count) = nullptr;
  CudaResult (*DeviceGet)(CudaDeviceHandle* device, int ordinal) = nullptr;
  CudaResult (*DeviceGetName)(char* name, int length, CudaDeviceHandle device) = nullptr;
  CudaResult (*DeviceGetAttribute)(int* value, int attribute, CudaDeviceHandle device) = nullptr;
  CudaResult (*DevicePrimaryCtxRetain)(CudaContext* context, CudaDeviceHandle device) = nullptr;
  CudaResult (*DevicePrimaryCtxRelease)(CudaDeviceHandle device) = nullptr;
  CudaResult (*CtxPushCurrent)(CudaContext context) = nullptr;
  CudaResult (*CtxPopCurrent)(CudaContext* context) = nullptr;
  // Of the current context.
  CudaResult (*CtxSynchronize)() = nullptr;

  CudaResult (*MemPoolCreate)(CudaMemPool* pool, const CudaMemPoolProps* props) = nullptr;
  CudaResult (*MemPoolSetAttribute)(CudaMemPool pool, int attribute, void* value) = nullptr;
  CudaResult (*MemPoolDestroy)(CudaMemPool pool) = nullptr;
  CudaResult (*MemAllocFromPoolAsync)(CudaPointer* memory, size_t bytes, CudaMemPool pool, CudaStream stream) = nullptr;
  CudaResult (*MemFreeAsync)(CudaPointer memory, CudaStream stream) = nullptr;
  CudaResult (*MemAllocHost)(void** memory, size_t bytes) = nullptr;
  CudaResult (*MemFreeHost)(void* memory) = nullptr;
  // Between any two memories, host ones too.
  CudaResult (*MemcpyAsync)(CudaPointer to, CudaPointer from, size_t bytes, CudaStream stream) = nullptr;

  CudaResult (*StreamCreate)(CudaStream* stream, unsigned flags) = nullptr;
  CudaResult (*StreamDestroy)(CudaStream stream) = nullptr;
  CudaResult (*StreamSynchronize)(CudaStream stream) = nullptr;
  CudaResult (*StreamQuery)(CudaStream stream) = nullptr;
  CudaResult (*StreamWaitEvent)(CudaStream stream, CudaEvent event, unsigned flags) = nullptr;
  CudaResult (*StreamIsCapturing)(CudaStream stream, int* status) = nullptr;
  // Version 2, which has no data of edges. The last two may be null.
  CudaResult (*StreamGetCaptureInfo)(CudaStream stream, int* status, uint64_t* id, CudaGraph* graph,
                                     const void** dependencies, size_t* num_dependencies) = nullptr;
  CudaResult (*StreamBeginCapture)(CudaStream stream, int mode) = nullptr;
  CudaResult (*StreamEndCapture)(CudaStream stream, CudaGraph* graph) = nullptr;
  // Sets the mode of the calling thread, and returns the one before.
  CudaResult (*ThreadExchangeStreamCaptureMode)(int* mode) = nullptr;
  CudaResult (*GraphInstantiateWithFlags)(CudaGraphExec* exec, CudaGraph graph, unsigned long long flags) = nullptr;
  CudaResult (*GraphLaunch)(CudaGraphExec exec, CudaStream stream) = nullptr;
  CudaResult (*GraphExecDestroy)(CudaGraphExec exec) = nullptr;
  CudaResult (*GraphDestroy)(CudaGraph graph) = nullptr;

  // `destroy` is called, on any thread, when nothing holds the object any more; it must not call the driver.
  CudaResult (*UserObjectCreate)(CudaUserObject* object, void* pointer, void (*destroy)(void*), unsigned references,
                                 unsigned flags) = nullptr;
  CudaResult (*UserObjectRelease)(CudaUserObject object, unsigned references) = nullptr;
  CudaResult (*GraphRetainUserObject)(CudaGraph graph, CudaUserObject object, unsigned references,
                                      unsigned flags) = nullptr;

  CudaResult (*EventCreate)(CudaEvent* event, unsigned flags) = nullptr;
  CudaResult (*EventDestroy)(CudaEvent event) = nullptr;
  CudaResult (*EventRecord)(CudaEvent event, CudaStream stream) = nullptr;
  CudaResult (*EventQuery)(CudaEvent event) = nullptr;
  CudaResult (*EventElapsedTime)(float* milliseconds, CudaEvent from, CudaEvent to) = nullptr;

  CudaResult (*ModuleLoadData)(CudaModule* module, const void* image) = nullptr;
  CudaResult (*ModuleUnload)(CudaModule module) = nullptr;
  CudaResult (*ModuleGetFunction)(CudaFunction* function, CudaModule module, const char* name) = nullptr;
  CudaResult (*LaunchKernel)(CudaFunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,
                             unsigned block_y, unsigned block_z, unsigned shared_bytes, CudaStream stream,
                             void** parameters, void** extra) = nullptr;
};

// The driver of this machine, loaded once. Never unloaded.
// Unavailable, saying what is missing: no driver library, a driver older than CUDA 12.0, a function that it lacks, or
// no device (then the driver's own words).
absl::StatusOr<const CudaApi*> LoadCudaApi();
// The same from the library of this name.
absl::StatusOr<CudaApi> OpenCudaDriver(const std::string& library);

// OK for kCudaSuccess. ResourceExhausted when memory ran out, else Internal: "<what>: <the driver's words>".
absl::Status CudaStatus(const CudaApi& api, CudaResult result, absl::string_view what);

}  // namespace reshard::cuda

#endif  // RESHARD_RUNTIME_CUDA_CUDA_API_H_
