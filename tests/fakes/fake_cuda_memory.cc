// The driver's functions for memory, copies, modules and kernels.
#include <cstddef>
#include <cstring>
#include <utility>

#include "tests/fakes/fake_cuda_state.h"

namespace reshard::testing::fake {
namespace {

cuda::CudaResult MemPoolCreate(cuda::CudaMemPool* handle, const cuda::CudaMemPoolProps* props) {
  const Lock lock(TheWorld().mutex);
  World& world = TheWorld();
  const bool there = props->location_id >= 0 && props->location_id < static_cast<int>(world.devices.size());
  Device* device = there ? world.devices[props->location_id].get() : nullptr;
  if (const cuda::CudaResult result = Enter("MemPoolCreate", device)) return result;
  if (device == nullptr || props->allocation_type != 1 || props->location_type != 1) {
    return Wrong(kInvalidValue, "MemPoolCreate of what is not a pool of device memory");
  }
  auto pool = std::make_unique<Pool>();
  pool->device = device;
  *handle = pool.get();
  world.pools.push_back(std::move(pool));
  return cuda::kCudaSuccess;
}

cuda::CudaResult MemPoolSetAttribute(cuda::CudaMemPool handle, int attribute, void* value) {
  const Lock lock(TheWorld().mutex);
  Pool* pool = Find(TheWorld().pools, handle);
  if (const cuda::CudaResult result = Enter("MemPoolSetAttribute", pool == nullptr ? nullptr : pool->device))
    return result;
  if (pool == nullptr) return Wrong(kInvalidHandle, "MemPoolSetAttribute of a pool that is not there");
  if (attribute != cuda::kCudaMemPoolReleaseThreshold) return Wrong(kInvalidValue, "a pool has no such attribute here");
  std::memcpy(&pool->threshold, value, sizeof(pool->threshold));
  return cuda::kCudaSuccess;
}

cuda::CudaResult MemPoolDestroy(cuda::CudaMemPool handle) {
  const Lock lock(TheWorld().mutex);
  Pool* pool = Find(TheWorld().pools, handle);
  if (const cuda::CudaResult result = Enter("MemPoolDestroy", pool == nullptr ? nullptr : pool->device)) return result;
  if (pool == nullptr) return Wrong(kInvalidHandle, "MemPoolDestroy of a pool that is not there");
  pool->destroyed = true;
  return cuda::kCudaSuccess;
}

// A task that changes what a block is, in the order of its stream.
Maker BlockTask(std::string text, cuda::CudaPointer memory, void (*change)(cuda::CudaPointer)) {
  return Task(std::move(text), [=]() -> cuda::CudaResult {
    const Lock lock(TheWorld().mutex);
    change(memory);
    return cuda::kCudaSuccess;
  });
}

cuda::CudaResult MemAllocFromPoolAsync(cuda::CudaPointer* memory, size_t bytes, cuda::CudaMemPool handle,
                                       cuda::CudaStream stream_handle) {
  const Lock lock(TheWorld().mutex);
  Stream* stream = nullptr;
  if (const cuda::CudaResult result = EnterStream("MemAllocFromPoolAsync", stream_handle, &stream)) return result;
  const Pool* pool = Find(TheWorld().pools, handle);
  if (pool == nullptr) return Wrong(kInvalidHandle, "MemAllocFromPoolAsync from a pool that is not there");
  if (pool->device != stream->device) return Wrong(kInvalidValue, "MemAllocFromPoolAsync from another device's pool");
  if (bytes == 0) return Wrong(kInvalidValue, "MemAllocFromPoolAsync of 0 bytes");
  if (bytes > size_t{1} << 33) return cuda::kCudaOutOfMemory;
  *memory = NewBlock(static_cast<int64_t>(bytes), stream->device);
  if (stream->capture != nullptr) {
    TheWorld().blocks.at(*memory).of_graph = true;
    stream->capture->graph->allocations.insert(*memory);
  }
  Enqueue(*stream, BlockTask("an allocation", *memory, SetLive));
  return cuda::kCudaSuccess;
}

cuda::CudaResult MemFreeAsync(cuda::CudaPointer memory, cuda::CudaStream stream_handle) {
  const Lock lock(TheWorld().mutex);
  Stream* stream = nullptr;
  if (const cuda::CudaResult result = EnterStream("MemFreeAsync", stream_handle, &stream)) return result;
  const auto it = TheWorld().blocks.find(memory);
  if (it == TheWorld().blocks.end()) return Wrong(kInvalidValue, "MemFreeAsync of what is not the start of a block");
  if (it->second.free_enqueued) return Wrong(kInvalidValue, "MemFreeAsync of a block that was freed already");
  if (it->second.device != stream->device) return Wrong(kInvalidValue, "MemFreeAsync of another device's block");
  if (stream->capture != nullptr && stream->capture->graph->allocations.count(memory) == 0) {
    return Wrong(kInvalidValue, "a captured stream frees a block that was not allocated in the capture");
  }
  it->second.free_enqueued = true;
  Enqueue(*stream, BlockTask("a release", memory, SetFreed));
  return cuda::kCudaSuccess;
}

cuda::CudaResult MemAllocHost(void** memory, size_t bytes) {
  const Lock lock(TheWorld().mutex);
  Device* device = nullptr;
  if (const cuda::CudaResult result = EnterCurrent("MemAllocHost", &device)) return result;
  if (const cuda::CudaResult result = UnsafeInCapture("MemAllocHost")) return result;
  auto block = std::make_unique<unsigned char[]>(bytes);
  *memory = block.get();
  TheWorld().host_blocks[*memory] = {std::move(block), bytes};
  return cuda::kCudaSuccess;
}

cuda::CudaResult MemFreeHost(void* memory) {
  const Lock lock(TheWorld().mutex);
  Device* device = nullptr;
  if (const cuda::CudaResult result = EnterCurrent("MemFreeHost", &device)) return result;
  if (const cuda::CudaResult result = UnsafeInCapture("MemFreeHost")) return result;
  if (TheWorld().host_blocks.erase(memory) == 0) return Wrong(kInvalidValue, "MemFreeHost of what is not a block");
  return cuda::kCudaSuccess;
}

// Host memory that is not pinned.
bool IsPageable(const void* memory) {
  const auto start = reinterpret_cast<uintptr_t>(memory);
  const auto& blocks = TheWorld().blocks;
  const auto block = blocks.upper_bound(start);
  if (block != blocks.begin() &&
      start < std::prev(block)->first + static_cast<uint64_t>(std::prev(block)->second.bytes)) {
    return false;
  }
  const auto& pinned = TheWorld().host_blocks;
  const auto after = pinned.upper_bound(memory);
  return after == pinned.begin() ||
         start >= reinterpret_cast<uintptr_t>(std::prev(after)->first) + std::prev(after)->second.bytes;
}

// As the driver does it, a copy from pageable memory has read it when the call returns, and one to pageable memory is
// done then.
cuda::CudaResult MemcpyAsync(cuda::CudaPointer to, cuda::CudaPointer from, size_t bytes,
                             cuda::CudaStream stream_handle) {
  Lock lock(TheWorld().mutex);
  Stream* stream = nullptr;
  if (const cuda::CudaResult result = EnterStream("MemcpyAsync", stream_handle, &stream)) return result;
  if (bytes == 0) return cuda::kCudaSuccess;
  const Device* const device = stream->device;
  void* const target = reinterpret_cast<void*>(to);
  const void* const source = reinterpret_cast<const void*>(from);
  // A graph reads and writes when it runs.
  const bool at_once = stream->capture == nullptr;
  const bool waits = at_once && target != nullptr && IsPageable(target);
  std::shared_ptr<std::vector<unsigned char>> read;
  if (at_once && source != nullptr && IsPageable(source) && CheckAccess(source, bytes, device).empty()) {
    const auto* const first = static_cast<const unsigned char*>(source);
    read = std::make_shared<std::vector<unsigned char>>(first, first + bytes);
  }
  Enqueue(*stream, Task("a copy of " + std::to_string(bytes) + " bytes", [=]() -> cuda::CudaResult {
    Lock inner(TheWorld().mutex);
    for (const void* memory : {static_cast<const void*>(target), source}) {
      const std::string wrong = CheckAccess(memory, bytes, device);
      if (!wrong.empty()) return Wrong(kIllegalAddress, "MemcpyAsync: " + wrong);
    }
    inner.unlock();
    std::memcpy(target, read != nullptr ? read->data() : source, bytes);
    return cuda::kCudaSuccess;
  }));
  if (waits) Drain(lock, *stream);
  return cuda::kCudaSuccess;
}

cuda::CudaResult ModuleLoadData(cuda::CudaModule* handle, const void* image) {
  const Lock lock(TheWorld().mutex);
  Device* device = nullptr;
  if (const cuda::CudaResult result = EnterCurrent("ModuleLoadData", &device)) return result;
  if (const cuda::CudaResult result = UnsafeInCapture("ModuleLoadData")) return result;
  if (image == nullptr) return Wrong(kInvalidValue, "ModuleLoadData of nothing");
  auto module = std::make_unique<Module>();
  module->device = device;
  *handle = module.get();
  TheCuda().modules.push_back(std::move(module));
  return cuda::kCudaSuccess;
}

Module* FindModule(cuda::CudaModule handle) {
  for (const auto& module : TheCuda().modules) {
    if (module.get() == handle && !module->unloaded) return module.get();
  }
  return nullptr;
}

cuda::CudaResult ModuleUnload(cuda::CudaModule handle) {
  const Lock lock(TheWorld().mutex);
  Device* device = nullptr;
  if (const cuda::CudaResult result = EnterCurrent("ModuleUnload", &device)) return result;
  Module* module = FindModule(handle);
  if (module == nullptr) return Wrong(kInvalidHandle, "ModuleUnload of a module that is not there");
  module->unloaded = true;
  return cuda::kCudaSuccess;
}

cuda::CudaResult ModuleGetFunction(cuda::CudaFunction* handle, cuda::CudaModule module_handle, const char* name) {
  const Lock lock(TheWorld().mutex);
  Device* device = nullptr;
  if (const cuda::CudaResult result = EnterCurrent("ModuleGetFunction", &device)) return result;
  const Module* module = FindModule(module_handle);
  if (module == nullptr) return Wrong(kInvalidHandle, "ModuleGetFunction of a module that is not there");
  const auto it = TheCuda().kernels.find(name);
  if (it == TheCuda().kernels.end()) return Wrong(kNotFound, std::string("no kernel is registered as ") + name);
  auto function = std::make_unique<Function>();
  function->kernel = &it->second;
  function->device = module->device;
  *handle = function.get();
  TheCuda().functions.push_back(std::move(function));
  return cuda::kCudaSuccess;
}

cuda::CudaResult LaunchKernel(cuda::CudaFunction handle, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                              unsigned block_x, unsigned block_y, unsigned block_z, unsigned,
                              cuda::CudaStream stream_handle, void** parameters, void** extra) {
  const Lock lock(TheWorld().mutex);
  Stream* stream = nullptr;
  if (const cuda::CudaResult result = EnterStream("LaunchKernel", stream_handle, &stream)) return result;
  const Function* function = nullptr;
  for (const auto& one : TheCuda().functions) {
    if (one.get() == handle) function = one.get();
  }
  if (function == nullptr) return Wrong(kInvalidHandle, "LaunchKernel of a function that is not there");
  if (function->device != stream->device) return Wrong(kInvalidHandle, "LaunchKernel of another device's function");
  if (grid_x == 0 || block_x == 0 || block_x > 1024 || grid_y != 1 || grid_z != 1 || block_y != 1 || block_z != 1) {
    return Wrong(kInvalidValue, "LaunchKernel with a grid that is not known here");
  }
  if (extra != nullptr) return Wrong(kInvalidValue, "LaunchKernel with packed parameters");
  const FakeCuda::Kernel& kernel = *function->kernel;
  // Copied now: the caller's are gone when the kernel runs.
  std::vector<std::vector<std::max_align_t>> copies;
  for (size_t i = 0; i < kernel.parameter_bytes.size(); ++i) {
    copies.emplace_back(kernel.parameter_bytes[i] / sizeof(std::max_align_t) + 1);
    std::memcpy(copies.back().data(), parameters[i], kernel.parameter_bytes[i]);
  }
  const auto run = kernel.run;
  Enqueue(*stream, Task("a kernel", [run, copies, grid_x, block_x]() mutable -> cuda::CudaResult {
    std::vector<void*> pointers;
    for (auto& copy : copies) pointers.push_back(copy.data());
    run(pointers.data(), grid_x, block_x);
    return cuda::kCudaSuccess;
  }));
  return cuda::kCudaSuccess;
}

}  // namespace

void FillMemoryFunctions(cuda::CudaApi* api) {
  api->MemPoolCreate = MemPoolCreate;
  api->MemPoolSetAttribute = MemPoolSetAttribute;
  api->MemPoolDestroy = MemPoolDestroy;
  api->MemAllocFromPoolAsync = MemAllocFromPoolAsync;
  api->MemFreeAsync = MemFreeAsync;
  api->MemAllocHost = MemAllocHost;
  api->MemFreeHost = MemFreeHost;
  api->MemcpyAsync = MemcpyAsync;
  api->ModuleLoadData = ModuleLoadData;
  api->ModuleUnload = ModuleUnload;
  api->ModuleGetFunction = ModuleGetFunction;
  api->LaunchKernel = LaunchKernel;
}

}  // namespace reshard::testing::fake
