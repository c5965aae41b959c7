// What tests of the fakes share: ranks with a stream and a communicator each, and device memory with values.
#ifndef RESHARD_TESTS_FAKES_FAKE_RANK_H_
#define RESHARD_TESTS_FAKES_FAKE_RANK_H_

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "tests/catch.h"
#include "tests/fakes/fake_cuda.h"
#include "tests/fakes/fake_nccl.h"
#include "tests/fakes/fake_world.h"

namespace reshard::testing {

inline const cuda::CudaApi& Cuda() { return FakeCuda::Api(); }
inline const NcclApi& Nccl() { return FakeNccl::Api(); }

// Polls while the communicator's error is `state`, for 30 s at most.
inline NcclResult PollWhile(NcclComm comm, NcclResult state) {
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(30);
  NcclResult error = state;
  while (error == state && std::chrono::steady_clock::now() < until) {
    if (const NcclResult result = Nccl().CommGetAsyncError(comm, &error)) return result;
    std::this_thread::yield();
  }
  return error;
}
// When a non-blocking communicator is ready or has an error.
inline NcclResult Ready(NcclComm comm) { return PollWhile(comm, kNcclInProgress); }

// What a rank has: its device's context, a stream, a communicator with everybody.
struct Rank {
  Rank(int own_rank, int all, const NcclUniqueId& id, bool blocking = true)
      : rank(own_rank), ranks(all), current(own_rank) {
    Cuda().StreamCreate(&stream, cuda::kCudaStreamNonBlocking);
    NcclConfig config;
    config.blocking = blocking ? 1 : 0;
    made = Nccl().CommInitRankConfig(&comm, ranks, id, rank, &config);
    if (!blocking && made == kNcclInProgress) made = Ready(comm);
  }
  ~Rank() {
    Cuda().StreamSynchronize(stream);
    Nccl().CommDestroy(comm);
    Cuda().StreamDestroy(stream);
  }
  // Ends what hangs: before the memory goes that it uses.
  void Abort() {
    Nccl().CommAbort(comm);
    comm = nullptr;
    Cuda().StreamSynchronize(stream);
  }
  // The communicator's error, as soon as it has one.
  NcclResult Error() const { return PollWhile(comm, kNcclSuccess); }
  const int rank;
  const int ranks;
  FakeCurrent current;
  cuda::CudaStream stream = nullptr;
  NcclComm comm = nullptr;
  NcclResult made = kNcclSuccess;
};

inline NcclUniqueId NewId() {
  NcclUniqueId id;
  Nccl().GetUniqueId(&id);
  return id;
}

// Runs body(rank) on all ranks with a communicator.
template <typename Body>
void OnRanks(int ranks, const Body& body, bool blocking = true) {
  const NcclUniqueId id = NewId();
  RunRanks(ranks, [&](int rank) {
    Rank self(rank, ranks, id, blocking);
    body(self);
  });
}

inline std::string All(const std::vector<std::string>& lines) {
  std::string out;
  for (const std::string& line : lines) out += line + "\n";
  return out;
}
// Empty when nothing is wrong, so that a test prints what is.
inline std::string Wrongs() { return All(FakeNccl::Complaints()) + All(FakeNccl::Leaks()); }

inline bool Complained(const std::string& words) {
  const std::string all = All(FakeNccl::Complaints());
  INFO(all);
  return all.find(words) != std::string::npos;
}

// A kernel that does not end before it is let go: what is behind it in its stream stands still.
class Gate {
 public:
  Gate() {
    // The kernel has its share of the flag: it may outlive this.
    FakeCuda::RegisterKernel("gate", {{}, [open = open_](void**, unsigned, unsigned) {
                                        while (!open->load()) std::this_thread::yield();
                                      }});
    Cuda().ModuleLoadData(&module_, "code");
    Cuda().ModuleGetFunction(&kernel_, module_, "gate");
  }
  ~Gate() {
    Open();
    Cuda().ModuleUnload(module_);
  }
  void Shut(cuda::CudaStream stream) { Cuda().LaunchKernel(kernel_, 1, 1, 1, 32, 1, 1, 0, stream, nullptr, nullptr); }
  void Open() { *open_ = true; }

 private:
  const std::shared_ptr<std::atomic<bool>> open_ = std::make_shared<std::atomic<bool>>(false);
  cuda::CudaModule module_ = nullptr;
  cuda::CudaFunction kernel_ = nullptr;
};

// Device memory of a rank, full of values.
template <typename T>
struct Array {
  Array(int device, std::vector<T> values) : size(values.size()) {
    data = static_cast<T*>(FakeCuda::Allocate(device, static_cast<int64_t>(std::max<size_t>(1, size) * sizeof(T))));
    if (size > 0) std::memcpy(data, values.data(), size * sizeof(T));
  }
  ~Array() { FakeCuda::Free(data); }
  std::vector<T> values() const { return std::vector<T>(data, data + size); }
  T* data = nullptr;
  const size_t size;
};

}  // namespace reshard::testing

#endif  // RESHARD_TESTS_FAKES_FAKE_RANK_H_
