// The driver's functions for streams, events and graphs.
#include <chrono>

#include "tests/fakes/fake_cuda_state.h"

namespace reshard::testing::fake {
namespace {

cuda::CudaResult StreamCreate(cuda::CudaStream* handle, unsigned flags) {
  const Lock lock(TheWorld().mutex);
  Device* device = nullptr;
  if (const cuda::CudaResult result = EnterCurrent("StreamCreate", &device)) return result;
  auto stream = std::make_unique<Stream>();
  stream->device = device;
  stream->flags = flags;
  stream->number = static_cast<int>(TheWorld().streams.size()) + 1;
  *handle = stream.get();
  TheWorld().streams.push_back(std::move(stream));
  return cuda::kCudaSuccess;
}

cuda::CudaResult StreamDestroy(cuda::CudaStream handle) {
  const Lock lock(TheWorld().mutex);
  Stream* stream = nullptr;
  if (const cuda::CudaResult result = EnterStream("StreamDestroy", handle, &stream)) return result;
  if (handle == nullptr) return Wrong(kInvalidHandle, "StreamDestroy of the default stream");
  if (stream->capture != nullptr) return Wrong(kCaptureUnsupported, "StreamDestroy while it is captured");
  stream->destroyed = true;  // what is in it still runs
  TheWorld().changed.notify_all();
  return cuda::kCudaSuccess;
}

// Whether the host may look at how far the stream is.
cuda::CudaResult NotCaptured(const char* function, Stream* stream) {
  if (stream->capture == nullptr) return cuda::kCudaSuccess;
  stream->capture->invalid = true;
  return Wrong(kCaptureUnsupported, std::string(function) + " of a stream that is captured");
}

cuda::CudaResult StreamSynchronize(cuda::CudaStream handle) {
  Lock lock(TheWorld().mutex);
  Stream* stream = nullptr;
  if (const cuda::CudaResult result = EnterStream("StreamSynchronize", handle, &stream)) return result;
  if (const cuda::CudaResult result = NotCaptured("StreamSynchronize", stream)) return result;
  Drain(lock, *stream);
  return stream->device->sticky;
}

cuda::CudaResult CtxSynchronize() {
  Lock lock(TheWorld().mutex);
  Device* device = nullptr;
  if (const cuda::CudaResult result = EnterCurrent("CtxSynchronize", &device)) return result;
  if (const cuda::CudaResult result = UnsafeInCapture("CtxSynchronize")) return result;
  Drain(lock, *device->null_stream);
  for (size_t i = 0; i < TheWorld().streams.size(); ++i) {
    if (TheWorld().streams[i]->device == device) Drain(lock, *TheWorld().streams[i]);
  }
  return device->sticky;
}

cuda::CudaResult StreamQuery(cuda::CudaStream handle) {
  const Lock lock(TheWorld().mutex);
  Stream* stream = nullptr;
  if (const cuda::CudaResult result = EnterStream("StreamQuery", handle, &stream, /*numbered=*/false)) return result;
  if (const cuda::CudaResult result = NotCaptured("StreamQuery", stream)) return result;
  return stream->done < stream->enqueued ? cuda::kCudaNotReady : cuda::kCudaSuccess;
}

cuda::CudaResult StreamWaitEvent(cuda::CudaStream handle, cuda::CudaEvent event_handle, unsigned) {
  const Lock lock(TheWorld().mutex);
  Stream* stream = nullptr;
  if (const cuda::CudaResult result = EnterStream("StreamWaitEvent", handle, &stream)) return result;
  Event* event = Find(TheWorld().events, event_handle);
  if (event == nullptr) return Wrong(kInvalidHandle, "StreamWaitEvent for an event that is not there");
  if (event->capture != nullptr) {
    Stream* const from = event->captured_stream;
    if (from->capture != event->capture) return Wrong(kCapturedEvent, "a wait for an event of a capture that is over");
    if (stream->capture == nullptr) {
      if (stream->done < stream->enqueued && handle == nullptr) return kCaptureIsolation;
      stream->capture = event->capture;
    }
    if (stream->capture != event->capture) return Wrong(kCaptureIsolation, "two captures wait for each other");
    if (stream != from) {
      Capture::Branch& branch = event->capture->branches[from];
      branch.waited = std::max(branch.waited, event->captured_nodes);
      event->capture->branches[stream];
    }
    return cuda::kCudaSuccess;
  }
  if (event->mark == nullptr) return cuda::kCudaSuccess;  // never recorded
  if (stream->capture != nullptr) {
    stream->capture->invalid = true;
    return Wrong(kCaptureIsolation, "a captured stream waits for an event from outside of the capture");
  }
  for (const auto& [other, works] : event->mark->before) {
    int64_t& known = stream->before[other];
    known = std::max(known, works);
  }
  Enqueue(*stream, WaitFor(event->mark));
  return cuda::kCudaSuccess;
}

cuda::CudaResult StreamIsCapturing(cuda::CudaStream handle, int* status) {
  const Lock lock(TheWorld().mutex);
  Stream* stream = nullptr;
  const cuda::CudaResult result = EnterStream("StreamIsCapturing", handle, &stream);
  if (result != cuda::kCudaSuccess && result != kCaptureInvalidated) return result;
  *status = stream->capture == nullptr ? cuda::kCudaCaptureNone : stream->capture->invalid ? 2 : 1;
  return cuda::kCudaSuccess;
}

cuda::CudaResult StreamGetCaptureInfo(cuda::CudaStream handle, int* status, uint64_t* id, cuda::CudaGraph* graph,
                                      const void** /*dependencies*/, size_t* /*num_dependencies*/) {
  const Lock lock(TheWorld().mutex);
  Stream* stream = nullptr;
  const cuda::CudaResult result = EnterStream("StreamGetCaptureInfo", handle, &stream);
  if (result != cuda::kCudaSuccess && result != kCaptureInvalidated) return result;
  *status = stream->capture == nullptr ? cuda::kCudaCaptureNone : stream->capture->invalid ? 2 : 1;
  if (*status != 1) return cuda::kCudaSuccess;
  *id = stream->capture->id;
  *graph = stream->capture->graph.get();
  return cuda::kCudaSuccess;
}

cuda::CudaResult StreamBeginCapture(cuda::CudaStream handle, int mode) {
  const Lock lock(TheWorld().mutex);
  Stream* stream = nullptr;
  if (const cuda::CudaResult result = EnterStream("StreamBeginCapture", handle, &stream)) return result;
  if (handle == nullptr) return Wrong(kCaptureUnsupported, "the default stream cannot be captured");
  if (stream->capture != nullptr) return Wrong(kCaptureUnsupported, "the stream is captured already");
  stream->capture = std::make_shared<Capture>();
  stream->capture->mode = mode;
  stream->capture->id = ++TheWorld().captures;
  stream->capture->thread = std::this_thread::get_id();
  stream->capture->origin = stream;
  return cuda::kCudaSuccess;
}

cuda::CudaResult StreamEndCapture(cuda::CudaStream handle, cuda::CudaGraph* graph) {
  const Lock lock(TheWorld().mutex);
  *graph = nullptr;
  Stream* stream = nullptr;
  const cuda::CudaResult result = EnterStream("StreamEndCapture", handle, &stream);
  if (result != cuda::kCudaSuccess && result != kCaptureInvalidated) return result;
  const std::shared_ptr<Capture> capture = stream->capture;
  if (capture == nullptr || capture->origin != stream)
    return Wrong(kCaptureUnmatched, "a capture ends that did not start");
  if (capture->mode != 2 && capture->thread != std::this_thread::get_id()) {
    return Wrong(kCaptureWrongThread, "a capture ends in another thread than it started in");
  }
  for (const auto& other : TheWorld().streams) {
    if (other->capture == capture) other->capture = nullptr;
  }
  if (capture->invalid) {
    capture->graph->destroyed = true;
    ReleaseIfDead(*capture->graph);
    return kCaptureInvalidated;
  }
  for (const auto& [branch, state] : capture->branches) {
    if (branch != stream && state.waited < state.nodes)
      return Wrong(kCaptureUnjoined, "a captured stream was not joined");
  }
  *graph = capture->graph.get();
  TheWorld().graphs[capture->graph.get()] = capture->graph;
  return cuda::kCudaSuccess;
}

cuda::CudaResult ThreadExchangeStreamCaptureMode(int* mode) {
  std::swap(*mode, CaptureModeOfThread());
  return cuda::kCudaSuccess;
}

cuda::CudaResult GraphInstantiate(cuda::CudaGraphExec* handle, cuda::CudaGraph graph, unsigned long long) {
  const Lock lock(TheWorld().mutex);
  Device* device = nullptr;
  if (const cuda::CudaResult result = EnterCurrent("GraphInstantiateWithFlags", &device)) return result;
  const auto it = TheWorld().graphs.find(static_cast<Graph*>(graph));
  if (it == TheWorld().graphs.end() || it->second->destroyed) return Wrong(kInvalidHandle, "a graph is not there");
  auto exec = std::make_unique<GraphExec>();
  exec->graph = it->second;
  *handle = exec.get();
  TheWorld().execs.push_back(std::move(exec));
  return cuda::kCudaSuccess;
}

cuda::CudaResult GraphLaunch(cuda::CudaGraphExec handle, cuda::CudaStream stream_handle) {
  const Lock lock(TheWorld().mutex);
  Stream* stream = nullptr;
  if (const cuda::CudaResult result = EnterStream("GraphLaunch", stream_handle, &stream)) return result;
  GraphExec* exec = Find(TheWorld().execs, handle);
  if (exec == nullptr) return Wrong(kInvalidHandle, "an executable graph is not there");
  Launch(*exec, *stream);
  return cuda::kCudaSuccess;
}

cuda::CudaResult GraphExecDestroy(cuda::CudaGraphExec handle) {
  const Lock lock(TheWorld().mutex);
  if (const cuda::CudaResult result = Enter("GraphExecDestroy", CurrentDevice())) return result;
  GraphExec* exec = Find(TheWorld().execs, handle);
  if (exec == nullptr) return Wrong(kInvalidHandle, "an executable graph is not there");
  exec->destroyed = true;
  ReleaseIfDead(*exec->graph);
  return cuda::kCudaSuccess;
}

cuda::CudaResult GraphDestroy(cuda::CudaGraph handle) {
  const Lock lock(TheWorld().mutex);
  if (const cuda::CudaResult result = Enter("GraphDestroy", CurrentDevice())) return result;
  const auto it = TheWorld().graphs.find(static_cast<Graph*>(handle));
  if (it == TheWorld().graphs.end() || it->second->destroyed) return Wrong(kInvalidHandle, "a graph is not there");
  it->second->destroyed = true;
  ReleaseIfDead(*it->second);
  return cuda::kCudaSuccess;
}

cuda::CudaResult UserObjectCreate(cuda::CudaUserObject* handle, void* pointer, void (*destroy)(void*),
                                  unsigned references, unsigned flags) {
  const Lock lock(TheWorld().mutex);
  if (const cuda::CudaResult result = Enter("UserObjectCreate", CurrentDevice())) return result;
  if (destroy == nullptr || references == 0 || flags != cuda::kCudaUserObjectNoDestructorSync) {
    return Wrong(kInvalidValue, "UserObjectCreate of what is not an object");
  }
  TheWorld().user_objects.push_back(std::make_unique<UserObject>(UserObject{pointer, destroy, references}));
  *handle = TheWorld().user_objects.back().get();
  return cuda::kCudaSuccess;
}

cuda::CudaResult UserObjectRelease(cuda::CudaUserObject handle, unsigned references) {
  const Lock lock(TheWorld().mutex);
  if (const cuda::CudaResult result = Enter("UserObjectRelease", CurrentDevice())) return result;
  auto* const object = static_cast<UserObject*>(handle);
  if (object == nullptr || object->references < references) {
    return Wrong(kInvalidValue, "UserObjectRelease of more than there is");
  }
  object->references -= references;
  if (object->references == 0) object->destroy(object->pointer);
  return cuda::kCudaSuccess;
}

// The graph may still be one that is captured.
cuda::CudaResult GraphRetainUserObject(cuda::CudaGraph graph, cuda::CudaUserObject handle, unsigned references,
                                       unsigned flags) {
  const Lock lock(TheWorld().mutex);
  if (const cuda::CudaResult result = Enter("GraphRetainUserObject", CurrentDevice())) return result;
  auto* const object = static_cast<UserObject*>(handle);
  if (object == nullptr || graph == nullptr || flags != cuda::kCudaGraphUserObjectMove ||
      object->references < references) {
    return Wrong(kInvalidValue, "GraphRetainUserObject of what is not there");
  }
  static_cast<Graph*>(graph)->objects.emplace_back(object, references);
  return cuda::kCudaSuccess;
}

cuda::CudaResult EventCreate(cuda::CudaEvent* handle, unsigned flags) {
  const Lock lock(TheWorld().mutex);
  Device* device = nullptr;
  if (const cuda::CudaResult result = EnterCurrent("EventCreate", &device)) return result;
  auto event = std::make_unique<Event>();
  event->device = device;
  event->flags = flags;
  *handle = event.get();
  TheWorld().events.push_back(std::move(event));
  return cuda::kCudaSuccess;
}

cuda::CudaResult EventDestroy(cuda::CudaEvent handle) {
  const Lock lock(TheWorld().mutex);
  Event* event = Find(TheWorld().events, handle);
  if (const cuda::CudaResult result = Enter("EventDestroy", event == nullptr ? CurrentDevice() : event->device))
    return result;
  if (event == nullptr) return Wrong(kInvalidHandle, "EventDestroy of an event that is not there");
  event->destroyed = true;
  return cuda::kCudaSuccess;
}

cuda::CudaResult EventRecord(cuda::CudaEvent handle, cuda::CudaStream stream_handle) {
  const Lock lock(TheWorld().mutex);
  Stream* stream = nullptr;
  if (const cuda::CudaResult result = EnterStream("EventRecord", stream_handle, &stream)) return result;
  Event* event = Find(TheWorld().events, handle);
  if (event == nullptr) return Wrong(kInvalidHandle, "EventRecord of an event that is not there");
  if (event->device != stream->device) return Wrong(kInvalidHandle, "EventRecord of another device's event");
  event->capture = stream->capture;
  event->captured_stream = stream;
  event->mark = nullptr;
  if (stream->capture != nullptr) {
    event->captured_nodes = stream->capture->branches[stream].nodes;
    return cuda::kCudaSuccess;
  }
  event->mark = std::make_shared<Mark>();
  event->mark->stream = stream;
  event->mark->before = stream->before;
  event->mark->before[stream] = stream->enqueued;
  Enqueue(*stream, Record(event->mark));
  return cuda::kCudaSuccess;
}

cuda::CudaResult EventQuery(cuda::CudaEvent handle) {
  const Lock lock(TheWorld().mutex);
  Event* event = Find(TheWorld().events, handle);
  if (const cuda::CudaResult result = Enter("EventQuery", event == nullptr ? CurrentDevice() : event->device, false)) {
    return result;
  }
  if (event == nullptr) return Wrong(kInvalidHandle, "EventQuery of an event that is not there");
  if (event->capture != nullptr) {
    event->capture->invalid = true;
    return Wrong(kCapturedEvent, "EventQuery of an event that was recorded in a capture");
  }
  if (const cuda::CudaResult result = UnsafeInCapture("EventQuery")) return result;
  return event->mark == nullptr || event->mark->done ? cuda::kCudaSuccess : cuda::kCudaNotReady;
}

cuda::CudaResult EventElapsedTime(float* milliseconds, cuda::CudaEvent from_handle, cuda::CudaEvent to_handle) {
  const Lock lock(TheWorld().mutex);
  const Event* from = Find(TheWorld().events, from_handle);
  const Event* to = Find(TheWorld().events, to_handle);
  if (const cuda::CudaResult result = Enter("EventElapsedTime", from == nullptr ? CurrentDevice() : from->device))
    return result;
  if (from == nullptr || to == nullptr || from->mark == nullptr || to->mark == nullptr) {
    return Wrong(kInvalidHandle, "EventElapsedTime of events that were not recorded");
  }
  if (((from->flags | to->flags) & cuda::kCudaEventDisableTiming) != 0) {
    return Wrong(kInvalidHandle, "EventElapsedTime of events without times");
  }
  if (!from->mark->done || !to->mark->done) return cuda::kCudaNotReady;
  *milliseconds = std::chrono::duration<float, std::milli>(to->mark->time - from->mark->time).count();
  return cuda::kCudaSuccess;
}

}  // namespace

void FillStreamFunctions(cuda::CudaApi* api) {
  api->StreamCreate = StreamCreate;
  api->StreamDestroy = StreamDestroy;
  api->StreamSynchronize = StreamSynchronize;
  api->CtxSynchronize = CtxSynchronize;
  api->StreamQuery = StreamQuery;
  api->StreamWaitEvent = StreamWaitEvent;
  api->StreamIsCapturing = StreamIsCapturing;
  api->StreamGetCaptureInfo = StreamGetCaptureInfo;
  api->StreamBeginCapture = StreamBeginCapture;
  api->StreamEndCapture = StreamEndCapture;
  api->ThreadExchangeStreamCaptureMode = ThreadExchangeStreamCaptureMode;
  api->GraphInstantiateWithFlags = GraphInstantiate;
  api->GraphLaunch = GraphLaunch;
  api->GraphExecDestroy = GraphExecDestroy;
  api->GraphDestroy = GraphDestroy;
  api->UserObjectCreate = UserObjectCreate;
  api->UserObjectRelease = UserObjectRelease;
  api->GraphRetainUserObject = GraphRetainUserObject;
  api->EventCreate = EventCreate;
  api->EventDestroy = EventDestroy;
  api->EventRecord = EventRecord;
  api->EventQuery = EventQuery;
  api->EventElapsedTime = EventElapsedTime;
}

}  // namespace reshard::testing::fake
