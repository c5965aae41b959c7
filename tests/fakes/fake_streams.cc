#include "tests/fakes/fake_streams.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/base/config.h"

#ifdef ABSL_HAVE_ADDRESS_SANITIZER
#include <sanitizer/asan_interface.h>
#endif

namespace reshard::testing::fake {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using std::chrono::steady_clock;

// So long may nothing happen at all while somebody waits for a stream before that is told as stuck.
constexpr seconds kPatience(60);

void RunStream(Stream* stream) {
  World& world = TheWorld();
  Lock lock(world.mutex);
  while (true) {
    world.changed.wait(lock, [&] { return world.closing || stream->destroyed || !stream->queue.empty(); });
    if (world.closing || (stream->destroyed && stream->queue.empty())) return;
    if (world.jitter != 0) {
      world.jitter = world.jitter * 6364136223846793005u + 1442695040888963407u;
      const auto pause = std::chrono::microseconds(world.jitter >> 33 & 127);
      lock.unlock();
      std::this_thread::sleep_for(pause);
      lock.lock();
    }
    const std::shared_ptr<Work> work = stream->queue.front();
    work->Run(lock, *stream);
    if (world.closing) return;
    stream->queue.pop_front();
    ++stream->done;
    ++world.steps;
    world.changed.notify_all();
  }
}

class HostWork final : public Work {
 public:
  HostWork(std::string text, std::function<cuda::CudaResult()> run) : text_(std::move(text)), run_(std::move(run)) {}
  void Run(Lock& lock, Stream& stream) override {
    lock.unlock();
    const cuda::CudaResult result = run_();
    lock.lock();
    if (result != cuda::kCudaSuccess && stream.device->sticky == cuda::kCudaSuccess) stream.device->sticky = result;
  }
  std::string Text() const override { return text_; }

 private:
  const std::string text_;
  const std::function<cuda::CudaResult()> run_;
};

class RecordWork final : public Work {
 public:
  explicit RecordWork(std::shared_ptr<Mark> mark) : mark_(std::move(mark)) {}
  void Run(Lock&, Stream&) override {
    mark_->done = true;
    mark_->time = steady_clock::now();
  }

 private:
  const std::shared_ptr<Mark> mark_;
};

class WaitWork final : public Work {
 public:
  explicit WaitWork(std::shared_ptr<Mark> mark) : mark_(std::move(mark)) {}
  void Run(Lock& lock, Stream&) override {
    if (!mark_->done) FindStuck();
    TheWorld().changed.wait(lock, [this] { return mark_->done || TheWorld().closing; });
  }
  bool MayProceed(const Live& live) const override { return mark_->done || live(mark_->stream); }
  std::string Text() const override {
    return "a wait for an event of stream " + std::to_string(mark_->stream->number) + " of device " +
           std::to_string(mark_->stream->device->ordinal);
  }

 private:
  const std::shared_ptr<Mark> mark_;
};

// All streams, the default ones too.
std::vector<Stream*> Streams() {
  std::vector<Stream*> out;
  for (const auto& device : TheWorld().devices) out.push_back(device->null_stream.get());
  for (const auto& stream : TheWorld().streams) out.push_back(stream.get());
  return out;
}

constexpr unsigned char kFresh = 0xA5;
constexpr unsigned char kGone = 0xDB;
constexpr unsigned char kMargin = 0xE7;
constexpr int64_t kMarginBytes = 256;

// Lets AddressSanitizer see kernels that use memory when they may not: nothing here looks at what kernels do.
void Forbid([[maybe_unused]] cuda::CudaPointer memory, [[maybe_unused]] int64_t bytes) {
#ifdef ABSL_HAVE_ADDRESS_SANITIZER
  __asan_poison_memory_region(reinterpret_cast<void*>(memory), static_cast<size_t>(bytes));
#endif
}
void Permit([[maybe_unused]] cuda::CudaPointer memory, [[maybe_unused]] int64_t bytes) {
#ifdef ABSL_HAVE_ADDRESS_SANITIZER
  __asan_unpoison_memory_region(reinterpret_cast<void*>(memory), static_cast<size_t>(bytes));
#endif
}

}  // namespace

World& TheWorld() {
  static World* const world = new World();  // not destroyed: streams may outlive main()
  return *world;
}

int& BoundRank() {
  thread_local int rank = -1;
  return rank;
}

