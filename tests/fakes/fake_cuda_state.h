// What the files of FakeCuda share.
#ifndef RESHARD_TESTS_FAKES_FAKE_CUDA_STATE_H_
#define RESHARD_TESTS_FAKES_FAKE_CUDA_STATE_H_

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "tests/fakes/fake_calls.h"
#include "tests/fakes/fake_cuda.h"
#include "tests/fakes/fake_streams.h"

namespace reshard::testing::fake {

// CUresult, beyond what the library tells apart.
inline constexpr cuda::CudaResult kInvalidValue = 1;
inline constexpr cuda::CudaResult kInvalidDevice = 101;
inline constexpr cuda::CudaResult kInvalidContext = 201;
inline constexpr cuda::CudaResult kInvalidHandle = 400;
inline constexpr cuda::CudaResult kNotFound = 500;
inline constexpr cuda::CudaResult kIllegalAddress = 700;
inline constexpr cuda::CudaResult kCaptureUnsupported = 900;
inline constexpr cuda::CudaResult kCaptureInvalidated = 901;
inline constexpr cuda::CudaResult kCaptureUnmatched = 903;
inline constexpr cuda::CudaResult kCaptureUnjoined = 904;
inline constexpr cuda::CudaResult kCaptureIsolation = 905;
inline constexpr cuda::CudaResult kCapturedEvent = 907;
inline constexpr cuda::CudaResult kCaptureWrongThread = 908;

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
cuda::CudaResult Enter(const char* function, Device* device, bool numbered = true);
// The same with the current device; InvalidContext without one.
cuda::CudaResult EnterCurrent(const char* function, Device** device, bool numbered = true);
// And with a stream of it.
cuda::CudaResult EnterStream(const char* function, cuda::CudaStream handle, Stream** stream, bool numbered = true);
// Complains.
cuda::CudaResult Wrong(cuda::CudaResult result, const std::string& what);
// Refuses what may not be called while a stream is captured, and spoils the capture: what a thread may call follows
// from its own mode (ThreadExchangeStreamCaptureMode), and from the mode and the thread of the capture.
cuda::CudaResult UnsafeInCapture(const char* function);
// Of this thread; 0 (global) at first.
int& CaptureModeOfThread();

// The one of `all` behind a handle; null when there is none (any more).
template <typename T>
T* Find(const std::vector<std::unique_ptr<T>>& all, const void* handle) {
  for (const auto& one : all) {
    if (one.get() == handle) return one->destroyed ? nullptr : one.get();
  }
  return nullptr;
}

void FillStreamFunctions(cuda::CudaApi* api);
void FillMemoryFunctions(cuda::CudaApi* api);

}  // namespace reshard::testing::fake

#endif  // RESHARD_TESTS_FAKES_FAKE_CUDA_STATE_H_
