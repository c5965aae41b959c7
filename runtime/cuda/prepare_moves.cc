#include <algorithm>
#include <cstddef>
#include <optional>
#include <utility>

#include "runtime/cuda/device_program.h"
#include "runtime/host/reduce.h"

namespace reshard::cuda {

int DevicePreparation::Stage(int64_t bytes) {
  program.staging.push_back(bytes);
  return static_cast<int>(2 * step.tensors.size() + program.staging.size() - 1);
}

void DevicePreparation::Launch(const std::vector<CopyJob>& jobs) {
  LaunchCopies launch;
  launch.table = MakeCopyTable(jobs);
  if (!launch.table.empty()) program.actions.emplace_back(std::move(launch));
}

void DevicePreparation::CopyOwn(const std::vector<CopyJob>& own) {
  // This many copies of the driver take as long to hand over as one launch.
  constexpr size_t kFewCopies = 2;
  const bool runs = std::all_of(own.begin(), own.end(), [](const CopyJob& job) { return job.copy->contiguous(); });
  if (!runs || own.size() > kFewCopies) return Launch(own);
  for (const CopyJob& job : own) {
    if (job.copy->bytes() == 0) continue;
    program.actions.emplace_back(CopyBytes{{job.from_base, job.from_offset + job.copy->from_offset()},
                                           {job.to_base, job.to_offset + job.copy->to_offset()},
                                           job.copy->bytes()});
  }
}

void DevicePreparation::Exchange(const std::vector<packed::MessagePart>& sends,
                                 const std::vector<packed::MessagePart>& receives, std::vector<CopyJob> own) {
  std::vector<packed::WireMessage> outgoing = packed::MessagesOf(sends, rank);
  std::vector<packed::WireMessage> incoming = packed::MessagesOf(receives, rank);
  const int64_t send_bytes = packed::PlaceStaging(outgoing);
  const int64_t receive_bytes = packed::PlaceStaging(incoming);
  const int send_staging = send_bytes > 0 ? Stage(send_bytes) : -1;
  const int receive_staging = receive_bytes > 0 ? Stage(receive_bytes) : -1;

  ExchangeMessages exchange;
  std::vector<CopyJob> pack;
  for (const packed::WireMessage& message : outgoing) {
    if (message.direct()) {
      const packed::MessagePart& piece = *message.pieces[0];
      exchange.sends.push_back({message.peer, {piece.tensor, piece.copy->from_offset()}, message.bytes});
      continue;
    }
    exchange.sends.push_back({message.peer, {send_staging, message.staged_at}, message.bytes});
    int64_t at = message.staged_at;
    for (const packed::MessagePart* piece : message.pieces) {
      pack.push_back({piece->copy, piece->tensor, 0, send_staging, at});
      at += piece->bytes;
    }
  }
  std::vector<CopyJob> unpack;
  for (const packed::WireMessage& message : incoming) {
    if (message.direct()) {
      const packed::MessagePart& piece = *message.pieces[0];
      exchange.receives.push_back({message.peer, {piece.tensor, piece.copy->to_offset()}, message.bytes});
      continue;
    }
    exchange.receives.push_back({message.peer, {receive_staging, message.staged_at}, message.bytes});
    int64_t at = message.staged_at;
    for (const packed::MessagePart* piece : message.pieces) {
      unpack.push_back({piece->copy, receive_staging, at, piece->tensor, 0});
      at += piece->bytes;
    }
  }
  // After the exchange rather than before: there others wait for this rank's messages.
  std::vector<CopyJob>* const with = !unpack.empty() ? &unpack : !pack.empty() ? &pack : nullptr;
  if (with != nullptr) {
    with->insert(with->end(), own.begin(), own.end());
    own.clear();
  }
  Launch(pack);
  if (!exchange.sends.empty() || !exchange.receives.empty()) program.actions.emplace_back(std::move(exchange));
  Launch(unpack);
  CopyOwn(own);
}

void PrepareExchange(DevicePreparation& p) {
  std::vector<ContributionBlock> contributions = StageContributions(p);
  std::vector<packed::MessagePart> sends;
  std::vector<packed::MessagePart> receives;
  std::vector<CopyJob> own;
  for (const Transfer& transfer : p.step.sends) {
    const ConstTensorView& in = p.inputs[transfer.tensor];
    sends.push_back(
        {transfer.peer, nullptr, p.copies.Pack(transfer, in, IsDense(in)), transfer.bytes, p.Input(transfer.tensor)});
  }
  for (const Transfer& transfer : p.step.receives) {
    const ConstTensorView& in = p.inputs[transfer.tensor];
    const TensorView& out = p.outputs[transfer.tensor];
    ContributionBlock& block = contributions[transfer.tensor];
    if (block.members > 0) {
      const int64_t at = block.placed++ * block.pitch;
      if (transfer.peer == p.rank) {
        own.push_back({p.copies.MakePack(*transfer.region, in), p.Input(transfer.tensor), 0, block.base, at});
      } else {
        receives.push_back({transfer.peer, nullptr, p.copies.Bytes(0, at, transfer.bytes), transfer.bytes, block.base});
      }
      continue;
    }
    p.program.stats.written += transfer.bytes;
    if (transfer.peer == p.rank) {
      p.program.stats.copied_local += transfer.bytes;
      own.push_back({p.copies.Own(transfer, in, out, IsDense(in) && IsDense(out)), p.Input(transfer.tensor), 0,
                     p.Output(transfer.tensor), 0});
    } else {
      receives.push_back({transfer.peer, nullptr, p.copies.Unpack(transfer, out, IsDense(out)), transfer.bytes,
                          p.Output(transfer.tensor)});
    }
  }
  p.program.stats.received += p.step.recv_bytes;
  p.Exchange(sends, receives, std::move(own));
  CombineContributions(p, contributions);
}

bool FollowEachOther(const std::vector<const StridedCopy*>& copies, int64_t (StridedCopy::*offset)() const,
                     int64_t bytes) {
  for (size_t m = 0; m < copies.size(); ++m) {
    if (!copies[m]->contiguous()) return false;
    if ((copies[m]->*offset)() != (copies[0]->*offset)() + static_cast<int64_t>(m) * bytes) return false;
  }
  return true;
}

namespace {

// The parts of one tensor that the members of a group trade, in the order of the group.
struct Parts {
  int64_t bytes = 0;                      // of each
  std::vector<const Transfer*> sends;     // to each member; null to oneself
  std::vector<const Transfer*> receives;  // from each member
};

// Nothing when the members' parts of a tensor differ. A tensor without elements in this group has 0 bytes.
std::optional<std::vector<Parts>> EqualParts(const StepProgram& step, int64_t rank) {
  const size_t members = step.group.size();
  std::vector<Parts> parts(step.tensors.size());
  const auto index_of = [&](int64_t peer) -> std::optional<size_t> {
    const auto found = std::find(step.group.begin(), step.group.end(), peer);
    if (found == step.group.end()) return std::nullopt;
    return static_cast<size_t>(found - step.group.begin());
  };
  const auto put = [&](const Transfer& transfer, std::vector<const Transfer*> Parts::*side) {
    Parts& of = parts[transfer.tensor];
    const std::optional<size_t> index = index_of(transfer.peer);
    if (of.bytes == 0) of.bytes = transfer.bytes;
    if (!index || of.bytes != transfer.bytes) return false;
    std::vector<const Transfer*>& list = of.*side;
    list.resize(members, nullptr);
    if (list[*index] != nullptr) return false;
    list[*index] = &transfer;
    return true;
  };
  for (const Transfer& transfer : step.sends) {
    if (!put(transfer, &Parts::sends)) return std::nullopt;
  }
  for (const Transfer& transfer : step.receives) {
    if (!put(transfer, &Parts::receives)) return std::nullopt;
  }
  for (const Parts& of : parts) {
    if (of.bytes == 0) continue;
    if (of.sends.size() != members || of.receives.size() != members) return std::nullopt;
    for (size_t m = 0; m < members; ++m) {
      if (of.receives[m] == nullptr) return std::nullopt;
      if ((of.sends[m] == nullptr) != (step.group[m] == rank)) return std::nullopt;
    }
  }
  return parts;
}

// Adds the calls of a collective, and around them at most one launch on each side.
class CollectiveMoves {
 public:
  CollectiveMoves(DevicePreparation& p, const std::vector<Parts>& parts) : p_(p), parts_(parts) {}

