// What the files of FakeCuda share.
#ifndef RESHARD_TESTS_NCCL_FAKE_CUDA_STATE_H_
#define RESHARD_TESTS_NCCL_FAKE_CUDA_STATE_H_

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "tests/nccl/fake_calls.h"
#include "tests/nccl/fake_cuda.h"
#include "tests/nccl/fake_streams.h"

namespace reshard::testing::fake {

// CUresult, beyond what the library tells apart.
inline constexpr CudaResult kInvalidValue = 1;
inline constexpr CudaResult kInvalidDevice = 101;
inline constexpr CudaResult kInvalidContext = 201;
inline constexpr CudaResult kInvalidHandle = 400;
inline constexpr CudaResult kNotFound = 500;
inline constexpr CudaResult kIllegalAddress = 700;
inline constexpr CudaResult kCaptureUnsupported = 900;
inline constexpr CudaResult kCaptureInvalidated = 901;
inline constexpr CudaResult kCaptureUnmatched = 903;
inline constexpr CudaResult kCaptureUnjoined = 904;
inline constexpr CudaResult kCaptureIsolation = 905;
inline constexpr CudaResult kCapturedEvent = 907;
inline constexpr CudaResult kCaptureWrongThread = 908;

// What ModuleLoadData and ModuleGetFunction make.
struct Function {
  const FakeCuda::Kernel* kernel = nullptr;
  Device* device = nullptr;
};
struct Module {
  Device* device = nullptr;
  bool unloaded = false;
};
struct CudaState {
  CallBook book;
  std::map<std::string, FakeCuda::Kernel> kernels;
  std::vector<std::unique_ptr<Function>> functions;
  std::vector<std::unique_ptr<Module>> modules;
};
CudaState& TheCuda();

// One call, with the lock: counted, and stopped by what a test planned or by an error that stays.
CudaResult Enter(const char* function, Device* device, bool numbered = true);
// The same with the current device; InvalidContext without one.
CudaResult EnterCurrent(const char* function, Device** device, bool numbered = true);
// And with a stream of it.
CudaResult EnterStream(const char* function, CudaStream handle, Stream** stream, bool numbered = true);
// Complains.
CudaResult Wrong(CudaResult result, const std::string& what);
// Refuses what may not be called while a stream is captured by this thread, and spoils the capture.
CudaResult UnsafeInCapture(const char* function);

// The one of `all` behind a handle; null when there is none (any more).
template <typename T>
T* Find(const std::vector<std::unique_ptr<T>>& all, const void* handle) {
  for (const auto& one : all) {
    if (one.get() == handle) return one->destroyed ? nullptr : one.get();
  }
  return nullptr;
}

void FillStreamFunctions(CudaApi* api);
void FillMemoryFunctions(CudaApi* api);

}  // namespace reshard::testing::fake

#endif  // RESHARD_TESTS_NCCL_FAKE_CUDA_STATE_H_
