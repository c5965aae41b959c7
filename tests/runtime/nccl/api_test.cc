// The function tables against the headers that they repeat, where those are installed, and the loaders.
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstddef>
#include <cstdio>
#include <string>
#include <type_traits>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "reshard/nccl/nccl_api.h"
#include "runtime/cuda/cuda_api.h"
#include "runtime/nccl/load_nccl.h"
#include "tests/catch.h"
#if __has_include(<cuda.h>)
#include <cuda.h>
#define RESHARD_HAS_CUDA_H 1
#endif
// It includes the runtime's headers itself.
#if __has_include(<nccl.h>) && __has_include(<cuda_runtime.h>)
#include <nccl.h>
#define RESHARD_HAS_NCCL_H 1
#endif

namespace reshard::testing {
namespace {

// How a value is passed: what the two sides of a C function must agree on. Handles are pointers, enums are integers.
struct Passed {
  size_t bytes = 0;
  bool pointer = false;
  bool scalar = false;
  constexpr bool operator==(const Passed& other) const {
    return bytes == other.bytes && pointer == other.pointer && scalar == other.scalar;
  }
};
template <typename T>
constexpr Passed How() {
  return {sizeof(T), std::is_pointer_v<T>, std::is_integral_v<T> || std::is_enum_v<T>};
}
template <typename F>
struct Signature;
template <typename R, typename... A>
struct Signature<R (*)(A...)> {
  static constexpr std::array<Passed, sizeof...(A) + 1> kPassed = {How<R>(), How<A>()...};
};
template <typename Ours, typename Theirs>
constexpr bool SameSignature() {
  if constexpr (Signature<Ours>::kPassed.size() != Signature<Theirs>::kPassed.size()) {
    return false;
  } else {
    for (size_t i = 0; i < Signature<Ours>::kPassed.size(); ++i) {
      if (!(Signature<Ours>::kPassed[i] == Signature<Theirs>::kPassed[i])) return false;
    }
    return true;
  }
}
static_assert(SameSignature<int (*)(int, void*), int (*)(unsigned, const char*)>());
static_assert(!SameSignature<int (*)(int), int (*)(long)>());
static_assert(!SameSignature<int (*)(int*), int (*)(size_t)>());
static_assert(!SameSignature<int (*)(int), int (*)(int, int)>());

#ifdef RESHARD_HAS_CUDA_H
#define SAME_CUDA(name)                                                              \
  static_assert(SameSignature<decltype(cuda::CudaApi::name), decltype(&cu##name)>(), \
                "CudaApi::" #name " is not cu" #name)
SAME_CUDA(Init);
SAME_CUDA(DriverGetVersion);
SAME_CUDA(GetErrorString);
SAME_CUDA(DeviceGetCount);
SAME_CUDA(DeviceGet);
SAME_CUDA(DeviceGetName);
SAME_CUDA(DeviceGetAttribute);
SAME_CUDA(DevicePrimaryCtxRetain);
SAME_CUDA(DevicePrimaryCtxRelease);
SAME_CUDA(CtxPushCurrent);
SAME_CUDA(CtxPopCurrent);
SAME_CUDA(MemPoolCreate);
SAME_CUDA(MemPoolSetAttribute);
SAME_CUDA(MemPoolDestroy);
SAME_CUDA(MemAllocFromPoolAsync);
SAME_CUDA(MemFreeAsync);
SAME_CUDA(MemAllocHost);
SAME_CUDA(MemFreeHost);
SAME_CUDA(MemcpyAsync);
SAME_CUDA(StreamCreate);
SAME_CUDA(StreamDestroy);
SAME_CUDA(StreamSynchronize);
SAME_CUDA(StreamQuery);
SAME_CUDA(StreamWaitEvent);
SAME_CUDA(StreamIsCapturing);
SAME_CUDA(CtxSynchronize);
SAME_CUDA(StreamBeginCapture);
SAME_CUDA(StreamEndCapture);
SAME_CUDA(ThreadExchangeStreamCaptureMode);
SAME_CUDA(GraphInstantiateWithFlags);
SAME_CUDA(GraphLaunch);
SAME_CUDA(GraphExecDestroy);
SAME_CUDA(GraphDestroy);
SAME_CUDA(UserObjectCreate);
SAME_CUDA(UserObjectRelease);
SAME_CUDA(GraphRetainUserObject);
SAME_CUDA(EventCreate);
SAME_CUDA(EventDestroy);
SAME_CUDA(EventRecord);
SAME_CUDA(EventQuery);
SAME_CUDA(EventElapsedTime);
SAME_CUDA(ModuleLoadData);
SAME_CUDA(ModuleUnload);
SAME_CUDA(ModuleGetFunction);
SAME_CUDA(LaunchKernel);
#undef SAME_CUDA

static_assert(sizeof(CUresult) == sizeof(cuda::CudaResult) && sizeof(CUdevice) == sizeof(cuda::CudaDeviceHandle));
static_assert(sizeof(CUdeviceptr) == sizeof(cuda::CudaPointer) && sizeof(CUstream) == sizeof(cuda::CudaStream));
static_assert(cuda::kCudaSuccess == CUDA_SUCCESS && cuda::kCudaOutOfMemory == CUDA_ERROR_OUT_OF_MEMORY);
static_assert(cuda::kCudaNoDevice == CUDA_ERROR_NO_DEVICE && cuda::kCudaNotReady == CUDA_ERROR_NOT_READY);
static_assert(cuda::kCudaStreamNonBlocking == CU_STREAM_NON_BLOCKING);
static_assert(cuda::kCudaEventDisableTiming == CU_EVENT_DISABLE_TIMING);
static_assert(cuda::kCudaAttributeMultiprocessors == CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT);
static_assert(cuda::kCudaAttributeMajor == CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR);
static_assert(cuda::kCudaAttributeMinor == CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
static_assert(cuda::kCudaCaptureThreadLocal == CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
static_assert(cuda::kCudaCaptureRelaxed == CU_STREAM_CAPTURE_MODE_RELAXED);
static_assert(cuda::kCudaUserObjectNoDestructorSync == CU_USER_OBJECT_NO_DESTRUCTOR_SYNC);
static_assert(cuda::kCudaGraphUserObjectMove == CU_GRAPH_USER_OBJECT_MOVE);
static_assert(cuda::kCudaCaptureNone == CU_STREAM_CAPTURE_STATUS_NONE);
static_assert(cuda::kCudaMemPoolReleaseThreshold == CU_MEMPOOL_ATTR_RELEASE_THRESHOLD);

static_assert(sizeof(cuda::CudaMemPoolProps) == sizeof(CUmemPoolProps) &&
              alignof(cuda::CudaMemPoolProps) == alignof(CUmemPoolProps));
static_assert(offsetof(cuda::CudaMemPoolProps, allocation_type) == offsetof(CUmemPoolProps, allocType));
static_assert(offsetof(cuda::CudaMemPoolProps, handle_types) == offsetof(CUmemPoolProps, handleTypes));
static_assert(offsetof(cuda::CudaMemPoolProps, location_type) == offsetof(CUmemPoolProps, location.type));
static_assert(offsetof(cuda::CudaMemPoolProps, location_id) == offsetof(CUmemPoolProps, location.id));
static_assert(offsetof(cuda::CudaMemPoolProps, win32_security_attributes) ==
              offsetof(CUmemPoolProps, win32SecurityAttributes));
static_assert(offsetof(cuda::CudaMemPoolProps, max_size) == offsetof(CUmemPoolProps, maxSize));
static_assert(offsetof(cuda::CudaMemPoolProps, usage) == offsetof(CUmemPoolProps, usage));
static_assert(cuda::CudaMemPoolProps().allocation_type == CU_MEM_ALLOCATION_TYPE_PINNED);
static_assert(cuda::CudaMemPoolProps().handle_types == CU_MEM_HANDLE_TYPE_NONE);
static_assert(cuda::CudaMemPoolProps().location_type == CU_MEM_LOCATION_TYPE_DEVICE);
#endif  // RESHARD_HAS_CUDA_H

#ifdef RESHARD_HAS_NCCL_H
#define SAME_NCCL(name)                                                                            \
  static_assert(SameSignature<decltype(NcclApi::name), decltype(&nccl##name)>(), "NcclApi::" #name \
                                                                                 " is not "        \
                                                                                 "nccl" #name)
SAME_NCCL(GetVersion);
SAME_NCCL(GetUniqueId);
SAME_NCCL(GetErrorString);
SAME_NCCL(GetLastError);
SAME_NCCL(CommInitRankConfig);
SAME_NCCL(CommSplit);
SAME_NCCL(CommFinalize);
SAME_NCCL(CommDestroy);
SAME_NCCL(CommAbort);
SAME_NCCL(CommGetAsyncError);
SAME_NCCL(GroupStart);
SAME_NCCL(GroupEnd);
SAME_NCCL(Send);
SAME_NCCL(Recv);
SAME_NCCL(AllGather);
SAME_NCCL(ReduceScatter);
SAME_NCCL(AllReduce);
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 28, 3)
SAME_NCCL(AlltoAll);
#endif
#undef SAME_NCCL

static_assert(sizeof(ncclUniqueId) == sizeof(NcclUniqueId) && sizeof(ncclComm_t) == sizeof(NcclComm));
static_assert(kNcclSuccess == ncclSuccess && kNcclUnhandledCudaError == ncclUnhandledCudaError);
static_assert(kNcclSystemError == ncclSystemError && kNcclInternalError == ncclInternalError);
static_assert(kNcclInvalidArgument == ncclInvalidArgument && kNcclInvalidUsage == ncclInvalidUsage);
static_assert(kNcclRemoteError == ncclRemoteError && kNcclInProgress == ncclInProgress);
static_assert(kNcclInt8 == ncclInt8 && kNcclUint8 == ncclUint8 && kNcclInt32 == ncclInt32);
static_assert(kNcclUint32 == ncclUint32 && kNcclInt64 == ncclInt64 && kNcclUint64 == ncclUint64);
static_assert(kNcclFloat16 == ncclFloat16 && kNcclFloat32 == ncclFloat32 && kNcclFloat64 == ncclFloat64);
static_assert(kNcclBfloat16 == ncclBfloat16);
static_assert(kNcclSum == ncclSum && kNcclProd == ncclProd && kNcclMax == ncclMax && kNcclMin == ncclMin);
static_assert(kNcclAvg == ncclAvg && kNcclSplitNoColor == NCCL_SPLIT_NOCOLOR);

// Ours is the beginning of theirs.
static_assert(sizeof(NcclConfig) <= sizeof(ncclConfig_t));
static_assert(offsetof(NcclConfig, size) == offsetof(ncclConfig_t, size));
static_assert(offsetof(NcclConfig, magic) == offsetof(ncclConfig_t, magic));
static_assert(offsetof(NcclConfig, version) == offsetof(ncclConfig_t, version));
static_assert(offsetof(NcclConfig, blocking) == offsetof(ncclConfig_t, blocking));
static_assert(offsetof(NcclConfig, cga_cluster_size) == offsetof(ncclConfig_t, cgaClusterSize));
static_assert(offsetof(NcclConfig, min_ctas) == offsetof(ncclConfig_t, minCTAs));
static_assert(offsetof(NcclConfig, max_ctas) == offsetof(ncclConfig_t, maxCTAs));
static_assert(offsetof(NcclConfig, net_name) == offsetof(ncclConfig_t, netName));
static_assert(offsetof(NcclConfig, split_share) == offsetof(ncclConfig_t, splitShare));
static_assert(NcclConfig().version == NCCL_VERSION(2, 18, 0));

TEST_CASE("nccl api: our config has what NCCL's initializer has") {
  const ncclConfig_t theirs = NCCL_CONFIG_INITIALIZER;
  const NcclConfig ours;
  CHECK(ours.magic == theirs.magic);
  CHECK(ours.blocking == theirs.blocking);
  CHECK(ours.cga_cluster_size == theirs.cgaClusterSize);
  CHECK(ours.min_ctas == theirs.minCTAs);
  CHECK(ours.max_ctas == theirs.maxCTAs);
  CHECK(ours.net_name == theirs.netName);
  CHECK(ours.split_share == theirs.splitShare);
}
#endif  // RESHARD_HAS_NCCL_H

bool Has(const absl::Status& status, const std::string& words) {
  INFO(status);
  CHECK(std::string(status.message()).find(words) != std::string::npos);
  return std::string(status.message()).find(words) != std::string::npos;
}

TEST_CASE("nccl api: versions as text") {
  CHECK(NcclVersionText(22809) == "2.28.9");
  CHECK(NcclVersionText(21800) == "2.18.0");
  CHECK(NcclVersionText(2804) == "2.8.4");
}

TEST_CASE("nccl api: a library that cannot be loaded, or is none, or is old, is told with what to do") {
  const auto from = [](const std::string& path) { return nccl::OpenNccl({"", path, ""}).status(); };
  const absl::Status missing = from("/no/such/libnccl.so.2");
  CHECK(missing.code() == absl::StatusCode::kUnavailable);
  Has(missing, "RESHARD_NCCL_LIBRARY is /no/such/libnccl.so.2");
  Has(missing, "No such file");

  const absl::Status other = from("libm.so.6");
  CHECK(other.code() == absl::StatusCode::kFailedPrecondition);
  Has(other, "has no function ncclGetVersion");
  Has(other, "install NCCL 2.18 or newer");

  const absl::Status old = from(RESHARD_OLD_NCCL);
  CHECK(old.code() == absl::StatusCode::kFailedPrecondition);
  Has(old, "is 2.17.1, older than 2.18");
  Has(old, RESHARD_OLD_NCCL);

  const absl::Status nowhere = nccl::OpenNccl({"libnccl_that_is_not_there.so", "", "libnccl_nor_this.so"}).status();
  CHECK(nowhere.code() == absl::StatusCode::kUnavailable);
  Has(nowhere, "libnccl_nor_this.so");
  Has(nowhere, "set RESHARD_NCCL_LIBRARY");
}

TEST_CASE("nccl api: what is in the process already is used before anything else") {
  const auto api = nccl::OpenNccl({"libm.so.6", "/no/such/libnccl.so.2", ""});
  // libm is in every process, and no NCCL.
  CHECK(api.status().code() == absl::StatusCode::kFailedPrecondition);
  Has(api.status(), "the library already in the process has no function");
}

TEST_CASE("nccl api: the NCCL of this machine, where there is one") {
  const auto api = LoadNcclApi();
  if (!api.ok()) {
    REQUIRE(api.status().code() == absl::StatusCode::kUnavailable);
    REQUIRE(absl::StrContains(api.status().message(), "RESHARD_NCCL_LIBRARY"));
    RESHARD_SKIP("NCCL: " + std::string(api.status().message()));
  }
  CHECK((*api)->version >= 21800);
  CHECK_FALSE((*api)->origin.empty());
  CHECK((*api)->GetErrorString(kNcclSuccess) == std::string("no error"));
  CHECK(((*api)->AlltoAll != nullptr) == ((*api)->version >= 22803));
  CHECK(*LoadNcclApi() == *api);
}

TEST_CASE("cuda api: no driver, a file that is not a library, no device") {
  const absl::Status missing = cuda::OpenCudaDriver("/no/such/libcuda.so.1").status();
  CHECK(missing.code() == absl::StatusCode::kUnavailable);
  Has(missing, "the CUDA driver cannot be loaded");
  Has(missing, "/no/such/libcuda.so.1");

  const absl::Status other = cuda::OpenCudaDriver("libm.so.6").status();
  CHECK(other.code() == absl::StatusCode::kUnavailable);
  Has(other, "libm.so.6 has no function cuInit");

#ifdef RESHARD_CUDA_STUB
  // The toolkit's stub has all functions by their names and versions, and does nothing. In a process of its own: once
  // loaded it would be taken for the driver.
  const pid_t child = fork();
  if (child == 0) {
    const absl::Status stub = cuda::OpenCudaDriver(RESHARD_CUDA_STUB).status();
    const bool complete = absl::IsUnavailable(stub) && !absl::StrContains(stub.message(), "has no function");
    if (!complete) std::fprintf(stderr, "%s\n", stub.ToString().c_str());
    _exit(complete ? 0 : 1);
  }
  int exit_status = -1;
  REQUIRE(waitpid(child, &exit_status, 0) == child);
  CHECK(exit_status == 0);
#endif
}

TEST_CASE("cuda api: the driver of this machine, where there is one") {
  const auto api = cuda::LoadCudaApi();
  if (!api.ok()) {
    REQUIRE(api.status().code() == absl::StatusCode::kUnavailable);
    REQUIRE(absl::StrContains(api.status().message(), "there is no GPU to be used"));
    RESHARD_SKIP("the CUDA driver: " + std::string(api.status().message()));
  }
  int devices = 0;
  CHECK((*api)->DeviceGetCount(&devices) == cuda::kCudaSuccess);
  CHECK(devices > 0);
  CHECK(*cuda::LoadCudaApi() == *api);
}

TEST_CASE("cuda api: results as statuses") {
  cuda::CudaApi api;  // a driver without words
  CHECK(cuda::CudaStatus(api, cuda::kCudaSuccess, "a copy").ok());
  CHECK(cuda::CudaStatus(api, cuda::kCudaOutOfMemory, "an allocation").code() == absl::StatusCode::kResourceExhausted);
  const absl::Status failed = cuda::CudaStatus(api, 700, "a copy");
  CHECK(failed.code() == absl::StatusCode::kInternal);
  Has(failed, "a copy: an error that the driver has no words for (CUDA error 700)");
}

}  // namespace
}  // namespace reshard::testing