  // Small tensors share a call.
  void AddAll() {
    std::vector<size_t> small;
    for (size_t t = 0; t < parts_.size(); ++t) {
      if (parts_[t].bytes == 0) continue;
      Count(parts_[t]);
      if (parts_[t].bytes >= packed::kOwnMessageBytes) {
        Add({t});
      } else {
        small.push_back(t);
      }
    }
    if (!small.empty()) Add(small);
    p_.Launch(pack_);
    if (!calls_.empty()) p_.program.actions.emplace_back(CallCollective{p_.step.op, p_.group, std::move(calls_)});
    p_.Launch(unpack_);
  }

 private:
  void Count(const Parts& of) {
    const auto members = static_cast<int64_t>(p_.step.group.size());
    p_.program.stats.written += members * of.bytes;
    p_.program.stats.copied_local += of.bytes;
    p_.program.stats.received += (members - 1) * of.bytes;
  }

  // One call for these tensors: their parts for, or from, one member follow each other.
  void Add(const std::vector<size_t>& tensors) {
    const size_t members = p_.step.group.size();
    const bool gathers = p_.step.op == Op::kAllGather;
    const auto self = static_cast<size_t>(p_.step.group_index);
    int64_t bytes = 0;
    for (size_t t : tensors) bytes += parts_[t].bytes;
    CallCollective::Call call;
    call.count = bytes;

    const Side send = SendSide(tensors);
    const Side receive = ReceiveSide(tensors);
    call.send =
        send.direct ? send.place : MemoryOffset{p_.Stage(gathers ? bytes : bytes * static_cast<int64_t>(members)), 0};
    call.receive = receive.direct ? receive.place : MemoryOffset{p_.Stage(bytes * static_cast<int64_t>(members)), 0};
    int64_t at = 0;  // of the tensor inside a member's part
    for (size_t t : tensors) {
      const Parts& of = parts_[t];
      const auto index = static_cast<int>(t);
      // What this rank keeps bypasses the staging if both sides have one.
      const bool own_apart = !receive.direct && (gathers || !send.direct);
      for (size_t m = 0; m < members && !send.direct; ++m) {
        if (gathers ? m != 0 : (m == self && own_apart)) continue;
        const Region& region = gathers || m == self ? *of.receives[self]->region : *of.sends[m]->region;
        const int64_t to = gathers ? at : static_cast<int64_t>(m) * bytes + at;
        pack_.push_back({p_.copies.MakePack(region, p_.inputs[t]), p_.Input(index), 0, call.send.base, to});
      }
      for (size_t m = 0; m < members && !receive.direct; ++m) {
        if (m == self && own_apart) {
          unpack_.push_back({p_.copies.Own(*of.receives[m], p_.inputs[t], p_.outputs[t], false), p_.Input(index), 0,
                             p_.Output(index), 0});
        } else {
          unpack_.push_back({p_.copies.MakeUnpack(*of.receives[m]->region, p_.outputs[t]), call.receive.base,
                             static_cast<int64_t>(m) * bytes + at, p_.Output(index), 0});
        }
      }
      at += of.bytes;
    }
    calls_.push_back(call);
  }

