#include <algorithm>
#include <cstddef>
#include <numeric>
#include <utility>

#include "reshard/planner/traffic.h"
#include "runtime/cuda/device_program.h"
#include "runtime/host/host_pool.h"
#include "runtime/host/reduce.h"

namespace reshard::cuda {
namespace {

// Where the whole of a view lies densely: itself, or a block of staging and the copy that fills or empties it.
MemoryOffset DenseInput(DevicePreparation& p, size_t t, std::vector<CopyJob>* pack) {
  const auto index = static_cast<int>(t);
  const ConstTensorView& in = p.inputs[t];
  if (IsDense(in)) return {p.Input(index), 0};
  const int staging = p.Stage(NumElements(in.shape) * SizeOf(in.dtype));
  pack->push_back({p.copies.MakePack(WholeRegion(in.shape), in), p.Input(index), 0, staging, 0});
  return {staging, 0};
}

MemoryOffset DenseOutput(DevicePreparation& p, size_t t, std::vector<CopyJob>* unpack) {
  const auto index = static_cast<int>(t);
  const TensorView& out = p.outputs[t];
  if (IsDense(out)) return {p.Output(index), 0};
  const int staging = p.Stage(NumElements(out.shape) * SizeOf(out.dtype));
  unpack->push_back({p.copies.MakeUnpack(WholeRegion(out.shape), out), staging, 0, p.Output(index), 0});
  return {staging, 0};
}

void LaunchReduce(DevicePreparation& p, const std::vector<ReduceJob>& jobs) {
  LaunchReductions launch;
  launch.table = MakeReduceTable(jobs);
  if (!launch.table.empty()) p.program.actions.emplace_back(std::move(launch));
}

int64_t BytesOf(const TensorView& view) { return NumElements(view.shape) * SizeOf(view.dtype); }

// What all others contribute to every member's output, in the order of the group; empty when outputs differ in size.
// This rank's own contribution stands among the receives.
struct Contributions {
  std::vector<const Transfer*> to;  // by member
};

bool EqualOutputs(const DevicePreparation& p, std::vector<Contributions>* all) {
  const size_t members = p.step.group.size();
  all->assign(p.step.tensors.size(), {std::vector<const Transfer*>(members, nullptr)});
  const auto put = [&](const Transfer& transfer) {
    const auto t = static_cast<size_t>(transfer.tensor);
    const auto member = std::find(p.step.group.begin(), p.step.group.end(), transfer.peer) - p.step.group.begin();
    if (static_cast<size_t>(member) == members || transfer.bytes != BytesOf(p.outputs[t])) return false;
    (*all)[t].to[member] = &transfer;
    return true;
  };
  for (const Transfer& transfer : p.step.sends) {
    if (!put(transfer)) return false;
  }
  for (const Transfer& transfer : p.step.receives) {
    if (transfer.peer == p.rank && !put(transfer)) return false;
  }
  for (size_t t = 0; t < all->size(); ++t) {
    if (BytesOf(p.outputs[t]) == 0) continue;
    const auto& to = (*all)[t].to;
    if (std::find(to.begin(), to.end(), nullptr) != to.end()) return false;
  }
  return true;
}

void NativeReduceScatter(DevicePreparation& p, const std::vector<Contributions>& all) {
  std::vector<CopyJob> pack;
  std::vector<CopyJob> unpack;
  CallCollective collective{Op::kReduceScatter, p.group, {}};
  for (size_t t = 0; t < all.size(); ++t) {
    const int64_t bytes = BytesOf(p.outputs[t]);
    if (bytes == 0) continue;
    const auto index = static_cast<int>(t);
    std::vector<const StridedCopy*> copies;
    for (const Transfer* transfer : all[t].to) copies.push_back(p.copies.MakePack(*transfer->region, p.inputs[t]));
    MemoryOffset send;
    if (FollowEachOther(copies, &StridedCopy::from_offset, bytes)) {
      send = {p.Input(index), copies[0]->from_offset()};
    } else {
      send = {p.Stage(bytes * static_cast<int64_t>(copies.size())), 0};
      for (size_t m = 0; m < copies.size(); ++m) {
        pack.push_back({copies[m], p.Input(index), 0, send.base, static_cast<int64_t>(m) * bytes});
      }
    }
    const StepTensor& tensor = p.step.tensors[t];
    collective.calls.push_back(
        {send, DenseOutput(p, t, &unpack), bytes / SizeOf(tensor.dtype), tensor.dtype, tensor.reduce});
  }
  p.Launch(pack);
  if (!collective.calls.empty()) p.program.actions.emplace_back(std::move(collective));
  p.Launch(unpack);
}

}  // namespace

bool PrepareCollectiveReduceScatter(DevicePreparation& p) {
  std::vector<Contributions> all;
  if (!EqualOutputs(p, &all)) return false;
  p.program.stats.received += p.step.recv_bytes;
  for (const TensorView& out : p.outputs) p.program.stats.written += BytesOf(out);
  NativeReduceScatter(p, all);
  return true;
}

std::vector<ContributionBlock> StageContributions(DevicePreparation& p) {
  std::vector<ContributionBlock> blocks(p.step.tensors.size());
  for (const Transfer& transfer : p.step.receives) {
    const auto t = static_cast<size_t>(transfer.tensor);
    if (!Reduces(p.step.tensors[t].op)) continue;
    blocks[t].pitch = host::AlignedHostBytes(transfer.bytes);
    ++blocks[t].members;
  }
  for (ContributionBlock& block : blocks) {
    if (block.members > 0) block.base = p.Stage(block.pitch * block.members);
  }
  return blocks;
}

void CombineContributions(DevicePreparation& p, const std::vector<ContributionBlock>& blocks) {
  std::vector<ReduceJob> reductions;
  std::vector<CopyJob> unpack;
  for (size_t t = 0; t < blocks.size(); ++t) {
    if (blocks[t].members == 0) continue;
    p.program.stats.written += BytesOf(p.outputs[t]);
    const MemoryOffset out = DenseOutput(p, t, &unpack);
    reductions.push_back({blocks[t].base, 0, blocks[t].pitch, blocks[t].members, out.base, out.offset,
                          NumElements(p.outputs[t].shape), p.step.tensors[t].dtype, p.step.tensors[t].reduce});
  }
  LaunchReduce(p, reductions);
  p.Launch(unpack);
}

void PrepareAllReduce(DevicePreparation& p, bool native) {
  const auto members = static_cast<int64_t>(p.step.group.size());
  p.program.stats.received += p.step.recv_bytes;
  std::vector<CopyJob> pack;
  std::vector<CopyJob> unpack;
  std::vector<MemoryOffset> ins(p.step.tensors.size());
  std::vector<MemoryOffset> outs(p.step.tensors.size());
  for (size_t t = 0; t < ins.size(); ++t) {
    if (BytesOf(p.outputs[t]) == 0) continue;
    p.program.stats.written += BytesOf(p.outputs[t]);
    ins[t] = DenseInput(p, t, &pack);
    outs[t] = DenseOutput(p, t, &unpack);
  }
  p.Launch(pack);
  if (native && p.group != nullptr) {
    CallCollective collective{Op::kAllReduce, p.group, {}};
    for (size_t t = 0; t < ins.size(); ++t) {
      if (BytesOf(p.outputs[t]) == 0) continue;
      const StepTensor& tensor = p.step.tensors[t];
      collective.calls.push_back({ins[t], outs[t], NumElements(p.outputs[t].shape), tensor.dtype, tensor.reduce});
    }
    if (!collective.calls.empty()) p.program.actions.emplace_back(std::move(collective));
    return p.Launch(unpack);
  }

  // Member i combines the i-th chunk of every member's fragment, in the order of the ranks, and gives it to all.
  std::vector<int64_t> in_rank_order(static_cast<size_t>(members));
  std::iota(in_rank_order.begin(), in_rank_order.end(), int64_t{0});
  std::sort(in_rank_order.begin(), in_rank_order.end(),
            [&](int64_t a, int64_t b) { return p.step.group[a] < p.step.group[b]; });
  std::vector<packed::MessagePart> sends;
  std::vector<packed::MessagePart> receives;
  std::vector<packed::MessagePart> gives;
  std::vector<packed::MessagePart> takes;
  std::vector<CopyJob> own;
  std::vector<ReduceJob> reductions;
  std::vector<ContributionBlock> blocks(ins.size());
  for (size_t t = 0; t < ins.size(); ++t) {
    const int64_t elements = NumElements(p.outputs[t].shape);
    const int64_t element = SizeOf(p.outputs[t].dtype);
    if (elements == 0) continue;
    const Interval chunk = AllReduceChunk(elements, members, p.step.group_index);
    if (chunk.length() == 0) continue;
    blocks[t].pitch = host::AlignedHostBytes(chunk.length() * element);
    blocks[t].base = p.Stage(blocks[t].pitch * members);
    reductions.push_back({blocks[t].base, 0, blocks[t].pitch, members, outs[t].base,
                          outs[t].offset + chunk.begin * element, chunk.length(), p.step.tensors[t].dtype,
                          p.step.tensors[t].reduce});
  }
  for (size_t place = 0; place < in_rank_order.size(); ++place) {
    const int64_t m = in_rank_order[place];
    const int64_t peer = p.step.group[m];
    for (size_t t = 0; t < ins.size(); ++t) {
      const int64_t elements = NumElements(p.outputs[t].shape);
      const int64_t element = SizeOf(p.outputs[t].dtype);
      const Interval mine = AllReduceChunk(elements, members, p.step.group_index);
      const Interval theirs = AllReduceChunk(elements, members, m);
      const int64_t my_bytes = mine.length() * element;
      const int64_t their_bytes = theirs.length() * element;
      const int64_t slot = static_cast<int64_t>(place) * blocks[t].pitch;
      if (peer == p.rank) {
        if (my_bytes > 0)
          own.push_back(
              {p.copies.Bytes(mine.begin * element, slot, my_bytes), ins[t].base, ins[t].offset, blocks[t].base, 0});
        continue;
      }
      if (their_bytes > 0) {
        const int64_t at = theirs.begin * element;
        sends.push_back({peer, nullptr, p.copies.Bytes(at, 0, their_bytes), their_bytes, ins[t].base});
        takes.push_back({peer, nullptr, p.copies.Bytes(0, at, their_bytes), their_bytes, outs[t].base});
      }
      if (my_bytes > 0) {
        receives.push_back({peer, nullptr, p.copies.Bytes(0, slot, my_bytes), my_bytes, blocks[t].base});
        gives.push_back({peer, nullptr, p.copies.Bytes(mine.begin * element, 0, my_bytes), my_bytes, outs[t].base});
      }
    }
  }
  p.Exchange(sends, receives, std::move(own));
  LaunchReduce(p, reductions);
  p.Exchange(gives, takes, {});
  p.Launch(unpack);
}

}  // namespace reshard::cuda
