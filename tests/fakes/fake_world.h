// A world of ranks that are threads of this process, on the devices of fake_cuda.h and the NCCL of fake_nccl.h.
#ifndef RESHARD_TESTS_FAKES_FAKE_WORLD_H_
#define RESHARD_TESTS_FAKES_FAKE_WORLD_H_

#include <chrono>
#include <condition_variable>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "reshard/nccl/nccl_communicator.h"
#include "tests/fakes/fake_cuda.h"
#include "tests/fakes/fake_nccl.h"

namespace reshard::testing {

// Calls body(rank) in a thread of its own for each of `ranks` ranks, whose calls of FakeCuda and FakeNccl are that
// rank's, and returns when all have returned.
// Catch2's assertions are not thread-safe: bodies leave what they find for the caller to check.
inline void RunRanks(int ranks, const std::function<void(int rank)>& body) {
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&body, rank] {
      FakeCuda::BindRank(rank);
      body(rank);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

// So many devices while it lives, one per rank. Nothing of the one before is left, nothing of this one stays.
class FakeWorld {
 public:
  explicit FakeWorld(int devices, const FakeNcclOptions& options = {}) {
    FakeCuda::Reset(devices);
    FakeNccl::Reset(options);
  }
  ~FakeWorld() {
    FakeCuda::Reset(0);
    FakeNccl::Reset();
  }
  FakeWorld(const FakeWorld&) = delete;
  FakeWorld& operator=(const FakeWorld&) = delete;
};

// Makes a device's context current for the thread while it lives, as PyTorch does for its user.
class FakeCurrent {
 public:
  explicit FakeCurrent(int device) : device_(device) {
    cuda::CudaContext context = nullptr;
    FakeCuda::Api().DevicePrimaryCtxRetain(&context, device);
    FakeCuda::Api().CtxPushCurrent(context);
  }
  ~FakeCurrent() {
    cuda::CudaContext context = nullptr;
    FakeCuda::Api().CtxPopCurrent(&context);
    FakeCuda::Api().DevicePrimaryCtxRelease(device_);
  }
  FakeCurrent(const FakeCurrent&) = delete;
  FakeCurrent& operator=(const FakeCurrent&) = delete;

 private:
  const int device_;
};

// A map between the threads.
class MapStore final : public RendezvousStore {
 public:
  absl::Status Set(const std::string& key, const std::string& value) override {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (!failure_.ok()) return failure_;
    if (!values_.emplace(key, value).second) {
      return absl::AlreadyExistsError(absl::StrCat("key '", key, "' is written twice"));
    }
    changed_.notify_all();
    return absl::OkStatus();
  }

  absl::StatusOr<std::string> Get(const std::string& key, absl::Duration timeout) override {
    std::unique_lock<std::mutex> lock(mutex_);
    const auto there = [&] { return !failure_.ok() || values_.count(key) > 0; };
    if (!changed_.wait_for(lock, absl::ToChronoMilliseconds(timeout), there)) {
      return absl::DeadlineExceededError(absl::StrCat("nobody wrote key '", key, "'"));
    }
    if (!failure_.ok()) return failure_;
    return values_.at(key);
  }

  absl::StatusOr<std::optional<std::string>> TryGet(const std::string& key) override {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (!failure_.ok()) return failure_;
    const auto it = values_.find(key);
    if (it == values_.end()) return std::optional<std::string>();
    return std::optional<std::string>(it->second);
  }

  // Every call returns it from now on, as when the store's server has gone; OK ends that.
  void Fail(const absl::Status& failure) {
    const std::lock_guard<std::mutex> lock(mutex_);
    failure_ = failure;
    changed_.notify_all();
  }

  std::map<std::string, std::string> values() {
    const std::lock_guard<std::mutex> lock(mutex_);
    return values_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  absl::Status failure_;
  std::map<std::string, std::string> values_;
};

}  // namespace reshard::testing

#endif  // RESHARD_TESTS_FAKES_FAKE_WORLD_H_