  struct Side {
    bool direct = false;
    MemoryOffset place;
  };

  Side SendSide(const std::vector<size_t>& tensors) {
    if (tensors.size() != 1) return {};
    const size_t t = tensors[0];
    const Parts& of = parts_[t];
    const auto self = static_cast<size_t>(p_.step.group_index);
    std::vector<const StridedCopy*> copies;
    for (size_t m = 0; m < of.receives.size(); ++m) {
      if (p_.step.op == Op::kAllGather && m != self) continue;
      copies.push_back(p_.copies.MakePack(*(m == self ? of.receives[m] : of.sends[m])->region, p_.inputs[t]));
    }
    if (!FollowEachOther(copies, &StridedCopy::from_offset, of.bytes)) return {};
    return {true, {p_.Input(static_cast<int>(t)), copies[0]->from_offset()}};
  }

  Side ReceiveSide(const std::vector<size_t>& tensors) {
    if (tensors.size() != 1) return {};
    const size_t t = tensors[0];
    const Parts& of = parts_[t];
    std::vector<const StridedCopy*> copies;
    for (const Transfer* transfer : of.receives) {
      copies.push_back(p_.copies.MakeUnpack(*transfer->region, p_.outputs[t]));
    }
    if (!FollowEachOther(copies, &StridedCopy::to_offset, of.bytes)) return {};
    return {true, {p_.Output(static_cast<int>(t)), copies[0]->to_offset()}};
  }

  DevicePreparation& p_;
  const std::vector<Parts>& parts_;
  std::vector<CopyJob> pack_;
  std::vector<CopyJob> unpack_;
  std::vector<CallCollective::Call> calls_;
};

}  // namespace

bool PrepareCollectiveMoves(DevicePreparation& p) {
  const std::optional<std::vector<Parts>> parts = EqualParts(p.step, p.rank);
  if (!parts) return false;
  CollectiveMoves(p, *parts).AddAll();
  return true;
}

}  // namespace reshard::cuda
