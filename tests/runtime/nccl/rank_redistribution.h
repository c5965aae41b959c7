// A redistribution that tests make again and again, on a rank of the fakes.
#ifndef RESHARD_TESTS_RUNTIME_NCCL_RANK_REDISTRIBUTION_H_
#define RESHARD_TESTS_RUNTIME_NCCL_RANK_REDISTRIBUTION_H_

#include <algorithm>
#include <cstdint>
#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "reshard/nccl/nccl_communicator.h"
#include "reshard/runtime/executor.h"
#include "runtime/cuda/device.h"
#include "tests/fakes/fake_rank.h"
#include "tests/runtime/cases.h"

namespace reshard::testing {

// One rank's redistribution of f32 over a communicator on fake devices, on a stream of its own: once, or captured into
// graphs. What the elements are does not matter.
class RankRedistribution {
 public:
  RankRedistribution(NcclCommunicator& comm, const Case& problem) : comm_(comm), rank_(static_cast<int>(comm.rank())) {
    const cuda::CudaDevice::Current current(comm_.device());
    Cuda().StreamCreate(&stream_, cuda::kCudaStreamNonBlocking);
    const auto room = [&](const Dims& shape) {
      const int64_t bytes = NumElements(shape) * 4;
      TensorView view = DenseView(FakeCuda::Allocate(rank_, bytes), DType::kF32, shape);
      std::fill_n(static_cast<char*>(view.data), bytes, '\0');
      view.memory = MemoryKind::kCuda;
      return view;
    };
    const Plan plan = PlanOf(problem, DType::kF32).value();
    auto program = std::make_shared<const Program>(CompileProgram(plan, rank_, {comm_.copies(), true}).value());
    source_ = room(program->source().shape);
    target_ = room(program->target().shape);
    executor_ = Executor::Create(std::move(program), &comm_, Agreement::kOff);
  }
  ~RankRedistribution() {
    const cuda::CudaDevice::Current current(comm_.device());
    Cuda().StreamSynchronize(stream_);
    comm_.UseStream(nullptr);
    Cuda().StreamDestroy(stream_);
    FakeCuda::Free(source_.data);
    FakeCuda::Free(target_.data);
  }
  RankRedistribution(const RankRedistribution&) = delete;
  RankRedistribution& operator=(const RankRedistribution&) = delete;

  // Enqueues it, without agreement.
  absl::Status Enqueue() {
    comm_.UseStream(stream_);
    return executor_->Execute(source_, target_).status();
  }
  // Waits for it.
  absl::Status Run() {
    const absl::Status status = Enqueue();
    return status.ok() ? comm_.Wait() : status;
  }
  cuda::CudaGraphExec Capture() {
    const cuda::CudaDevice::Current current(comm_.device());
    cuda::CudaGraph graph = nullptr;
    cuda::CudaGraphExec exec = nullptr;
    Cuda().StreamBeginCapture(stream_, cuda::kCudaCaptureThreadLocal);
    Enqueue().IgnoreError();
    Cuda().StreamEndCapture(stream_, &graph);
    Cuda().GraphInstantiateWithFlags(&exec, graph, 0);
    Cuda().GraphDestroy(graph);  // what was instantiated keeps it
    return exec;
  }

 private:
  NcclCommunicator& comm_;
  const int rank_;
  cuda::CudaStream stream_ = nullptr;
  TensorView source_, target_;
  absl::StatusOr<Executor> executor_ = absl::UnknownError("");
};

}  // namespace reshard::testing

#endif  // RESHARD_TESTS_RUNTIME_NCCL_RANK_REDISTRIBUTION_H_
