// The rules of FakeCuda.
#include <chrono>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "tests/catch.h"
#include "tests/fakes/fake_rank.h"

namespace reshard::testing {
namespace {

using Results = std::vector<cuda::CudaResult>;

cuda::CudaPointer At(const void* memory) { return reinterpret_cast<cuda::CudaPointer>(memory); }

cuda::CudaStream NewStream() {
  cuda::CudaStream stream = nullptr;
  Cuda().StreamCreate(&stream, cuda::kCudaStreamNonBlocking);
  return stream;
}
cuda::CudaEvent NewEvent(unsigned flags = cuda::kCudaEventDisableTiming) {
  cuda::CudaEvent event = nullptr;
  Cuda().EventCreate(&event, flags);
  return event;
}

// A device whose context is current, two streams, an event and a pool.
// Pinned memory, whose copies wait for their turn.
struct Pinned {
  explicit Pinned(const std::vector<int>& values) : size(values.size()) {
    void* memory = nullptr;
    Cuda().MemAllocHost(&memory, size * sizeof(int));
    data = static_cast<int*>(memory);
    std::copy(values.begin(), values.end(), data);
  }
  ~Pinned() { Cuda().MemFreeHost(data); }
  std::vector<int> values() const { return std::vector<int>(data, data + size); }
  const size_t size;
  int* data = nullptr;
};

struct OneDevice {
  OneDevice() {
    cuda::CudaMemPoolProps props;
    Cuda().MemPoolCreate(&pool, &props);
  }
  ~OneDevice() {
    Cuda().StreamSynchronize(first);
    Cuda().StreamSynchronize(second);
    Cuda().MemPoolDestroy(pool);
    Cuda().EventDestroy(event);
    Cuda().StreamDestroy(first);
    Cuda().StreamDestroy(second);
  }
  cuda::CudaPointer Allocate(size_t bytes, cuda::CudaStream stream) const {
    cuda::CudaPointer memory = 0;
    CHECK(Cuda().MemAllocFromPoolAsync(&memory, bytes, pool, stream) == cuda::kCudaSuccess);
    return memory;
  }
  FakeCurrent current{0};
  cuda::CudaStream first = NewStream();
  cuda::CudaStream second = NewStream();
  cuda::CudaEvent event = NewEvent();
  cuda::CudaMemPool pool = nullptr;
};

TEST_CASE("fake cuda: a stream does one thing after the other, and the host may look") {
  FakeWorld world(1);
  {
    OneDevice device;
    Gate gate;
    std::vector<int> host = {1, 2, 3};
    const Pinned back({0, 0, 0});
    gate.Shut(device.first);
    const cuda::CudaPointer memory = device.Allocate(12, device.first);
    Cuda().MemcpyAsync(memory, At(host.data()), 12, device.first);
    Cuda().MemcpyAsync(At(back.data), memory, 12, device.first);
    Cuda().MemFreeAsync(memory, device.first);
    Cuda().EventRecord(device.event, device.first);
    CHECK(Cuda().StreamQuery(device.first) == cuda::kCudaNotReady);
    CHECK(Cuda().StreamQuery(device.second) == cuda::kCudaSuccess);
    CHECK(Cuda().EventQuery(device.event) == cuda::kCudaNotReady);
    CHECK(back.data[0] == 0);
    gate.Open();
    CHECK(Cuda().StreamSynchronize(device.first) == cuda::kCudaSuccess);
    CHECK(Cuda().EventQuery(device.event) == cuda::kCudaSuccess);
    CHECK(back.values() == host);
  }
  CHECK(Wrongs() == "");
}

TEST_CASE("fake cuda: events order streams and measure") {
  FakeWorld world(1);
  {
    OneDevice device;
    Gate gate;
    const cuda::CudaEvent from = NewEvent(0);
    const cuda::CudaEvent to = NewEvent(0);
    const Pinned pinned({1, 2, 3});
    int* const data = pinned.data;
    Cuda().EventRecord(from, device.first);
    gate.Shut(device.first);
    Cuda().MemcpyAsync(At(&data[1]), At(&data[0]), 4, device.first);
    Cuda().EventRecord(device.event, device.first);
    Cuda().StreamWaitEvent(device.second, device.event, 0);
    // A wait is for what was recorded before it.
    Cuda().EventRecord(device.event, device.second);
    Cuda().MemcpyAsync(At(&data[2]), At(&data[1]), 4, device.second);
    Cuda().EventRecord(to, device.second);
    float milliseconds = -1;
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    CHECK(Cuda().EventElapsedTime(&milliseconds, from, to) == cuda::kCudaNotReady);
    CHECK(pinned.values() == std::vector<int>{1, 2, 3});
    gate.Open();
    Cuda().StreamSynchronize(device.second);
    CHECK(pinned.values() == std::vector<int>{1, 1, 1});
    CHECK(Cuda().EventElapsedTime(&milliseconds, from, to) == cuda::kCudaSuccess);
    CHECK(milliseconds >= 0);
    Cuda().EventDestroy(from);
    Cuda().EventDestroy(to);
  }
  CHECK(Wrongs() == "");
}

TEST_CASE("fake cuda: a kernel runs with the parameters that it was launched with") {
  FakeWorld world(1);
  FakeCuda::RegisterKernel("fill", {{sizeof(int*), sizeof(int)}, [](void** parameters, unsigned grid, unsigned block) {
                                      int* const out = *static_cast<int**>(parameters[0]);
                                      for (unsigned i = 0; i < grid * block; ++i)
                                        out[i] = *static_cast<int*>(parameters[1]);
                                    }});
  {
    OneDevice device;
    Gate gate;
    Array<int> data(0, std::vector<int>(6));
    cuda::CudaModule module = nullptr;
    cuda::CudaFunction fill = nullptr;
    CHECK(Cuda().ModuleLoadData(&module, "code") == cuda::kCudaSuccess);
    CHECK(Cuda().ModuleGetFunction(&fill, module, "fill") == cuda::kCudaSuccess);
    gate.Shut(device.first);
    int* out = data.data;
    int value = 7;
    void* parameters[] = {&out, &value};
    CHECK(Cuda().LaunchKernel(fill, 2, 1, 1, 3, 1, 1, 0, device.first, parameters, nullptr) == cuda::kCudaSuccess);
    out = nullptr;
    value = 8;
    gate.Open();
    CHECK(Cuda().StreamSynchronize(device.first) == cuda::kCudaSuccess);
    CHECK(data.values() == std::vector<int>(6, 7));
    CHECK(Cuda().ModuleUnload(module) == cuda::kCudaSuccess);
    CHECK(Cuda().ModuleGetFunction(&fill, module, "fill") == 400);
  }
  CHECK(Complained("ModuleGetFunction of a module that is not there"));
}

TEST_CASE("fake cuda: memory is used between the tasks that allocate and free it") {
  FakeWorld world(2);
  const auto told = [](const std::string& words, const auto& body) {
    INFO(words);
    {
      OneDevice device;
      body(device);
      // It sticks, as on a device.
      CHECK(Cuda().StreamSynchronize(device.first) == 700);
      CHECK(Cuda().EventQuery(device.event) == 700);
    }
    CHECK(Complained(words));
  };
  char host[16] = {};
  SECTION("after it was freed") {
    told("is used after it was freed", [&](OneDevice& device) {
      const cuda::CudaPointer memory = device.Allocate(8, device.first);
      Cuda().MemFreeAsync(memory, device.first);
      Cuda().MemcpyAsync(At(host), memory, 8, device.first);
      Cuda().StreamSynchronize(device.first);
    });
  }
  SECTION("on another stream, before it is there") {
    told("is used before the task that allocates it", [&](OneDevice& device) {
      Gate gate;
      gate.Shut(device.first);
      const cuda::CudaPointer memory = device.Allocate(8, device.first);
      Cuda().MemcpyAsync(memory, At(host), 8, device.second);
      Cuda().StreamSynchronize(device.second);
      gate.Open();
    });
  }
  SECTION("beyond its end") {
    told("8 bytes at offset 4 do not lie in a block of 8 bytes", [&](OneDevice& device) {
      const cuda::CudaPointer memory = device.Allocate(8, device.first);
      Cuda().MemcpyAsync(memory + 4, At(host), 8, device.first);
      Cuda().StreamSynchronize(device.first);
    });
  }
  SECTION("another device's") {
    told("device 0 uses a block of 8 bytes of device 1", [&](OneDevice& device) {
      void* const memory = FakeCuda::Allocate(1, 8);
      Cuda().MemcpyAsync(At(memory), At(host), 8, device.first);
      Cuda().StreamSynchronize(device.first);
    });
  }
}

TEST_CASE("fake cuda: writes around a block and wrong releases") {
  FakeWorld world(1);
  {
    OneDevice device;
    const cuda::CudaPointer memory = device.Allocate(8, device.first);
    Cuda().StreamSynchronize(device.first);
    // Fresh memory is full of something.
    CHECK(*reinterpret_cast<unsigned char*>(memory) == 0xA5);
    reinterpret_cast<char*>(memory)[8] = 1;
    CHECK(Cuda().MemFreeAsync(memory + 1, device.first) != cuda::kCudaSuccess);
    CHECK(Cuda().MemFreeAsync(memory, device.first) == cuda::kCudaSuccess);
    CHECK(Cuda().MemFreeAsync(memory, device.first) != cuda::kCudaSuccess);
  }
  CHECK(Complained("what is not the start of a block"));
  CHECK(Complained("freed already"));
  CHECK(Complained("wrote outside of a block of 8 bytes"));
}

TEST_CASE("fake cuda: leaks") {
  FakeWorld world(1);
  OneDevice device;
  device.Allocate(8, device.first);
  void* pinned = nullptr;
  Cuda().MemAllocHost(&pinned, 8);
  Cuda().StreamSynchronize(device.first);
  const std::string leaks = All(FakeCuda::Leaks());
  CHECK(leaks ==
        "8 bytes of device 0\na stream of device 0\na stream of device 0\nan event of device 0\n"
        "a pool of device 0\nthe context of device 0\n1 blocks of pinned memory\n");
}

TEST_CASE("fake cuda: contexts belong to threads") {
  FakeWorld world(2);
  cuda::CudaStream of_first = nullptr;
  {
    FakeCurrent first(0);
    of_first = NewStream();
    FakeCurrent second(1);
    CHECK(Cuda().StreamSynchronize(of_first) == 400);  // the second one is current
    cuda::CudaResult elsewhere = cuda::kCudaSuccess;
    std::thread([&] { elsewhere = Cuda().StreamSynchronize(of_first); }).join();
    CHECK(elsewhere == 201);
  }
  CHECK(Cuda().StreamSynchronize(of_first) == 201);
  CHECK(Cuda().CtxPopCurrent(nullptr) == 201);
  FakeCurrent again(0);
  CHECK(Cuda().StreamDestroy(of_first) == cuda::kCudaSuccess);
  CHECK(Cuda().StreamDestroy(of_first) == 400);
  CHECK(Complained("while the context of device 1 is current"));
  CHECK(Complained("StreamDestroy on a stream that is not there"));
}

TEST_CASE("fake cuda: a captured stream with a fork, a join and memory of its own") {
  FakeWorld world(1);
  {
    OneDevice device;
    std::vector<int> data = {1, 0, 0};
    int status = -1;
    CHECK(Cuda().StreamBeginCapture(device.first, cuda::kCudaCaptureThreadLocal) == cuda::kCudaSuccess);
    const cuda::CudaPointer memory = device.Allocate(4, device.first);
    Cuda().MemcpyAsync(memory, At(&data[0]), 4, device.first);
    Cuda().EventRecord(device.event, device.first);
    Cuda().StreamWaitEvent(device.second, device.event, 0);
    Cuda().StreamIsCapturing(device.second, &status);
    CHECK(status == 1);
    Cuda().MemcpyAsync(At(&data[1]), memory, 4, device.second);
    Cuda().EventRecord(device.event, device.second);
    Cuda().StreamWaitEvent(device.first, device.event, 0);
    Cuda().MemFreeAsync(memory, device.first);
    cuda::CudaGraph graph = nullptr;
    cuda::CudaGraphExec exec = nullptr;
    CHECK(Cuda().StreamEndCapture(device.first, &graph) == cuda::kCudaSuccess);
    Cuda().StreamIsCapturing(device.second, &status);
    CHECK(status == cuda::kCudaCaptureNone);
    CHECK(Cuda().GraphInstantiateWithFlags(&exec, graph, 0) == cuda::kCudaSuccess);
    Cuda().GraphDestroy(graph);
    for (int i = 1; i <= 3; ++i) {
      data[0] = i;
      CHECK(data[1] == i - 1);
      CHECK(Cuda().GraphLaunch(exec, device.second) == cuda::kCudaSuccess);
      CHECK(Cuda().StreamSynchronize(device.second) == cuda::kCudaSuccess);
      CHECK(data[1] == i);
    }
    Cuda().GraphExecDestroy(exec);
  }
  CHECK(Wrongs() == "");
}

TEST_CASE("fake cuda: what may not be done during a capture spoils it") {
  FakeWorld world(1);
  OneDevice device;
  const cuda::CudaEvent outside = NewEvent();
  Cuda().EventRecord(outside, device.second);
  Cuda().StreamSynchronize(device.second);
  const auto spoils = [&](cuda::CudaResult expected, const auto& call) {
    Cuda().StreamBeginCapture(device.first, cuda::kCudaCaptureThreadLocal);
    Cuda().EventRecord(device.event, device.first);
    CHECK(call() == expected);
    CHECK(Cuda().MemcpyAsync(0, 0, 4, device.first) == 901);
    cuda::CudaGraph graph = nullptr;
    CHECK(Cuda().StreamEndCapture(device.first, &graph) == 901);
    CHECK(graph == nullptr);
    CHECK(Cuda().StreamSynchronize(device.first) == cuda::kCudaSuccess);
  };
  void* pinned = nullptr;
  spoils(900, [&] { return Cuda().StreamSynchronize(device.first); });
  spoils(900, [&] { return Cuda().StreamQuery(device.first); });
  spoils(900, [&] { return Cuda().MemAllocHost(&pinned, 8); });
  spoils(900, [&] { return Cuda().EventQuery(outside); });
  spoils(907, [&] { return Cuda().EventQuery(device.event); });
  spoils(905, [&] { return Cuda().StreamWaitEvent(device.first, outside, 0); });

  // Another thread may do what it likes, and a stream that was not joined is told.
  cuda::CudaGraph graph = nullptr;
  Cuda().StreamBeginCapture(device.first, cuda::kCudaCaptureThreadLocal);
  std::thread([&] {
    FakeCurrent current(0);
    CHECK(Cuda().EventQuery(outside) == cuda::kCudaSuccess);
    CHECK(Cuda().StreamEndCapture(device.first, &graph) == 908);
  }).join();
  Cuda().EventRecord(device.event, device.first);
  Cuda().StreamWaitEvent(device.second, device.event, 0);
  Cuda().MemcpyAsync(0, 0, 4, device.second);
  CHECK(Cuda().StreamEndCapture(device.first, &graph) == 904);
  Cuda().EventDestroy(outside);
}

TEST_CASE("fake cuda: planned errors, by number and by function") {
  FakeWorld world(2);
  std::vector<Results> got(2);
  FakeCuda::FailAt(0, 5, cuda::kCudaOutOfMemory);  // after the context and the two streams
  FakeCuda::FailAt(1, "StreamSynchronize", 1, 719);
  RunRanks(2, [&](int rank) {
    FakeCurrent current(rank);
    const cuda::CudaStream stream = NewStream();
    const cuda::CudaStream other = NewStream();
    Results& results = got[rank];
    for (int i = 0; i < 3; ++i) {
      Cuda().StreamQuery(stream);  // has no number
      results.push_back(Cuda().StreamSynchronize(stream));
    }
    // From 700 on it sticks to the device.
    cuda::CudaEvent event = nullptr;
    results.push_back(Cuda().EventCreate(&event, 0));
    Cuda().StreamDestroy(stream);
    Cuda().StreamDestroy(other);
  });
  CHECK(got[0] == Results{0, 2, 0, 0});
  CHECK(got[1] == Results{0, 719, 719, 719});
  CHECK(FakeCuda::Calls(0) == 12);
  CHECK(FakeCuda::Calls(0, "StreamQuery") == 3);
  CHECK(FakeCuda::Calls(1, "StreamSynchronize") == 3);
}

}  // namespace
}  // namespace reshard::testing