void ResetWorld(int devices) {
  World& world = TheWorld();
  std::vector<std::thread> workers;
  {
    Lock lock(world.mutex);
    world.closing = true;
    ++world.generation;
    for (Stream* stream : Streams()) {
      if (stream->worker.joinable()) workers.push_back(std::move(stream->worker));
    }
    world.changed.notify_all();
  }
  for (std::thread& worker : workers) worker.join();
  Lock lock(world.mutex);
  // Works refer to what follows.
  for (Stream* stream : Streams()) stream->queue.clear();
  world.execs.clear();
  for (const auto& [handle, graph] : world.graphs) {
    graph->destroyed = true;
    ReleaseIfDead(*graph);
  }
  world.graphs.clear();
  world.user_objects.clear();
  world.events.clear();
  world.streams.clear();
  world.pools.clear();
  world.devices.clear();
  world.blocks.clear();
  world.host_blocks.clear();
  world.complaints.clear();
  world.jitter = 0;
  world.closing = false;
  for (int ordinal = 0; ordinal < devices; ++ordinal) {
    auto device = std::make_unique<Device>();
    device->ordinal = ordinal;
    device->null_stream = std::make_unique<Stream>();
    device->null_stream->device = device.get();
    world.devices.push_back(std::move(device));
  }
}

void Enqueue(Stream& stream, const Maker& maker) {
  World& world = TheWorld();
  if (stream.capture != nullptr) {
    stream.capture->graph->nodes.push_back(maker);
    ++stream.capture->branches[&stream].nodes;
    return;
  }
  stream.queue.push_back(maker(stream));
  ++stream.enqueued;
  if (!stream.worker.joinable()) stream.worker = std::thread(RunStream, &stream);
  world.changed.notify_all();
}

void Launch(GraphExec& exec, Stream& stream) {
  for (const Maker& maker : exec.graph->nodes) Enqueue(stream, maker);
}

bool IsAlive(const Graph& graph) {
  if (!graph.destroyed) return true;
  const auto& execs = TheWorld().execs;
  return std::any_of(execs.begin(), execs.end(),
                     [&](const auto& exec) { return !exec->destroyed && exec->graph.get() == &graph; });
}

bool IsInAGraph(const void* communicator) {
  const World& world = TheWorld();
  const bool captured = std::any_of(world.streams.begin(), world.streams.end(), [&](const auto& stream) {
    return stream->capture != nullptr && stream->capture->graph->used.count(communicator) > 0;
  });
  return captured || std::any_of(world.graphs.begin(), world.graphs.end(), [&](const auto& entry) {
           return entry.second->used.count(communicator) > 0 && IsAlive(*entry.second);
         });
}

void ReleaseIfDead(Graph& graph) {
  if (IsAlive(graph)) return;
  for (const auto& [object, references] : std::exchange(graph.objects, {})) {
    object->references -= references;
    if (object->references == 0) object->destroy(object->pointer);
  }
  TheWorld().changed.notify_all();
}

Maker Task(std::string text, std::function<cuda::CudaResult()> run) {
  return [text = std::move(text), run = std::move(run)](Stream&) { return std::make_shared<HostWork>(text, run); };
}

Maker Record(std::shared_ptr<Mark> mark) {
  return [mark = std::move(mark)](Stream&) { return std::make_shared<RecordWork>(mark); };
}

Maker WaitFor(std::shared_ptr<Mark> mark) {
  return [mark = std::move(mark)](Stream&) { return std::make_shared<WaitWork>(mark); };
}

void Drain(Lock& lock, Stream& stream) {
  World& world = TheWorld();
  const int64_t until = stream.enqueued;
  int64_t steps = world.steps;
  auto since = steady_clock::now();
  // A device with an error that stays does nothing any more, and nobody waits for it.
  while (stream.done < until && !world.closing && stream.device->sticky == cuda::kCudaSuccess) {
    world.changed.wait_for(lock, milliseconds(500));
    if (steps != world.steps) {
      steps = world.steps;
      since = steady_clock::now();
    } else if (stream.done < until && steady_clock::now() - since > kPatience) {
      world.Complain("nothing happens any more while stream " + std::to_string(stream.number) + " of device " +
                     std::to_string(stream.device->ordinal) + " is waited for; it is at " +
                     stream.queue.front()->Text());
      stream.device->sticky = 702;  // CUDA_ERROR_LAUNCH_TIMEOUT
      return;
    }
  }
}

void FindStuck() {
  std::vector<Stream*> streams = Streams();
  // So that what is told does not depend on which rank came first.
  std::stable_sort(streams.begin(), streams.end(),
                   [](const Stream* a, const Stream* b) { return a->device->ordinal < b->device->ordinal; });
  std::set<const Stream*> live;
  const Live is_live = [&](const Stream* stream) { return live.count(stream) > 0; };
  bool more = true;
  while (more) {
    more = false;
    for (const Stream* stream : streams) {
      if (live.count(stream) > 0) continue;
      if (stream->queue.empty() || stream->queue.front()->MayProceed(is_live)) {
        live.insert(stream);
        more = true;
      }
    }
  }
  if (live.size() == streams.size()) return;
  std::string all;
  for (const Stream* stream : streams) {
    if (live.count(stream) == 0) all += (all.empty() ? "" : "; ") + stream->queue.front()->Text();
  }
  for (const Stream* stream : streams) {
    if (live.count(stream) == 0) stream->queue.front()->Stuck(all);
  }
}

