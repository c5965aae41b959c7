// How communicators begin, split and end.
#include <algorithm>
#include <chrono>
#include <cstring>

#include "tests/fakes/fake_nccl_state.h"

namespace reshard::testing::fake {
namespace {

using std::chrono::seconds;

Comm* NewComm(Clique* clique, int rank, Device* device, bool blocking) {
  auto comm = std::make_unique<Comm>();
  comm->clique = clique;
  comm->rank = rank;
  comm->device = device;
  comm->blocking = blocking;
  TheNccl().comms.push_back(std::move(comm));
  return TheNccl().comms.back().get();
}

Clique* NewClique(int ranks) {
  auto clique = std::make_unique<Clique>();
  clique->number = static_cast<int>(TheNccl().cliques.size());
  clique->ranks = ranks;
  clique->members.resize(ranks);
  TheNccl().cliques.push_back(std::move(clique));
  return TheNccl().cliques.back().get();
}

// Waits on the host, as a blocking call does.
template <typename Condition>
NcclResult Await(Lock& lock, const std::string& what, const Condition& condition) {
  World& world = TheWorld();
  const bool came = world.changed.wait_for(lock, seconds(60), [&] { return world.closing || condition(); });
  return came ? kNcclSuccess : WrongUse(kNcclSystemError, what + ": waited 60 s in vain");
}

// True, with a complaint, inside of a group, where no communicator may be made or ended here.
bool InGroup(const char* function) {
  if (GroupDepth() == 0) return false;
  TheWorld().Complain(std::string(function) + " between GroupStart and GroupEnd");
  return true;
}

NcclResult GetUniqueId(NcclUniqueId* id) {
  const Lock lock(TheWorld().mutex);
  const Device* device = CurrentDevice();
  if (const NcclResult result = TheNccl().book.Count("GetUniqueId", device == nullptr ? -1 : device->ordinal))
    return result;
  *id = NcclUniqueId();
  const int64_t number = ++TheNccl().ids;
  std::memcpy(id->internal, "unique", 6);
  // No zero byte at its end: code that cuts it off as a string loses something.
  std::memcpy(id->internal + 8, &number, sizeof(number));
  id->internal[127] = 7;
  return kNcclSuccess;
}

NcclResult CommInitRankConfig(NcclComm* handle, int ranks, NcclUniqueId id, int rank, NcclConfig* config) {
  Lock lock(TheWorld().mutex);
  NcclState& nccl = TheNccl();
  // As the CUDA runtime has it: the first device when no context is current.
  Device* device = CurrentDevice();
  if (device == nullptr) device = TheWorld().devices.at(0).get();
  if (const NcclResult result = nccl.book.Count("CommInitRankConfig", device->ordinal)) return result;
  if (InGroup("CommInitRankConfig")) return kNcclInvalidUsage;
  if (config != nullptr && (config->size != sizeof(NcclConfig) || config->magic != 0xcafebeef)) {
    return WrongUse(kNcclInvalidArgument, "CommInitRankConfig: the config was not initialized");
  }
  if (ranks < 1 || rank < 0 || rank >= ranks) {
    return WrongUse(kNcclInvalidArgument,
                    "CommInitRankConfig: rank " + std::to_string(rank) + " of " + std::to_string(ranks));
  }
  const std::string key(id.internal, sizeof(id.internal));
  if (key.compare(0, 6, "unique") != 0 || key[127] != 7) {
    return WrongUse(kNcclInvalidArgument, "CommInitRankConfig: this is not a unique id");
  }
  Clique*& clique = nccl.by_id[key];
  if (clique == nullptr) clique = NewClique(ranks);
  Comm* comm = NewComm(clique, rank, device, config == nullptr || config->blocking != 0);
  comm->given = true;
  *handle = comm;
  std::string wrong;
  if (clique->ranks != ranks || clique->members[rank] != nullptr) {
    wrong = comm->Text() + " of " + std::to_string(ranks) +
            " meets others under an id where that rank is there already " + "or where there are " +
            std::to_string(clique->ranks) + " ranks";
  } else {
    for (const Comm* other : clique->members) {
      if (other == nullptr || other->device != device) continue;
      wrong = "duplicate GPU: ranks " + std::to_string(other->rank) + " and " + std::to_string(rank) +
              " are both on device " + std::to_string(device->ordinal);
    }
    clique->members[rank] = comm;
    ++clique->arrived;
  }
  if (!wrong.empty()) {
    TheWorld().Complain(wrong);
    comm->Fail(kNcclInvalidUsage, wrong);
    for (Comm* other : clique->members) {
      if (other != nullptr) other->Fail(kNcclInvalidUsage, wrong);
    }
  }
  TheWorld().changed.notify_all();
  const auto all_there = [clique] { return clique->arrived == clique->ranks; };
  if (!comm->blocking) {
    comm->polls = nccl.options.polls;
    comm->until = all_there;
    return kNcclInProgress;
  }
  const NcclResult met =
      Await(lock, comm->Text() + ", CommInitRankConfig", [&] { return all_there() || comm->error != kNcclSuccess; });
  return met != kNcclSuccess ? met : comm->error;
}

void MakeParts(Clique* clique, Split* split) {
  std::map<int, std::vector<std::pair<int, int>>> parts;  // color -> (key, rank)
  for (const auto& [rank, member] : split->members) {
    if (member.color != kNcclSplitNoColor) parts[member.color].push_back({member.key, rank});
  }
  for (auto& [color, part] : parts) {
    std::sort(part.begin(), part.end());
    Clique* made = NewClique(static_cast<int>(part.size()));
    made->arrived = made->ranks;
    for (int i = 0; i < made->ranks; ++i) {
      Split::Member& member = split->members[part[i].second];
      member.made = NewComm(made, i, clique->members[part[i].second]->device, member.blocking);
      made->members[i] = member.made;
    }
  }
  split->complete = true;
}

// What CommSplit makes for this rank; null without a color.
Comm* Give(Split* split, int rank) {
  Comm* const made = split->members[rank].made;
  if (made != nullptr) made->given = true;
  return made;
}

NcclResult CommSplit(NcclComm handle, int color, int key, NcclComm* part, NcclConfig* config) {
  Lock lock(TheWorld().mutex);
  const CommCall call(lock, "CommSplit", handle, {});
  if (call.result() != kNcclSuccess) return call.result();
  if (InGroup("CommSplit")) return kNcclInvalidUsage;
  Comm* const comm = call.comm();
  if (!comm->groups.empty()) {
    TheWorld().Complain(comm->Text() + ", CommSplit: what it has on the device has not ended");
  }
  if (color < 0 && color != kNcclSplitNoColor)
    return WrongUse(kNcclInvalidArgument, comm->Text() + ", CommSplit: a negative color");
  *part = nullptr;
  std::shared_ptr<Split>& place = comm->clique->splits[comm->splits++];
  if (place == nullptr) place = std::make_shared<Split>();
  const std::shared_ptr<Split> split = place;
  Split::Member& member = split->members[comm->rank];
  member.color = color;
  member.key = key;
  member.blocking = config == nullptr || config->blocking == INT_MIN ? comm->blocking : config->blocking != 0;
  if (static_cast<int>(split->members.size()) == comm->clique->ranks) MakeParts(comm->clique, split.get());
  TheWorld().changed.notify_all();
  if (!comm->blocking) {
    comm->polls = TheNccl().options.polls;
    comm->until = [split] { return split->complete; };
    comm->then = [split, comm, part] { *part = Give(split.get(), comm->rank); };
    return kNcclInProgress;
  }
  const NcclResult met =
      Await(lock, comm->Text() + ", CommSplit", [&] { return split->complete || comm->error != kNcclSuccess; });
  *part = Give(split.get(), comm->rank);
  return met != kNcclSuccess ? met : comm->error;
}

NcclResult CommFinalize(NcclComm handle) {
  Lock lock(TheWorld().mutex);
  const CommCall call(lock, "CommFinalize", handle, {});
  if (call.result() != kNcclSuccess) return call.result();
  if (InGroup("CommFinalize")) return kNcclInvalidUsage;
  Comm* const comm = call.comm();
  comm->finalized = true;
  if (!comm->blocking) {
    comm->polls = TheNccl().options.polls;
    comm->until = [comm] { return comm->groups.empty(); };
    return kNcclInProgress;
  }
  const NcclResult done =
      Await(lock, comm->Text() + ", CommFinalize", [&] { return comm->groups.empty() || comm->error != kNcclSuccess; });
  return done != kNcclSuccess ? done : comm->error;
}

NcclResult CommDestroy(NcclComm handle) {
  Lock lock(TheWorld().mutex);
  if (handle == nullptr) return kNcclSuccess;
  const CommCall call(lock, "CommDestroy", handle, {.finalized = true});
  if (call.result() != kNcclSuccess) return call.result();
  if (InGroup("CommDestroy")) return kNcclInvalidUsage;
  Comm* const comm = call.comm();
  // Real ones wait for graphs for as long as these are there.
  const NcclResult done = Await(lock, comm->Text() + ", CommDestroy", [&] {
    return (comm->groups.empty() || comm->error != kNcclSuccess) && !IsInAGraph(comm);
  });
  if (done != kNcclSuccess || comm->error != kNcclSuccess) return done != kNcclSuccess ? done : comm->error;
  comm->destroyed = true;
  FindStuck();
  TheWorld().changed.notify_all();
  return kNcclSuccess;
}

NcclResult CommAbort(NcclComm handle) {
  Lock lock(TheWorld().mutex);
  if (handle == nullptr) return kNcclSuccess;
  const CommCall call(lock, "CommAbort", handle, {.in_progress = true, .finalized = true, .failed = true});
  if (call.result() != kNcclSuccess) return call.result();
  if (InGroup("CommAbort")) return kNcclInvalidUsage;
  Comm* const comm = call.comm();
  // From now on nothing of it starts; what moves bytes just now ends first.
  comm->Fail(kNcclInternalError, "aborted");
  TheWorld().changed.wait(lock, [&] {
    for (const auto& [key, list] : comm->pending) {
      for (const auto& [number, place] : list) {
        if (place.second->busy) return TheWorld().closing;
      }
    }
    return true;
  });
  comm->aborted = true;
  comm->polls = 0;
  comm->until = nullptr;
  comm->then = nullptr;
  if (TheNccl().options.peers_notice_abort) {
    for (Comm* other : comm->clique->members) {
      if (other != nullptr && !other->gone()) {
        other->Fail(kNcclRemoteError, comm->Text() + " has closed the connection");
      }
    }
  }
  TheWorld().changed.notify_all();
  // What runs has ended; the call returns when no graph can run it again.
  return Await(lock, comm->Text() + ", CommAbort", [&] { return !IsInAGraph(comm); });
}

NcclResult CommGetAsyncError(NcclComm handle, NcclResult* error) {
  const Lock lock(TheWorld().mutex);
  Comm* comm = nullptr;
  for (const auto& one : TheNccl().comms) {
    if (one.get() == handle) comm = one.get();
  }
  if (comm == nullptr || comm->gone())
    return WrongUse(kNcclInvalidArgument, "CommGetAsyncError of a communicator that has gone");
  if (const NcclResult result = TheNccl().book.Count("CommGetAsyncError", comm->device->ordinal, /*numbered=*/false)) {
    return result;
  }
  *error = comm->error;
  if (comm->error != kNcclSuccess || !comm->in_progress()) return kNcclSuccess;
  *error = kNcclInProgress;
  if (comm->until != nullptr && !comm->until()) return kNcclSuccess;
  if (comm->polls > 0) --comm->polls;
  if (comm->polls > 0) return kNcclSuccess;
  comm->until = nullptr;
  const auto then = std::move(comm->then);
  comm->then = nullptr;
  if (then != nullptr) then();
  *error = comm->error;
  return kNcclSuccess;
}

}  // namespace

void FillCommFunctions(NcclApi* api) {
  api->GetUniqueId = GetUniqueId;
  api->CommInitRankConfig = CommInitRankConfig;
  api->CommSplit = CommSplit;
  api->CommFinalize = CommFinalize;
  api->CommDestroy = CommDestroy;
  api->CommAbort = CommAbort;
  api->CommGetAsyncError = CommGetAsyncError;
}

}  // namespace reshard::testing::fake
