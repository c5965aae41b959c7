// A backend for tensors of GPUs that behaves as ProcessGroupNCCL does on streams, over the fake driver and a backend
// for host memory.
//
// It has a stream of its own: what is asked for in a group begins there after what the current stream has, and the
// work object of the group makes the current stream wait for it; nobody waits on the host. A collective alone runs on
// the current stream and has no work object. What cannot end, because a rank is gone, hangs on the device until the
// backend is aborted. The open group is kept in plain members: nobody else may use the backend meanwhile, and it says
// so where somebody does.
#ifndef RESHARD_TESTS_RUNTIME_PYTORCH_FAKES_STREAM_BACKEND_H_
#define RESHARD_TESTS_RUNTIME_PYTORCH_FAKES_STREAM_BACKEND_H_

#include <ATen/ops/from_blob.h>

#include <chrono>
#include <condition_variable>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <utility>
#include <vector>

#include "runtime/cuda/device.h"
#include "tests/fakes/fake_cuda.h"
#include "tests/fakes/nccl_world.h"

namespace reshard {

class StreamBackend final : public c10d::Backend {
 public:
  using Made = c10::intrusive_ptr<c10d::Work>;

  // `current`: the stream that is current for the caller. What takes longer than `timeout` below hangs here.
  StreamBackend(c10::intrusive_ptr<c10d::Backend> below, const cuda::CudaDevice& device,
                std::function<cuda::CudaStream()> current, std::chrono::milliseconds timeout)
      : Backend(below->getRank(), below->getSize()),
        below_(std::move(below)),
        device_(device),
        current_(std::move(current)),
        timeout_(timeout) {
    setGroupUid(below_->getGroupUid());  // a group asks any of its backends for its name
    testing::FakeCuda::RegisterKernel("c10d", {{sizeof(Task*)}, [](void** parameters, unsigned, unsigned) {
                                                 std::unique_ptr<Task>(*static_cast<Task**>(parameters[0]))->Run();
                                               }});
    const cuda::CudaDevice::Current context(device_);
    cuda::CudaModule module = nullptr;
    Check(Cuda().StreamCreate(&own_, cuda::kCudaStreamNonBlocking));
    Check(Cuda().ModuleLoadData(&module, testing::kFakeImage));
    Check(Cuda().ModuleGetFunction(&run_, module, "c10d"));
  }

  const std::string getBackendName() const override { return "on a stream"; }
  bool supportsCoalescing() const override { return true; }

  void startCoalescing() override {
    TORCH_CHECK(!open_, "a group within a group");
    open_ = true;
    thread_ = std::this_thread::get_id();
  }
  // Null when nothing was asked for, and when all of it was to run on the current stream.
  Made endCoalescing() override {
    TORCH_CHECK(open_, "the end of a group that was not begun");
    CheckThread();
    open_ = false;
    std::vector<std::function<Made()>> calls = std::exchange(calls_, {});
    if (calls.empty()) return nullptr;
    const cuda::CudaDevice::Current context(device_);
    WaitFor(own_, EventOn(current_()));
    Enqueue(own_, std::move(calls));
    auto work = c10::make_intrusive<OnStream>(this, EventOn(own_));
    if (!loses_work_) return work;
    Check(Cuda().StreamSynchronize(own_));  // nothing may arrive in memory that is given up
    return nullptr;
  }
  // From now on groups have no work objects, as if all in them had run on the current stream.
  void LoseWork() { loses_work_ = true; }

  void abort() override {
    const std::lock_guard<std::mutex> lock(mutex_);
    aborted_ = true;
    changed_.notify_all();
  }

  Made send(std::vector<at::Tensor>& tensors, int peer, int tag) override {
    TORCH_CHECK(open_, "a message outside of a group");
    return Ask([this, host = OnHost(tensors[0]), peer, tag] {
      std::vector<at::Tensor> one = {host};
      return below_->send(one, peer, tag);
    });
  }
  Made recv(std::vector<at::Tensor>& tensors, int peer, int tag) override {
    TORCH_CHECK(open_, "a message outside of a group");
    return Ask([this, host = OnHost(tensors[0]), peer, tag] {
      std::vector<at::Tensor> one = {host};
      return below_->recv(one, peer, tag);
    });
  }
  Made _allgather_base(at::Tensor& out, at::Tensor& in, const c10d::AllgatherOptions& options) override {
    CheckPlace(options.asyncOp);
    return Ask([this, out = OnHost(out), in = OnHost(in)]() mutable { return below_->_allgather_base(out, in); });
  }
  Made alltoall_base(at::Tensor& out, at::Tensor& in, std::vector<int64_t>& to, std::vector<int64_t>& from,
                     const c10d::AllToAllOptions& options) override {
    CheckPlace(options.asyncOp);
    return Ask([this, out = OnHost(out), in = OnHost(in), to, from]() mutable {
      return below_->alltoall_base(out, in, to, from);
    });
  }
  Made _reduce_scatter_base(at::Tensor& out, at::Tensor& in, const c10d::ReduceScatterOptions& options) override {
    CheckPlace(options.asyncOp);
    return Ask([this, out = OnHost(out), in = OnHost(in), options]() mutable {
      return below_->_reduce_scatter_base(out, in, options);
    });
  }
  Made allreduce(std::vector<at::Tensor>& tensors, const c10d::AllreduceOptions& options) override {
    CheckPlace(options.asyncOp);
    return Ask([this, host = OnHost(tensors[0]), options] {
      std::vector<at::Tensor> one = {host};
      return below_->allreduce(one, options);
    });
  }