cuda::CudaPointer NewBlock(int64_t bytes, Device* device) {
  Block block;
  block.bytes = bytes;
  block.device = device;
  // Aligned as a device's allocator aligns.
  const size_t whole = static_cast<size_t>(bytes + 3 * kMarginBytes);
  block.storage.reset(new unsigned char[whole]);
  std::memset(block.storage.get(), kMargin, whole);
  const auto raw = reinterpret_cast<uintptr_t>(block.storage.get());
  const uintptr_t start = (raw + 2 * kMarginBytes - 1) / kMarginBytes * kMarginBytes;
  std::memset(reinterpret_cast<void*>(start), kFresh, static_cast<size_t>(bytes));
  Forbid(start, bytes);
  TheWorld().blocks[start] = std::move(block);
  return start;
}

void SetLive(cuda::CudaPointer memory) {
  Block& block = TheWorld().blocks.at(memory);
  block.state = Block::kLive;
  Permit(memory, block.bytes);
  std::memset(reinterpret_cast<void*>(memory), kFresh, static_cast<size_t>(block.bytes));
}

void SetFreed(cuda::CudaPointer memory) {
  Block& block = TheWorld().blocks.at(memory);
  block.state = Block::kFreed;
  Permit(memory, block.bytes);  // it may not have been there yet
  const auto* bytes = reinterpret_cast<const unsigned char*>(memory);
  for (int64_t i = 1; i <= kMarginBytes / 2; ++i) {
    if (bytes[-i] != kMargin || bytes[block.bytes + i - 1] != kMargin) {
      TheWorld().Complain("something wrote outside of a block of " + std::to_string(block.bytes) + " bytes of device " +
                          std::to_string(block.device->ordinal));
      break;
    }
  }
  std::memset(reinterpret_cast<void*>(memory), kGone, static_cast<size_t>(block.bytes));
  Forbid(memory, block.bytes);
}

std::string CheckAccess(const void* memory, size_t bytes, const Device* device) {
  if (bytes == 0) return "";
  const auto start = reinterpret_cast<uintptr_t>(memory);
  auto& blocks = TheWorld().blocks;
  auto after = blocks.upper_bound(start);
  if (after != blocks.end() && start + bytes > after->first) return "memory before the start of a block is used";
  if (after == blocks.begin()) return "";
  const auto& [at, block] = *std::prev(after);
  if (start >= at + static_cast<uint64_t>(block.bytes) + kMarginBytes) return "";
  const std::string what =
      "a block of " + std::to_string(block.bytes) + " bytes of device " + std::to_string(block.device->ordinal);
  if (start + bytes > at + static_cast<uint64_t>(block.bytes)) {
    return std::to_string(bytes) + " bytes at offset " + std::to_string(start - at) + " do not lie in " + what;
  }
  if (block.state == Block::kFreed) return what + " is used after it was freed";
  if (block.state == Block::kNotYet) return what + " is used before the task that allocates it";
  if (block.device != device) return "device " + std::to_string(device->ordinal) + " uses " + what;
  return "";
}

std::vector<std::string> LeaksOfWorld() {
  const World& world = TheWorld();
  std::vector<std::string> out;
  const auto add = [&](const std::string& what, const Device* device) {
    out.push_back(what + " of device " + std::to_string(device->ordinal));
  };
  for (const auto& [memory, block] : world.blocks) {
    if (block.state != Block::kFreed && !block.free_enqueued && !block.of_graph) {
      add(std::to_string(block.bytes) + " bytes", block.device);
    }
  }
  for (const auto& stream : world.streams) {
    if (!stream->destroyed) add("a stream", stream->device);
  }
  for (const auto& event : world.events) {
    if (!event->destroyed) add("an event", event->device);
  }
  for (const auto& pool : world.pools) {
    if (!pool->destroyed) add("a pool", pool->device);
  }
  for (const auto& exec : world.execs) {
    if (!exec->destroyed) out.push_back("an executable graph");
  }
  for (const auto& [handle, graph] : world.graphs) {
    if (!graph->destroyed) out.push_back("a graph");
  }
  for (const auto& device : world.devices) {
    if (device->retained > 0) add("the context", device.get());
  }
  if (!world.host_blocks.empty()) out.push_back(std::to_string(world.host_blocks.size()) + " blocks of pinned memory");
  return out;
}

}  // namespace reshard::testing::fake
