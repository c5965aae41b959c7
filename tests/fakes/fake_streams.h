// Devices that are not there: streams, events, graphs and memory of the host that behave like those of GPUs. Below
// fake_cuda.h (the driver's functions) and fake_nccl.h (operations that wait for other ranks).
//
// One lock guards everything. Each stream has a thread that does its works one after the other; a work lets the lock
// go while it moves bytes or waits, so that what races on a device races here, too, and ThreadSanitizer sees it.
#ifndef RESHARD_TESTS_FAKES_FAKE_STREAMS_H_
#define RESHARD_TESTS_FAKES_FAKE_STREAMS_H_

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "runtime/cuda/cuda_api.h"

namespace reshard::testing::fake {

using Lock = std::unique_lock<std::mutex>;

struct Stream;
struct Device;

// Whether a stream may get further, as far as one knows yet.
using Live = std::function<bool(const Stream*)>;

// What a stream does. All is called with the lock held.
class Work {
 public:
  virtual ~Work() = default;
  // At the head of the stream. Returns when it is done, or `closing`.
  virtual void Run(Lock& lock, Stream& stream) = 0;
  // Whether something that is live would end it. False also when only the impossible would.
  virtual bool MayProceed(const Live&) const { return true; }
  // It is at the head of a stream and nothing will ever end it. `all` says who waits for what.
  virtual void Stuck(const std::string& /*all*/) {}
  // "rank 0: recv #3 from rank 1 (4 x 8 bytes)", and what it waits for.
  virtual std::string Text() const { return "a task"; }
};
// Makes the work for one execution on a stream: at once, or at each launch of the graph that captured it.
using Maker = std::function<std::shared_ptr<Work>(Stream&)>;

// How many works of each stream come before something, as streams and events order them. What the host has waited for
// is not in it.
using Before = std::map<const Stream*, int64_t>;

// A moment of a stream, which an event names.
struct Mark {
  Stream* stream = nullptr;
  Before before;  // it, of this and of other streams
  bool done = false;
  std::chrono::steady_clock::time_point time;
};

// Something whose life graphs prolong.
struct UserObject {
  void* pointer = nullptr;
  void (*destroy)(void*) = nullptr;
  unsigned references = 0;
};

struct Graph {
  std::vector<Maker> nodes;  // in an order that keeps all dependencies
  std::set<cuda::CudaPointer> allocations;
  std::set<const void*> used;  // communicators that have operations in it
  std::vector<std::pair<UserObject*, unsigned>> objects;
  bool destroyed = false;
};
struct GraphExec {
  std::shared_ptr<Graph> graph;
  bool destroyed = false;
};
struct Capture {
  uint64_t id = 0;
  int mode = 0;
  std::thread::id thread;
  Stream* origin = nullptr;
  struct Branch {
    int64_t nodes = 0;
    int64_t waited = 0;  // so many were waited for by another stream
  };
  std::map<Stream*, Branch> branches;
  bool invalid = false;
  std::shared_ptr<Graph> graph = std::make_shared<Graph>();
};

struct Event {
  Device* device = nullptr;
  unsigned flags = 0;
  std::shared_ptr<Mark> mark;        // null: never recorded
  std::shared_ptr<Capture> capture;  // it was last recorded in
  Stream* captured_stream = nullptr;
  int64_t captured_nodes = 0;  // of that stream
  bool destroyed = false;
};

struct Stream {
  Device* device = nullptr;
  int number = 0;
  unsigned flags = 0;
  bool destroyed = false;
  std::deque<std::shared_ptr<Work>> queue;  // the first is running
  int64_t enqueued = 0;
  int64_t done = 0;
  Before before;  // what comes next, of other streams
  std::shared_ptr<Capture> capture;
  std::thread worker;
};

// Pinned memory.
struct HostBlock {
  std::unique_ptr<unsigned char[]> memory;
  size_t bytes = 0;
};

struct Block {
  int64_t bytes = 0;
  Device* device = nullptr;
  // Used in the order of streams: only between the task that allocates it and the one that frees it.
  enum { kNotYet, kLive, kFreed } state = kNotYet;
  bool free_enqueued = false;
  bool of_graph = false;
  std::unique_ptr<unsigned char[]> storage;  // with a margin on both sides
};

struct Device {
  int ordinal = 0;
  int retained = 0;
  cuda::CudaResult sticky = cuda::kCudaSuccess;
  std::unique_ptr<Stream> null_stream;
};

struct Pool {
  Device* device = nullptr;
  uint64_t threshold = 0;
  bool destroyed = false;
};

struct World {
  std::mutex mutex;
  std::condition_variable changed;
  uint64_t generation = 0;  // of Reset
  uint64_t captures = 0;    // begun so far
  int64_t steps = 0;        // works that ended: when it stands still, nothing happens
  bool closing = false;
  std::vector<std::unique_ptr<Device>> devices;
  std::vector<std::unique_ptr<Stream>> streams;
  std::vector<std::unique_ptr<Event>> events;
  std::vector<std::unique_ptr<Pool>> pools;
  std::vector<std::unique_ptr<GraphExec>> execs;
  std::map<Graph*, std::shared_ptr<Graph>> graphs;
  std::vector<std::unique_ptr<UserObject>> user_objects;
  std::map<cuda::CudaPointer, Block> blocks;  // freed ones stay, to report later uses
  std::map<const void*, HostBlock> host_blocks;
  std::vector<std::string> complaints;
  uint64_t jitter = 0;  // not 0: works start after a pause of random length

  void Complain(std::string text) { complaints.push_back(std::move(text)); }
};
World& TheWorld();

// Ends all streams and forgets everything; then there are so many devices. What was wrong until now is gone, too.
void ResetWorld(int devices);

// What follows needs the lock.

// Appends to the stream, or to the graph that it is captured into.
void Enqueue(Stream& stream, const Maker& maker);
void Launch(GraphExec& exec, Stream& stream);
// Whether the graph or something instantiated of it is there.
bool IsAlive(const Graph& graph);
// Whether a graph that is there, or is being captured, has operations of it.
bool IsInAGraph(const void* communicator);
// Gives back what a graph holds if it is not alive.
void ReleaseIfDead(Graph& graph);
// A work that runs a function of the host, without the lock. What it returns sticks to the device.
Maker Task(std::string text, std::function<cuda::CudaResult()> run);
Maker Record(std::shared_ptr<Mark> mark);
Maker WaitFor(std::shared_ptr<Mark> mark);
// Returns when everything that is in the stream now is done.
void Drain(Lock& lock, Stream& stream);
// Looks for works at the heads of streams that wait for each other in a circle, and tells them.
void FindStuck();

// `bytes` of new memory, filled with a pattern.
cuda::CudaPointer NewBlock(int64_t bytes, Device* device);
void SetLive(cuda::CudaPointer memory);
void SetFreed(cuda::CudaPointer memory);
// Empty when [memory, memory + bytes) may be used by `device` now; memory that is not a device's may be used by all.
std::string CheckAccess(const void* memory, size_t bytes, const Device* device);
// What was made and neither freed nor destroyed.
std::vector<std::string> LeaksOfWorld();

// The rank whose calls this thread makes; -1: none. See FakeCuda::BindRank.
int& BoundRank();
// The device whose context is current in this thread; null: none.
Device* CurrentDevice();

}  // namespace reshard::testing::fake

#endif  // RESHARD_TESTS_FAKES_FAKE_STREAMS_H_