 private:
  // Calls below that begin when the stream comes to them, and are done when all are.
  struct Task {
    StreamBackend& backend;
    std::vector<std::function<Made()>> calls;
    void Run() {
      try {
        std::vector<Made> works;
        for (const auto& call : calls) works.push_back(call());
        for (const Made& work : works) TORCH_CHECK(work->wait(backend.timeout_), "the time was over");
      } catch (const std::exception&) {
        std::unique_lock<std::mutex> lock(backend.mutex_);
        backend.changed_.wait(lock, [this] { return backend.aborted_; });
      }
    }
  };
  struct OnStream final : c10d::Work {
    OnStream(StreamBackend* its_backend, cuda::CudaEvent its_end) : backend(*its_backend), end(its_end) {}
    ~OnStream() override {
      const cuda::CudaDevice::Current context(backend.device_);
      Cuda().EventDestroy(end);
    }
    bool wait(std::chrono::milliseconds timeout) override {
      TORCH_CHECK(timeout == kNoTimeout, "with a time the host would wait");
      const cuda::CudaDevice::Current context(backend.device_);
      Check(Cuda().StreamWaitEvent(backend.current_(), end, 0));
      return true;
    }
    StreamBackend& backend;
    const cuda::CudaEvent end;
  };

  static const cuda::CudaApi& Cuda() { return testing::FakeCuda::Api(); }
  static void Check(cuda::CudaResult result) { TORCH_CHECK(result == cuda::kCudaSuccess, "the driver says ", result); }
  // The same memory, for a backend of the host: a fake device's memory is the host's.
  static at::Tensor OnHost(const at::Tensor& tensor) {
    TORCH_CHECK(tensor.is_cuda(), "a tensor of the host for a backend of GPUs");
    return at::from_blob(tensor.mutable_data_ptr(), tensor.sizes(), tensor.options().device(at::kCPU));
  }

  void CheckThread() const {
    TORCH_CHECK(std::this_thread::get_id() == thread_, "a call from another thread than that of the open group");
  }
  void CheckPlace(bool async) const {
    TORCH_CHECK(async == open_, "alone it runs on the current stream, in a group on the backend's");
  }
  Made Ask(std::function<Made()> call) {
    if (open_) {
      CheckThread();
      calls_.push_back(std::move(call));
      return nullptr;
    }
    const cuda::CudaDevice::Current context(device_);
    Enqueue(current_(), {std::move(call)});
    return nullptr;
  }

  cuda::CudaEvent EventOn(cuda::CudaStream stream) const {
    cuda::CudaEvent event = nullptr;
    Check(Cuda().EventCreate(&event, cuda::kCudaEventDisableTiming));
    Check(Cuda().EventRecord(event, stream));
    return event;
  }
  static void WaitFor(cuda::CudaStream stream, cuda::CudaEvent event) {
    Check(Cuda().StreamWaitEvent(stream, event, 0));
    Check(Cuda().EventDestroy(event));
  }
  void Enqueue(cuda::CudaStream stream, std::vector<std::function<Made()>> calls) {
    Task* task = new Task{*this, std::move(calls)};  // the kernel's, when it runs
    void* parameters[] = {&task};
    Check(Cuda().LaunchKernel(run_, 1, 1, 1, 1, 1, 1, 0, stream, parameters, nullptr));
  }

  const c10::intrusive_ptr<c10d::Backend> below_;
  const cuda::CudaDevice& device_;
  const std::function<cuda::CudaStream()> current_;
  const std::chrono::milliseconds timeout_;
  cuda::CudaStream own_ = nullptr;
  cuda::CudaFunction run_ = nullptr;

  bool open_ = false;
  std::thread::id thread_;  // of the open group
  std::vector<std::function<Made()>> calls_;
  bool loses_work_ = false;

  std::mutex mutex_;
  std::condition_variable changed_;
  bool aborted_ = false;  // guarded by mutex_
};

}  // namespace reshard

#endif  // RESHARD_TESTS_RUNTIME_PYTORCH_FAKES_STREAM_BACKEND_H_
