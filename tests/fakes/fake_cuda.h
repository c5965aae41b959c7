// The CUDA driver's functions on devices that are not there (see fake_streams.h): a CudaApi for tests. Device memory is
// memory of the host, so a test may read and write it where no stream uses it.
//
// Checked beyond what a driver checks, each told by Complaints(): memory that is used after it was freed, before it was
// allocated in the order of streams, beyond its end, or by another device; writes around blocks; handles that are not
// (or no longer) there; calls without a current context or with another device's; calls during a capture that may not
// be made then.
//
// Not as on a device: the default stream does not wait for other streams; a captured graph runs as one chain.
#ifndef RESHARD_TESTS_FAKES_FAKE_CUDA_H_
#define RESHARD_TESTS_FAKES_FAKE_CUDA_H_

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "runtime/cuda/cuda_api.h"

namespace reshard::testing {

class FakeCuda {
 public:
  static const cuda::CudaApi& Api();

  // Ends everything and starts anew with so many devices. Kernels stay registered.
  static void Reset(int devices);

  // What cuModuleGetFunction finds by this name in every module. It runs on the thread of its stream with copies of
  // the parameters.
  struct Kernel {
    std::vector<size_t> parameter_bytes;
    std::function<void(void** parameters, unsigned grid, unsigned block)> run;
  };
  static void RegisterKernel(const std::string& name, Kernel kernel);

  // The calls of this thread from now on are the rank's: they are numbered from 0, but for those that poll or name
  // errors (EventQuery, StreamQuery, GetErrorString), which no test can number. Calls of other threads are counted by
  // function only, for the rank whose device they concern.
  static void BindRank(int rank);
  static int64_t Calls(int rank);
  static int64_t Calls(int rank, const std::string& function);
  // That call returns `result` and does nothing. From 700 on an error stays: everything on the device returns it.
  static void FailAt(int rank, int64_t call, cuda::CudaResult result);
  // The same for the nth call, from 0, of a function, by any thread.
  static void FailAt(int rank, const std::string& function, int64_t nth, cuda::CudaResult result);

  // Streams start their tasks after pauses of random length.
  static void Jitter(uint64_t seed);
  // Device memory that may be used at once, until it is freed.
  static void* Allocate(int device, int64_t bytes);
  static void Free(void* memory);

  static std::vector<std::string> Complaints();
  static std::vector<std::string> Leaks();
};

}  // namespace reshard::testing

#endif  // RESHARD_TESTS_FAKES_FAKE_CUDA_H_
