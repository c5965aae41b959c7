// CudaDevice over the fakes: launches in captures and on several streams, and memory of streams that are gone.
#include "runtime/cuda/device.h"

#include <chrono>
#include <memory>
#include <numeric>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tests/catch.h"
#include "tests/fakes/fake_rank.h"
#include "tests/fakes/nccl_world.h"

namespace reshard {
namespace {

using testing::Cuda;
using testing::FakeCuda;
using testing::FakeWorld;
using testing::Gate;
using Numbers = testing::Array<int>;

constexpr int kCaptureGlobal = 0;  // what torch.cuda.graph begins

std::unique_ptr<cuda::CudaDevice> Open() {
  testing::RegisterKernels();
  auto device = cuda::CudaDevice::Open(Cuda(), 0, nullptr, testing::kFakeImage);
  REQUIRE(device.ok());
  return *std::move(device);
}

// Number i of `from` to number i of `to`, each with a base address of its own.
struct OneByOne {
  explicit OneByOne(int count) {
    copy = StridedCopy(WholeRegion(std::vector<int64_t>{1}), 4, std::vector<int64_t>{1}, std::vector<int64_t>{1});
    std::vector<cuda::CopyJob> jobs;
    for (int i = 0; i < count; ++i) jobs.push_back({&copy, 2 * i, 0, 2 * i + 1, 0});
    table = cuda::MakeCopyTable(jobs);
  }
  static std::vector<void*> Bases(const Numbers& from, const Numbers& to) {
    std::vector<void*> bases;
    for (size_t i = 0; i < from.size; ++i) {
      bases.push_back(from.data + i);
      bases.push_back(to.data + i);
    }
    return bases;
  }
  StridedCopy copy;
  cuda::CopyTable table;
};

cuda::CudaStream NewStream() {
  cuda::CudaStream stream = nullptr;
  CHECK(Cuda().StreamCreate(&stream, cuda::kCudaStreamNonBlocking) == cuda::kCudaSuccess);
  return stream;
}

TEST_CASE("a launch with more addresses than fit into its parameters can be captured, and replayed") {
  const int mode = GENERATE(kCaptureGlobal, cuda::kCudaCaptureThreadLocal);
  const FakeWorld fakes(1);
  {
    const std::unique_ptr<cuda::CudaDevice> device = Open();
    const cuda::CudaDevice::Current current(*device);
    cuda::CudaStream const stream = NewStream();
    const int count = cuda::KernelBases::kInline;  // two addresses each
    const Numbers from(0, std::vector<int>(count)), to(0, std::vector<int>(count, -1));
    std::iota(from.data, from.data + count, 100);
    const OneByOne copies(count);
    absl::StatusOr<cuda::UploadedTable> table = device->Upload(copies.table);
    REQUIRE(table.ok());
    const std::vector<void*> bases = OneByOne::Bases(from, to);
    // Once before: then a slot is there whose event may be looked at.
    CHECK(device->Launch(*table, bases, stream).ToString() == "OK");
    Cuda().StreamSynchronize(stream);
    CHECK(to.values() == from.values());

    CHECK(Cuda().StreamBeginCapture(stream, mode) == cuda::kCudaSuccess);
    for (int i = 0; i < 2; ++i) CHECK(device->Launch(*table, bases, stream).ToString() == "OK");
    cuda::CudaGraph graph = nullptr;
    REQUIRE(Cuda().StreamEndCapture(stream, &graph) == cuda::kCudaSuccess);
    cuda::CudaGraphExec exec = nullptr;
    REQUIRE(Cuda().GraphInstantiateWithFlags(&exec, graph, 0) == cuda::kCudaSuccess);
    for (int round = 0; round < 3; ++round) {
      for (int i = 0; i < count; ++i) from.data[i] = 1000 * round + i;
      CHECK(Cuda().GraphLaunch(exec, stream) == cuda::kCudaSuccess);
      Cuda().StreamSynchronize(stream);
      CHECK(to.values() == from.values());
    }
    Cuda().GraphExecDestroy(exec);
    Cuda().GraphDestroy(graph);
    Cuda().StreamDestroy(stream);
  }
  CHECK(FakeCuda::Complaints() == std::vector<std::string>());
}

TEST_CASE("a table goes when the launches on all streams have ended, however many these are") {
  const int streams = GENERATE(2, 8, 11);
  const FakeWorld fakes(1);
  {
    const std::unique_ptr<cuda::CudaDevice> device = Open();
    const cuda::CudaDevice::Current current(*device);
    std::vector<cuda::CudaStream> all;
    for (int s = 0; s < streams; ++s) all.push_back(NewStream());
    const Numbers from(0, {5, 6, 7});
    std::vector<std::unique_ptr<Numbers>> to;
    for (int s = 0; s < streams; ++s) to.push_back(std::make_unique<Numbers>(0, std::vector<int>(3, -1)));
    {
      Gate gate;
      {
        const OneByOne copies(3);
        absl::StatusOr<cuda::UploadedTable> table = device->Upload(copies.table);
        REQUIRE(table.ok());
        gate.Shut(all[0]);  // the others are done long before this one has begun
        for (int s = 0; s < streams; ++s) {
          CHECK(device->Launch(*table, OneByOne::Bases(from, *to[s]), all[s]).ToString() == "OK");
        }
      }
      for (int s = 1; s < streams; ++s) Cuda().StreamSynchronize(all[s]);
      std::this_thread::sleep_for(std::chrono::milliseconds(20));  // so that a table that goes too early has gone
      gate.Open();
      Cuda().StreamSynchronize(all[0]);
    }
    for (const auto& numbers : to) CHECK(numbers->values() == from.values());
    for (cuda::CudaStream stream : all) Cuda().StreamDestroy(stream);
  }
  CHECK(FakeCuda::Complaints() == std::vector<std::string>());
  CHECK(FakeCuda::Leaks() == std::vector<std::string>());
}

TEST_CASE("memory whose stream is gone is freed when the device is done with all it has") {
  const FakeWorld fakes(1);
  {
    const std::unique_ptr<cuda::CudaDevice> device = Open();
    const cuda::CudaDevice::Current current(*device);
    cuda::CudaStream const stream = NewStream();
    absl::StatusOr<cuda::DeviceBlock> block = device->Allocate(64, stream);
    REQUIRE(block.ok());
    Cuda().StreamDestroy(stream);
  }
  const std::vector<std::string> complaints = FakeCuda::Complaints();
  REQUIRE(complaints.size() == 1);  // of a driver that looks at the handle
  CHECK(complaints[0].find("MemFreeAsync on a stream that is not there") == 0);
  CHECK(FakeCuda::Leaks() == std::vector<std::string>());
}

}  // namespace
}  // namespace reshard
