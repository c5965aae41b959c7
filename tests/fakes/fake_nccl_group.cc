// How operations meet and move their bytes on the streams.
#include <algorithm>
#include <cstring>

#include "tests/fakes/fake_nccl_state.h"

namespace reshard::testing::fake {
namespace {

const std::pair<Kind, int> kCollectives{Kind::kAllReduce, -1};

std::pair<Kind, int> KeyOf(const Operation& operation) {
  return IsCollective(operation.terms.kind) ? kCollectives : std::make_pair(operation.terms.kind, operation.peer);
}

// The other side of a send or receive: who it belongs to, and under what it is pending there.
Comm* PeerOf(const Comm& comm, const Operation& operation) { return comm.clique->members[operation.peer]; }
std::pair<Kind, int> PeerKey(const Comm& comm, const Operation& operation) {
  return {operation.terms.kind == Kind::kSend ? Kind::kRecv : Kind::kSend, comm.rank};
}

bool Overlap(const void* a, size_t a_bytes, const void* b, size_t b_bytes) {
  const auto x = reinterpret_cast<uintptr_t>(a);
  const auto y = reinterpret_cast<uintptr_t>(b);
  return a_bytes > 0 && b_bytes > 0 && x < y + b_bytes && y < x + a_bytes;
}

}  // namespace

size_t Operation::send_bytes(int ranks) const {
  const size_t bytes = terms.count * BytesOf(terms.type);
  if (terms.kind == Kind::kRecv) return 0;
  return terms.kind == Kind::kReduceScatter || terms.kind == Kind::kAllToAll ? bytes * ranks : bytes;
}

size_t Operation::receive_bytes(int ranks) const {
  const size_t bytes = terms.count * BytesOf(terms.type);
  if (terms.kind == Kind::kSend) return 0;
  return terms.kind == Kind::kAllGather || terms.kind == Kind::kAllToAll ? bytes * ranks : bytes;
}

GroupWork::GroupWork(Comm* comm, std::vector<Operation> operations, std::vector<Stream*> streams)
    : comm_(comm), operations_(std::move(operations)), streams_(std::move(streams)) {}

bool GroupWork::ComesBefore(const Stream& stream) const {
  for (size_t i = 0; i < streams_.size(); ++i) {
    const auto known = stream.before.find(streams_[i]);
    if (streams_[i] == &stream || (known != stream.before.end() && known->second > places_[i])) return true;
  }
  return false;
}

// Kernels of two communicators that are on a device at once may each wait for what the other keeps from starting.
void GroupWork::CheckOrder() const {
  for (const auto& other : TheNccl().comms) {
    if (other.get() == comm_ || other->device != comm_->device || other->gone()) continue;
    const auto ordered = [&](const std::shared_ptr<GroupWork>& group) {
      return std::all_of(streams_.begin(), streams_.end(),
                         [&](const Stream* stream) { return group->ComesBefore(*stream); });
    };
    if (std::all_of(other->groups.begin(), other->groups.end(), ordered)) continue;
    TheWorld().Complain(comm_->Text() + ": nothing orders what is called behind what " + other->Text() +
                        " has under way on another stream");
  }
}

void GroupWork::Issue() {
  CheckOrder();
  for (const Stream* stream : streams_) places_.push_back(stream->enqueued);
  NcclState& nccl = TheNccl();
  const int rank = comm_->device->ordinal;
  const int64_t group = nccl.groups[rank]++;
  for (Operation& operation : operations_) {
    const auto key = KeyOf(operation);
    operation.number = comm_->issued_with[key]++;
    comm_->pending[key][operation.number] = {this, &operation};

    std::vector<FakeOperation>& record = nccl.operations[rank];
    const std::pair<int, int64_t> place{rank, static_cast<int64_t>(record.size())};
    operation.stalled = nccl.stalled.count(place) > 0;
    if (const auto it = nccl.fail_async.find(place); it != nccl.fail_async.end()) operation.fails = it->second;
    const int peer = operation.peer < 0 ? -1 : PeerOf(*comm_, operation)->device->ordinal;
    record.push_back(
        {NameOf(operation.terms.kind), operation.terms.count, operation.terms.type, peer, comm_->clique->ranks, group});
  }
  comm_->groups.push_back(shared_from_this());
}

void GroupWork::Run(Lock& lock, Stream&) {
  World& world = TheWorld();
  const bool last = ++reached_ == streams_.size();
  if (!last) {
    FindStuck();
    world.changed.wait(lock, [&] { return finished_ || world.closing; });
    return;
  }
  while (!world.closing && !comm_->gone() && comm_->groups.front().get() != this) {
    FindStuck();
    world.changed.wait(lock);
  }
  active_ = true;
  if (!comm_->gone() && !world.closing) Start();
  world.changed.notify_all();
  while (!world.closing && !comm_->gone() && !HasDone()) {
    if (Step(lock)) {
      ++world.steps;
      world.changed.notify_all();
      continue;
    }
    FindStuck();
    world.changed.wait(lock);
  }
  if (world.closing) return;
  for (Operation& operation : operations_) {
    if (!operation.done) Done(operation);
  }
  finished_ = true;
  auto& groups = comm_->groups;
  groups.erase(std::find_if(groups.begin(), groups.end(), [this](const auto& group) { return group.get() == this; }));
  world.changed.notify_all();
}

bool GroupWork::HasDone() const {
  return std::all_of(operations_.begin(), operations_.end(), [](const Operation& operation) { return operation.done; });
}

void GroupWork::Done(Operation& operation) {
  operation.done = true;
  comm_->pending[KeyOf(operation)].erase(operation.number);
}

// Its turn on the device: what it finds there.
void GroupWork::Start() {
  const int ranks = comm_->clique->ranks;
  for (Operation& operation : operations_) {
    if (operation.fails != kNcclSuccess) {
      comm_->Fail(operation.fails, "an error that the test planned for " + WaitText(operation));
    }
    for (const auto& [memory, bytes] : {std::pair<const void*, size_t>{operation.send, operation.send_bytes(ranks)},
                                        {operation.receive, operation.receive_bytes(ranks)}}) {
      const std::string wrong = CheckAccess(memory, bytes, comm_->device);
      if (wrong.empty()) continue;
      TheWorld().Complain(comm_->Text() + ", " + Text() + ": " + wrong);
      comm_->Fail(kNcclUnhandledCudaError, wrong);
      comm_->device->sticky = 700;  // an illegal address
    }
  }
  for (const Operation& a : operations_) {
    for (const Operation& b : operations_) {
      const bool same = &a == &b;
      const bool in_place = same || (a.send == b.receive && a.peer == comm_->rank && b.peer == comm_->rank);
      const bool clash = (!in_place && Overlap(a.send, a.send_bytes(ranks), b.receive, b.receive_bytes(ranks))) ||
                         (!same && Overlap(a.receive, a.receive_bytes(ranks), b.receive, b.receive_bytes(ranks)));
      if (clash) TheWorld().Complain(comm_->Text() + ": buffers overlap that a group writes: " + Text());
    }
  }
}

bool GroupWork::Step(Lock& lock) {
  if (comm_->error != kNcclSuccess) return false;  // the device is not trusted any more: it waits for the abort
  for (Operation& operation : operations_) {
    if (operation.done || operation.stalled) continue;
    if (operation.terms.kind == Kind::kSend) continue;
    if (operation.terms.kind == Kind::kRecv ? Receive(lock, operation) : Meet(lock, operation)) return true;
  }
  return false;
}

bool GroupWork::Receive(Lock& lock, Operation& operation) {
  Comm* const peer = PeerOf(*comm_, operation);
  if (peer->gone() || peer->error != kNcclSuccess) return false;
  auto& theirs = peer->pending[PeerKey(*comm_, operation)];
  const auto it = theirs.find(operation.number);
  if (it == theirs.end()) return false;
  // It stays while it is busy: an abort waits for that.
  GroupWork* const group = it->second.first;
  Operation& send = *it->second.second;
  if (!group->active_ || send.stalled) return false;
  if (send.terms.count != operation.terms.count || send.terms.type != operation.terms.type) {
    const std::string why = peer->Text() + " does " + fake::Text(send.terms) + " as #" + std::to_string(send.number) +
                            " to rank " + std::to_string(comm_->rank) + ", which does " + fake::Text(operation.terms);
    TheWorld().Complain(why);
    comm_->Fail(kNcclInvalidUsage, why);
    peer->Fail(kNcclInvalidUsage, why);
    TheWorld().changed.notify_all();
    return false;
  }
  operation.busy = send.busy = true;
  const size_t bytes = operation.receive_bytes(1);
  lock.unlock();
  if (bytes > 0) std::memmove(operation.receive, send.send, bytes);
  lock.lock();
  operation.busy = send.busy = false;
  group->Done(send);
  Done(operation);
  return true;
}

bool GroupWork::Meet(Lock& lock, Operation& operation) {
  Clique& clique = *comm_->clique;
  const int ranks = clique.ranks;
  std::shared_ptr<Meeting>& place = clique.meetings[operation.number];
  if (place == nullptr) {
    place = std::make_shared<Meeting>();
    place->terms.resize(ranks);
    place->inputs.resize(ranks);
  }
  const std::shared_ptr<Meeting> meeting = place;
  if (!operation.started) {
    operation.started = operation.busy = true;
    std::vector<unsigned char> input(operation.send_bytes(ranks));
    lock.unlock();
    if (!input.empty()) std::memcpy(input.data(), operation.send, input.size());
    lock.lock();
    operation.busy = false;
    meeting->inputs[comm_->rank] = std::move(input);
    meeting->terms[comm_->rank] = operation.terms;
    ++meeting->arrived;
    for (int other = 0; other < ranks; ++other) {
      if (!meeting->terms[other].has_value() || *meeting->terms[other] == operation.terms) continue;
      const std::string why = comm_->Text() + " does " + fake::Text(operation.terms) + " as collective #" +
                              std::to_string(operation.number) + ", while rank " + std::to_string(other) + " does " +
                              fake::Text(*meeting->terms[other]);
      TheWorld().Complain(why);
      for (Comm* member : clique.members) {
        if (!member->gone()) member->Fail(kNcclInvalidUsage, why);
      }
      break;
    }
    return true;
  }
  if (meeting->arrived < ranks) return false;

  operation.busy = true;
  lock.unlock();
  auto* const out = static_cast<unsigned char*>(operation.receive);
  const size_t part = operation.terms.count * BytesOf(operation.terms.type);
  if (operation.terms.kind == Kind::kReduceScatter) {
    Reduce(meeting->inputs, part * comm_->rank, operation.terms, out);
  } else if (operation.terms.kind == Kind::kAllReduce) {
    Reduce(meeting->inputs, 0, operation.terms, out);
  } else {
    const size_t offset = operation.terms.kind == Kind::kAllToAll ? part * comm_->rank : 0;
    for (int from = 0; from < ranks && part > 0; ++from) {
      std::memcpy(out + part * from, meeting->inputs[from].data() + offset, part);
    }
  }
  lock.lock();
  operation.busy = false;
  if (++meeting->left == ranks) clique.meetings.erase(operation.number);
  Done(operation);
  return true;
}

bool GroupWork::MayStart(const Live& live) const {
  for (Stream* stream : streams_) {
    if (stream->queue.front().get() != this && !live(stream)) return false;
  }
  for (const auto& earlier : comm_->groups) {
    if (earlier.get() == this) break;
    for (Stream* stream : earlier->streams_) {
      if (!live(stream)) return false;
    }
  }
  return true;
}

bool GroupWork::MayProceed(const Live& live) const {
  // A rank with an error was told, and waits to be aborted.
  if (finished_ || comm_->gone() || comm_->error != kNcclSuccess) return true;
  if (!MayStart(live)) return false;
  const auto other_side = [&](Comm* peer, const std::pair<Kind, int>& key, int64_t number) {
    if (peer->error != kNcclSuccess && !peer->destroyed) return true;
    const auto list = peer->pending.find(key);
    if (list != peer->pending.end()) {
      const auto it = list->second.find(number);
      if (it != list->second.end()) return peer->aborted || it->second.first->MayStart(live);
    }
    // May still be issued; an abort goes unnoticed, as over NVLink.
    return !peer->destroyed;
  };
  for (const Operation& operation : operations_) {
    if (operation.done || operation.busy || operation.stalled) continue;
    if (!IsCollective(operation.terms.kind)) {
      if (!other_side(PeerOf(*comm_, operation), PeerKey(*comm_, operation), operation.number)) return false;
      continue;
    }
    const auto meeting = comm_->clique->meetings.find(operation.number);
    for (int other = 0; other < comm_->clique->ranks; ++other) {
      if (meeting != comm_->clique->meetings.end() && meeting->second->terms[other].has_value()) continue;
      if (other != comm_->rank && !other_side(comm_->clique->members[other], kCollectives, operation.number))
        return false;
    }
  }
  return true;
}

void GroupWork::Stuck(const std::string& all) {
  if (told_) return;
  told_ = true;
  const std::string why = "these wait for each other, or for a rank that has gone: " + all;
  // Once for all of them: each of them names them all.
  const auto& complaints = TheWorld().complaints;
  if (std::find(complaints.begin(), complaints.end(), why) == complaints.end()) TheWorld().Complain(why);
  comm_->Fail(kNcclInvalidUsage, why);
  TheWorld().changed.notify_all();
}

std::string GroupWork::WaitText(const Operation& operation) const {
  std::string out = std::string(NameOf(operation.terms.kind)) + " #" + std::to_string(operation.number);
  if (operation.terms.kind == Kind::kSend) out += " to rank " + std::to_string(operation.peer);
  if (operation.terms.kind == Kind::kRecv) out += " from rank " + std::to_string(operation.peer);
  return out + " (" + std::to_string(operation.terms.count) + " elements)";
}

std::string GroupWork::Text() const {
  std::string out;
  for (const Operation& operation : operations_) {
    if (!operation.done) out += (out.empty() ? "" : ", ") + WaitText(operation);
  }
  return comm_->Text() + ": " + out;
}

}  // namespace reshard::testing::fake
