// Communicators that end, or are lost, while graphs that were captured over them are still there: NCCL waits for the
// graphs, and nobody else may.
#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/time/clock.h"
#include "reshard/nccl/nccl_communicator.h"
#include "tests/catch.h"
#include "tests/fakes/fake_rank.h"
#include "tests/fakes/nccl_world.h"
#include "tests/runtime/cases.h"
#include "tests/runtime/nccl/rank_run.h"

namespace reshard {
namespace {

using testing::Cuda;
using testing::FakeCuda;
using testing::FakeCurrent;
using testing::FakeNccl;
using testing::FakeWorld;
using testing::PlanOf;
using testing::RunNcclRanks;

constexpr int kRanks = 3;
// Long before anything that waits for a graph gives up.
constexpr absl::Duration kInTime = absl::Seconds(20);

// A redistribution of one rank over a communicator, and graphs of it.
class Redistribution {
 public:
  explicit Redistribution(NcclCommunicator& comm) : comm_(comm), rank_(static_cast<int>(comm.rank())) {
    const cuda::CudaDevice::Current current(comm_.device());
    Cuda().StreamCreate(&stream_, cuda::kCudaStreamNonBlocking);
    comm_.UseStream(stream_);
    const auto room = [&](std::vector<int64_t> shape) {
      const int64_t bytes = NumElements(shape) * 4;
      TensorView view = DenseView(FakeCuda::Allocate(rank_, bytes), DType::kF32, shape);
      std::fill_n(static_cast<char*>(view.data), bytes, '\0');
      view.memory = MemoryKind::kCuda;
      return view;
    };
    source_ = room({3, 9});
    target_ = room({9, 3});
    const Plan plan = PlanOf({"{X:3}", "[<X>9, 9]", "[9, <X>9]"}, DType::kF32).value();
    auto program = std::make_shared<const Program>(CompileProgram(plan, rank_, {comm_.copies(), true}).value());
    executor_ = Executor::Create(std::move(program), &comm_, Agreement::kEveryCall);
  }
  ~Redistribution() {
    const cuda::CudaDevice::Current current(comm_.device());
    Cuda().StreamSynchronize(stream_);
    comm_.UseStream(nullptr);
    Cuda().StreamDestroy(stream_);
    FakeCuda::Free(source_.data);
    FakeCuda::Free(target_.data);
  }
  Redistribution(const Redistribution&) = delete;
  Redistribution& operator=(const Redistribution&) = delete;

  absl::Status Run() {
    const absl::Status status = executor_->Execute(source_, target_).status();
    return status.ok() ? comm_.Wait() : status;
  }
  cuda::CudaGraphExec Capture() {
    const cuda::CudaDevice::Current current(comm_.device());
    cuda::CudaGraph graph = nullptr;
    cuda::CudaGraphExec exec = nullptr;
    Cuda().StreamBeginCapture(stream_, cuda::kCudaCaptureThreadLocal);
    executor_->Execute(source_, target_).status().IgnoreError();
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

using Graphs = std::vector<cuda::CudaGraphExec>;

void Destroy(const Graphs& graphs) {
  for (size_t rank = 0; rank < graphs.size(); ++rank) {
    const FakeCurrent current(static_cast<int>(rank));
    CHECK(graphs[rank] != nullptr);
    CHECK(Cuda().GraphExecDestroy(graphs[rank]) == cuda::kCudaSuccess);
  }
}

TEST_CASE("a communicator goes while a graph of it is there, and ends as ever after the graph") {
  const bool graph_first = GENERATE(true, false);
  const FakeWorld fakes(kRanks);
  Graphs graphs(kRanks);
  const absl::Time begin = absl::Now();
  for (const absl::Status& status : RunNcclRanks(kRanks, {}, [&](NcclCommunicator& comm) {
         Redistribution redistribution(comm);
         absl::Status ran = redistribution.Run();
         cuda::CudaGraphExec& graph = graphs[static_cast<size_t>(comm.rank())];
         if (ran.ok()) graph = redistribution.Capture();
         if (!graph_first) return ran;
         const cuda::CudaDevice::Current current(comm.device());
         Cuda().GraphExecDestroy(graph);
         return ran;
       })) {
    CHECK(status.ToString() == "OK");
  }
  CHECK(absl::Now() - begin < kInTime);
  const std::vector<std::string> leaks = FakeNccl::Leaks();
  if (graph_first) {
    CHECK(leaks == std::vector<std::string>());
  } else {
    CHECK_FALSE(leaks.empty());  // the communicators, and what is in the graphs
    Destroy(graphs);
  }
  CHECK(FakeNccl::Complaints() == std::vector<std::string>());
}

TEST_CASE("a rank that stays away is named while a graph is there") {
  const FakeWorld fakes(kRanks);
  Graphs graphs(kRanks);
  NcclOptions options;
  options.timeout = absl::Milliseconds(250);
  const absl::Time begin = absl::Now();
  const std::vector<absl::Status> statuses = RunNcclRanks(kRanks, options, [&](NcclCommunicator& comm) {
    Redistribution redistribution(comm);
    absl::Status ran = redistribution.Run();
    if (ran.ok()) graphs[static_cast<size_t>(comm.rank())] = redistribution.Capture();
    if (!ran.ok() || comm.rank() == 2) return ran.ok() ? absl::CancelledError("elsewhere") : ran;
    ran = redistribution.Run();
    const absl::Status later = redistribution.Run();
    return later.ok() ? absl::InternalError("a lost communicator works") : ran;
  });
  CHECK(absl::Now() - begin < kInTime);
  for (int rank = 0; rank < 2; ++rank) {
    INFO(statuses[static_cast<size_t>(rank)]);
    CHECK(absl::StrContains(statuses[static_cast<size_t>(rank)].message(), "rank 2"));
  }
  Destroy(graphs);
  CHECK(FakeNccl::Complaints() == std::vector<std::string>());
}

}  // namespace
}  // namespace reshard
