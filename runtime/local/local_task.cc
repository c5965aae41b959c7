// Where the bytes of a LocalWorld move: pulls and reductions straight from the peers' fragments.
#include <vector>

#include "runtime/host/copy_rows.h"
#include "runtime/host/reduce.h"
#include "runtime/host/stream_rows.h"
#include "runtime/local/local_communicator.h"

namespace reshard::local {
namespace {

// True when a peer's fragment is there, has the type, and contains the region.
bool Fits(const Region& region, DType dtype, absl::Span<const ConstTensorView> inputs, int tensor) {
  if (static_cast<size_t>(tensor) >= inputs.size()) return false;
  const ConstTensorView& view = inputs[tensor];
  if (view.dtype != dtype || view.shape.size() != region.size()) return false;
  for (size_t d = 0; d < region.size(); ++d) {
    const IndexRun& last = region[d].back();
    if (last.from + last.length > view.shape[d]) return false;
  }
  return true;
}

void Pull(const Transfer& transfer, const ConstTensorView& in, const TensorView& out, bool dense, int64_t part,
          int64_t parts, CopyMode mode) {
  if (dense) {
    transfer.copy.RunPart(in.data, out.data, part, parts, mode);
  } else {
    StridedCopy(*transfer.region, SizeOf(out.dtype), in.strides, out.strides)
        .RunPart(in.data, out.data, part, parts, mode);
  }
}

// Copies elements [begin, end) between fragments of the same shape.
void CopyRange(const ConstTensorView& in, const TensorView& out, int64_t begin, int64_t end, CopyMode mode) {
  if (begin >= end) return;
  const int64_t size = SizeOf(out.dtype);
  if (IsDense(in) && IsDense(out)) {
    host::CopyRows(static_cast<const char*>(in.data) + begin * size, static_cast<char*>(out.data) + begin * size, 1,
                   (end - begin) * size, 0, 0, mode);
    if (mode == CopyMode::kStreaming) host::FinishStreaming();
    return;
  }
  host::ForEachBox(out.shape, begin, end, [&](absl::Span<const int64_t> offset, absl::Span<const int64_t> box) {
    StridedCopy(WholeRegion(box), size, in.strides, out.strides)
        .Run(static_cast<const char*>(in.data) + host::OffsetBytes(offset, in.strides, in.dtype),
             static_cast<char*>(out.data) + host::OffsetBytes(offset, out.strides, out.dtype));
  });
}

}  // namespace

bool RunLocalTask(const LocalShared& shared, LocalSlot& slot, const LocalTask& task, CopyMode mode) {
  const auto misfit = [&slot](int64_t device_id) {
    slot.misfit.store(device_id, std::memory_order_relaxed);
    return false;
  };
  const StepProgram& step = *slot.step;
  const size_t peer_index = static_cast<size_t>(task.peer);
  const LocalSlot& peer = shared.slots[peer_index];
  const size_t index = static_cast<size_t>(task.index);
  switch (task.kind) {
    case LocalTask::Kind::kPull: {
      const Transfer& transfer = step.receives[index];
      const TensorView& out = slot.outputs[transfer.tensor];
      if (!Fits(*transfer.region, out.dtype, peer.inputs, transfer.tensor)) return misfit(transfer.peer);
      Pull(transfer, peer.inputs[transfer.tensor], out, peer.dense && slot.dense, task.begin, task.end, mode);
      return true;
    }
    case LocalTask::Kind::kReduce: {
      const TensorView& out = slot.outputs[index];
      const Region* region = nullptr;
      std::vector<host::RankValues> values;
      for (const Transfer& transfer : step.receives) {
        if (transfer.tensor != task.index) continue;
        const LocalSlot& member = shared.slots[shared.IndexOf(transfer.peer)];
        if (!Fits(*transfer.region, out.dtype, member.inputs, transfer.tensor)) return misfit(transfer.peer);
        region = transfer.region.get();
        const ConstTensorView& in = member.inputs[index];
        values.push_back({in.data, in.strides});
      }
      if (region != nullptr) {
        host::ReduceRange(step.tensors[index].reduce, *region, values, out, task.begin, task.end, mode);
      }
      return true;
    }
    case LocalTask::Kind::kGather: {
      const TensorView& out = slot.outputs[index];
      if (index >= peer.outputs.size() || peer.outputs[index].shape != out.shape ||
          peer.outputs[index].dtype != out.dtype) {
        return misfit(shared.device_ids[peer_index]);
      }
      CopyRange(peer.outputs[index], out, task.begin, task.end, mode);
      return true;
    }
  }
  return true;
}

}  // namespace reshard::local
