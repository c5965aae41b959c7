// Groups, and the calls that put operations into them.
#include <algorithm>
#include <cstring>

#include "tests/fakes/fake_nccl_state.h"

namespace reshard::testing::fake {
namespace {

struct Issued {
  Comm* comm = nullptr;
  Operation operation;
  Stream* stream = nullptr;
};
struct OpenGroup {
  int depth = 0;
  std::vector<Issued> issued;
  NcclResult error = kNcclSuccess;
  uint64_t generation = 0;
};
OpenGroup& TheGroup() {
  thread_local OpenGroup group;
  // What an earlier test left open is gone.
  if (group.generation != TheWorld().generation) group = OpenGroup();
  group.generation = TheWorld().generation;
  return group;
}

// One launch: at once, or at each launch of the graph that captures the stream.
void Launch(Comm* comm, const std::vector<Operation>& operations, const std::vector<Stream*>& streams) {
  for (Stream* stream : streams) {
    if (stream->capture == nullptr) continue;
    for (Stream* other : streams) {
      if (other->capture != stream->capture) {
        TheWorld().Complain(comm->Text() + ": a group is on captured streams and on others");
      }
    }
    stream->capture->graph->used.insert(comm);
    Enqueue(*stream, [=](Stream& on) {
      if (comm->gone()) TheWorld().Complain(comm->Text() + " has gone, and a graph with its operations is launched");
      auto work = std::make_shared<GroupWork>(comm, operations, std::vector<Stream*>{&on});
      work->Issue();
      return work;
    });
    return;
  }
  auto work = std::make_shared<GroupWork>(comm, operations, streams);
  work->Issue();
  for (Stream* stream : streams) Enqueue(*stream, [=](Stream&) { return work; });
}

// The operations of one communicator in a group that ends. InProgress when it connects first.
NcclResult EndGroupOf(Comm* comm, const std::vector<Issued>& issued) {
  std::vector<Operation> operations;
  std::vector<Stream*> streams;
  bool connects = false;
  int to_itself = 0;
  for (const Issued& one : issued) {
    if (one.comm != comm) continue;
    operations.push_back(one.operation);
    if (std::find(streams.begin(), streams.end(), one.stream) == streams.end()) streams.push_back(one.stream);
    const bool collective = IsCollective(one.operation.terms.kind);
    if (one.operation.peer == comm->rank) to_itself += one.operation.terms.kind == Kind::kSend ? 1 : -1;
    connects |= comm->connected.insert({collective, one.operation.peer}).second;
  }
  if (to_itself != 0) {
    comm->Fail(kNcclInvalidUsage, "a group sends to itself without receiving that, or the other way round");
    return WrongUse(kNcclInvalidUsage, comm->Text() + ": " + comm->last_error);
  }
  if (!connects || comm->blocking) {
    Launch(comm, operations, streams);
    return kNcclSuccess;
  }
  comm->polls = TheNccl().options.polls;
  comm->then = [=] { Launch(comm, operations, streams); };
  return comm->polls == 0 ? (comm->then(), kNcclSuccess) : kNcclInProgress;
}

NcclResult EndGroup() {
  OpenGroup& group = TheGroup();
  if (--group.depth > 0) return kNcclSuccess;
  const std::vector<Issued> issued = std::move(group.issued);
  NcclResult result = group.error;
  group = OpenGroup();
  std::vector<Comm*> comms;
  for (const Issued& one : issued) {
    if (std::find(comms.begin(), comms.end(), one.comm) == comms.end()) comms.push_back(one.comm);
  }
  for (Comm* comm : comms) {
    comm->group_of = std::thread::id();
    if (result == kNcclSuccess || result == kNcclInProgress) {
      const NcclResult one = EndGroupOf(comm, issued);
      if (one != kNcclSuccess) result = one;
    } else if (result != kNcclInvalidArgument) {
      comm->Fail(result, "an operation of its group failed");
    }
  }
  return result;
}

NcclResult GroupStart() {
  const Lock lock(TheWorld().mutex);
  const Device* device = CurrentDevice();
  if (const NcclResult result = TheNccl().book.Count("GroupStart", device == nullptr ? -1 : device->ordinal))
    return result;
  ++TheGroup().depth;
  return kNcclSuccess;
}

NcclResult GroupEnd() {
  const Lock lock(TheWorld().mutex);
  const Device* device = CurrentDevice();
  const NcclResult planned = TheNccl().book.Count("GroupEnd", device == nullptr ? -1 : device->ordinal);
  if (TheGroup().depth == 0) return WrongUse(kNcclInvalidUsage, "GroupEnd without GroupStart");
  if (planned != kNcclSuccess) TheGroup().error = planned;
  return EndGroup();
}

// What is wrong with the buffers of an operation; empty when nothing is.
std::string WrongBuffers(const Comm& comm, const Operation& operation) {
  const Terms& terms = operation.terms;
  const int ranks = comm.clique->ranks;
  const size_t part = terms.count * BytesOf(terms.type);
  if (terms.count == 0) return "";
  if (terms.kind != Kind::kRecv && operation.send == nullptr) return "the source is null";
  if (terms.kind != Kind::kSend && operation.receive == nullptr) return "the target is null";
  if (!IsCollective(terms.kind)) return "";
  const auto send = reinterpret_cast<uintptr_t>(operation.send);
  const auto receive = reinterpret_cast<uintptr_t>(operation.receive);
  const bool overlap = send < receive + operation.receive_bytes(ranks) && receive < send + operation.send_bytes(ranks);
  const bool in_place = (terms.kind == Kind::kAllGather && send == receive + part * comm.rank) ||
                        (terms.kind == Kind::kReduceScatter && receive == send + part * comm.rank) ||
                        (terms.kind == Kind::kAllReduce && send == receive);
  return overlap && !in_place ? "source and target overlap, not as NCCL allows it" : "";
}

NcclResult Issue(const char* function, NcclComm handle, Operation operation, void* stream_handle) {
  Lock lock(TheWorld().mutex);
  ++TheGroup().depth;  // a call outside of groups is a group of one
  const auto add = [&]() -> NcclResult {
    CommCall call(lock, function, handle, {});
    if (call.result() != kNcclSuccess) return call.result();
    Comm* const comm = call.comm();
    const std::string where = comm->Text() + ", " + function + ": ";
    const bool reduces = operation.terms.kind == Kind::kReduceScatter || operation.terms.kind == Kind::kAllReduce;
    if (BytesOf(operation.terms.type) == 0) return WrongUse(kNcclInvalidArgument, where + "no such type");
    if (reduces && (operation.terms.op < kNcclSum || operation.terms.op > kNcclAvg)) {
      return WrongUse(kNcclInvalidArgument, where + "no such reduction");
    }
    if (!IsCollective(operation.terms.kind) && (operation.peer < 0 || operation.peer >= comm->clique->ranks)) {
      return WrongUse(kNcclInvalidArgument, where + "no such peer: " + std::to_string(operation.peer));
    }
    const std::string wrong = WrongBuffers(*comm, operation);
    if (!wrong.empty()) return WrongUse(kNcclInvalidArgument, where + wrong);
    Stream* stream = comm->device->null_stream.get();
    if (stream_handle != nullptr) {
      stream = nullptr;
      for (const auto& one : TheWorld().streams) {
        if (one.get() == stream_handle && !one->destroyed) stream = one.get();
      }
      if (stream == nullptr) return WrongUse(kNcclUnhandledCudaError, where + "the stream is not there");
      if (stream->device != comm->device) {
        return WrongUse(kNcclUnhandledCudaError, where + "the stream is another device's");
      }
    }
    TheGroup().issued.push_back({comm, operation, stream});
    comm->group_of = std::this_thread::get_id();
    return kNcclSuccess;
  };
  const NcclResult result = add();
  if (result != kNcclSuccess) TheGroup().error = result;
  const NcclResult end = EndGroup();
  return result != kNcclSuccess ? result : end;
}

Operation Make(Kind kind, const void* send, void* receive, size_t count, NcclDataType type, NcclRedOp op, int peer) {
  Operation out;
  out.terms = {kind, count, type, op};
  out.send = send;
  out.receive = receive;
  out.peer = peer;
  return out;
}

NcclResult Send(const void* data, size_t count, NcclDataType type, int peer, NcclComm comm, void* stream) {
  return Issue("Send", comm, Make(Kind::kSend, data, nullptr, count, type, 0, peer), stream);
}
NcclResult Recv(void* data, size_t count, NcclDataType type, int peer, NcclComm comm, void* stream) {
  return Issue("Recv", comm, Make(Kind::kRecv, nullptr, data, count, type, 0, peer), stream);
}
NcclResult AllGather(const void* send, void* receive, size_t count, NcclDataType type, NcclComm comm, void* stream) {
  return Issue("AllGather", comm, Make(Kind::kAllGather, send, receive, count, type, 0, -1), stream);
}
NcclResult ReduceScatter(const void* send, void* receive, size_t count, NcclDataType type, NcclRedOp op, NcclComm comm,
                         void* stream) {
  return Issue("ReduceScatter", comm, Make(Kind::kReduceScatter, send, receive, count, type, op, -1), stream);
}
NcclResult AllReduce(const void* send, void* receive, size_t count, NcclDataType type, NcclRedOp op, NcclComm comm,
                     void* stream) {
  return Issue("AllReduce", comm, Make(Kind::kAllReduce, send, receive, count, type, op, -1), stream);
}
NcclResult AlltoAll(const void* send, void* receive, size_t count, NcclDataType type, NcclComm comm, void* stream) {
  return Issue("AlltoAll", comm, Make(Kind::kAllToAll, send, receive, count, type, 0, -1), stream);
}

}  // namespace

int GroupDepth() { return TheGroup().depth; }

const char* NameOf(Kind kind) {
  switch (kind) {
    case Kind::kSend:
      return "Send";
    case Kind::kRecv:
      return "Recv";
    case Kind::kAllGather:
      return "AllGather";
    case Kind::kReduceScatter:
      return "ReduceScatter";
    case Kind::kAllReduce:
      return "AllReduce";
    case Kind::kAllToAll:
      return "AlltoAll";
  }
  return "";
}

std::string Text(const Terms& terms) {
  std::string out = std::string(NameOf(terms.kind)) + " of " + std::to_string(terms.count) + " elements of type " +
                    std::to_string(terms.type);
  if (terms.kind == Kind::kReduceScatter || terms.kind == Kind::kAllReduce)
    out += ", reduction " + std::to_string(terms.op);
  return out;
}

void FillOperationFunctions(NcclApi* api, bool all_to_all) {
  api->GroupStart = GroupStart;
  api->GroupEnd = GroupEnd;
  api->Send = Send;
  api->Recv = Recv;
  api->AllGather = AllGather;
  api->ReduceScatter = ReduceScatter;
  api->AllReduce = AllReduce;
  if (all_to_all) api->AlltoAll = AlltoAll;
}

}  // namespace reshard::testing::fake
