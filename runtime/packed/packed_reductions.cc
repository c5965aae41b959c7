#include <algorithm>
#include <cstddef>
#include <deque>
#include <numeric>
#include <vector>

#include "absl/functional/function_ref.h"
#include "runtime/host/host_pool.h"
#include "runtime/host/reduce.h"
#include "runtime/packed/packed_moves.h"
#include "status/macros.h"

namespace reshard::packed {

namespace {

// Whom this rank receives from, itself included, ascending.
std::vector<int64_t> SendersOf(const StepProgram& step) {
  std::vector<int64_t> senders;
  for (const Transfer& transfer : step.receives) {
    if (senders.empty() || senders.back() != transfer.peer) senders.push_back(transfer.peer);
  }
  return senders;
}

// One tensor of a reduction whose contributions are combined as they come.
struct Combined {
  int tensor = 0;
  const Region* region = nullptr;  // of this rank's own contribution; those of the others differ in fragments only
  Dims dense;                      // strides of the output's shape, as contributions travel
};

// ReduceScatter between ranks that all share memory: nothing is staged.
absl::Status ReduceScatterNear(PackedStep& packed, NearExchange& near, const std::vector<Piece>& sends) {
  const StepProgram& step = packed.step;
  std::vector<int64_t> senders = SendersOf(step);
  std::vector<Combined> tensors;
  std::vector<int64_t> lengths;
  int64_t written = 0;
  for (const Transfer& transfer : step.receives) {
    if (transfer.peer != packed.rank) continue;
    const TensorView& out = packed.outputs[static_cast<size_t>(transfer.tensor)];
    tensors.push_back({transfer.tensor, &transfer.region, DenseStrides(out.shape)});
    lengths.push_back(transfer.bytes);
    written += transfer.bytes;
  }
  const auto own = static_cast<size_t>(std::find(senders.begin(), senders.end(), packed.rank) - senders.begin());
  if (own < senders.size()) senders.erase(senders.begin() + static_cast<std::ptrdiff_t>(own));
  if (tensors.size() * (senders.size() + 1) != step.receives.size() && !step.receives.empty()) {
    return absl::InternalError("a reduction to which not every member contributes");
  }
  const auto ranks = static_cast<int64_t>(senders.size()) + 1;
  const CopyMode mode = CopyModeFor(written * ranks, ranks);
  std::vector<host::Contribution> contributions(senders.size() + 1);
  const auto combine = [&](size_t piece, int64_t begin, int64_t end, absl::Span<const char* const> from) {
    const Combined& combined = tensors[piece];
    const ConstTensorView& in = packed.inputs[static_cast<size_t>(combined.tensor)];
    const TensorView& out = packed.outputs[static_cast<size_t>(combined.tensor)];
    const int64_t size = SizeOf(out.dtype);
    host::ForEachMappedBox(
        *combined.region, out.shape, begin / size, end / size,
        [&](absl::Span<const int64_t> at, absl::Span<const int64_t> to, absl::Span<const int64_t> sizes) {
          const int64_t past = host::OffsetBytes(to, combined.dense, out.dtype) - begin;
          for (size_t k = 0; k < contributions.size(); ++k) {
            if (k == own) {
              contributions[k] = {static_cast<const char*>(in.data) + host::OffsetBytes(at, in.strides, in.dtype),
                                  in.strides};
            } else {
              contributions[k] = {from[k < own ? k : k - 1] + past, combined.dense};
            }
          }
          host::ReduceBox(step.tensors[static_cast<size_t>(combined.tensor)].reduce, out.dtype, sizes, contributions,
                          static_cast<char*>(out.data) + host::OffsetBytes(to, out.strides, out.dtype), out.strides,
                          mode);
        });
  };
  if (senders.empty()) {
    for (size_t piece = 0; piece < lengths.size(); ++piece) combine(piece, 0, lengths[piece], {});
  }
  RETURN_IF_ERROR(near.Combine(sends, senders, lengths, combine, &packed.stats, &packed.lap));
  packed.stats.written += written;
  return absl::OkStatus();
}

}  // namespace

// Every member's contribution to the whole output comes in, and is combined.
absl::Status ReduceScatterStep(PackedStep& packed) {
  const StepProgram& step = packed.step;
  const absl::Span<const ConstTensorView> inputs = packed.inputs;
  const absl::Span<const TensorView> outputs = packed.outputs;
  std::deque<StridedCopy> packs;
  const auto pack = [&](const Transfer& transfer) {
    const ConstTensorView& in = inputs[static_cast<size_t>(transfer.tensor)];
    return &packs.emplace_back(ToMessage(transfer.region), SizeOf(in.dtype), in.strides,
                               MessageStrides(transfer.region));
  };
  std::deque<host::HostBlock> blocks;
  std::deque<StridedCopy> whole;
  std::vector<Piece> sends;
  std::vector<Piece> receives;
  struct Reduction {
    char* contributions = nullptr;
    int64_t pitch = 0;
    size_t members = 0;
  };
  std::vector<Reduction> reductions(step.tensors.size());
  for (const Transfer& transfer : step.sends) {
    const auto t = static_cast<size_t>(transfer.tensor);
    sends.push_back({transfer.peer, Data(inputs[t]), pack(transfer), transfer.bytes, transfer.tensor});
  }
  NearExchange* const near = packed.transport.near();
  if (near != nullptr && near->everybody()) return ReduceScatterNear(packed, *near, sends);
  for (const Transfer& transfer : step.receives) ++reductions[static_cast<size_t>(transfer.tensor)].members;
  for (size_t t = 0; t < reductions.size(); ++t) {
    Reduction& reduction = reductions[t];
    const int64_t bytes = NumElements(outputs[t].shape) * SizeOf(outputs[t].dtype);
    if (reduction.members == 0 || bytes == 0) continue;
    reduction.pitch = host::AlignedHostBytes(bytes);
    blocks.emplace_back(reduction.pitch * static_cast<int64_t>(reduction.members));
    if (!blocks.back()) return NoStaging(reduction.pitch * static_cast<int64_t>(reduction.members));
    reduction.contributions = blocks.back().data();
    reduction.members = 0;
  }
  for (const Transfer& transfer : step.receives) {
    const auto t = static_cast<size_t>(transfer.tensor);
    Reduction& reduction = reductions[t];
    char* const at = reduction.contributions + static_cast<int64_t>(reduction.members++) * reduction.pitch;
    if (transfer.peer == packed.rank) {
      pack(transfer)->Run(inputs[t].data, at);
    } else {
      receives.push_back(
          {transfer.peer, at, &whole.emplace_back(Bytes(transfer.bytes)), transfer.bytes, transfer.tensor});
    }
  }
  packed.lap(&packed.stats.pack_seconds);
  RETURN_IF_ERROR(ExchangePieces(packed, sends, receives));
  for (size_t t = 0; t < reductions.size(); ++t) {
    const Reduction& reduction = reductions[t];
    if (reduction.contributions == nullptr) continue;
    const TensorView& out = outputs[t];
    // Contributions are dense in the shape of the output.
    const Dims dense = DenseStrides(out.shape);
    std::vector<host::Contribution> list;
    for (size_t m = 0; m < reduction.members; ++m) {
      list.push_back({reduction.contributions + static_cast<int64_t>(m) * reduction.pitch, dense});
    }
    host::ReduceBox(step.tensors[t].reduce, out.dtype, out.shape, list, out.data, out.strides);
    packed.stats.written += NumElements(out.shape) * SizeOf(out.dtype);
  }
  packed.lap(&packed.stats.unpack_seconds);
  return absl::OkStatus();
}

// Member i combines the i-th chunk of everybody's fragment and gives it to all.
absl::Status AllReduceStep(PackedStep& packed) {
  const StepProgram& step = packed.step;
  const absl::Span<const ConstTensorView> inputs = packed.inputs;
  const absl::Span<const TensorView> outputs = packed.outputs;
  const auto members = static_cast<int64_t>(step.group.size());
  struct Reduction {
    host::HostBlock packed;         // the input, when it is not dense
    host::HostBlock contributions;  // everybody's part of this rank's chunk
    host::HostBlock result;         // the output, when it is not dense
    const char* in = nullptr;
    char* out = nullptr;
    int64_t element = 0;
    int64_t elements = 0;
    Interval own;
  };
  NearExchange* const near = packed.transport.near();
  // Contributions are combined and not staged.
  const bool as_they_come = near != nullptr && near->everybody() && members > 1;
  std::deque<StridedCopy> copies;
  std::vector<Reduction> reductions(step.tensors.size());
  std::vector<Piece> sends;
  std::vector<Piece> receives;
  std::vector<Piece> gives;
  std::vector<Piece> takes;
  for (size_t t = 0; t < reductions.size(); ++t) {
    Reduction& r = reductions[t];
    r.element = SizeOf(outputs[t].dtype);
    r.elements = NumElements(outputs[t].shape);
    const int64_t bytes = r.elements * r.element;
    if (bytes == 0) continue;
    packed.stats.written += bytes;
    r.own = AllReduceChunk(r.elements, members, step.group_index);
    r.in = Data(inputs[t]);
    r.out = static_cast<char*>(outputs[t].data);
    if (!IsDense(inputs[t])) {
      r.packed = host::HostBlock(bytes);
      if (!r.packed) return NoStaging(bytes);
      StridedCopy(WholeRegion(inputs[t].shape), r.element, inputs[t].strides, DenseStrides(inputs[t].shape))
          .Run(inputs[t].data, r.packed.data());
      r.in = r.packed.data();
    }
    if (!IsDense(outputs[t])) {
      r.result = host::HostBlock(bytes);
      if (!r.result) return NoStaging(bytes);
      r.out = r.result.data();
    }
    if (as_they_come) continue;
    const int64_t pitch = r.own.length() * r.element;
    r.contributions = host::HostBlock(pitch * members);
    if (!r.contributions) return NoStaging(pitch * members);
  }
  packed.lap(&packed.stats.pack_seconds);
  // Pieces go by peer, and contributions are combined in the order of the ranks.
  std::vector<int64_t> in_rank_order(static_cast<size_t>(members));
  std::iota(in_rank_order.begin(), in_rank_order.end(), int64_t{0});
  std::sort(in_rank_order.begin(), in_rank_order.end(), [&](int64_t a, int64_t b) {
    return step.group[static_cast<size_t>(a)] < step.group[static_cast<size_t>(b)];
  });
  for (const int64_t m : in_rank_order) {
    const int64_t peer = step.group[static_cast<size_t>(m)];
    if (peer == packed.rank) continue;
    for (size_t t = 0; t < reductions.size(); ++t) {
      Reduction& r = reductions[t];
      const Interval theirs = AllReduceChunk(r.elements, members, m);
      const int64_t their_bytes = theirs.length() * r.element;
      const int64_t own_bytes = r.own.length() * r.element;
      if (their_bytes > 0) {
        const StridedCopy* copy = &copies.emplace_back(Bytes(their_bytes));
        sends.push_back(
            {peer, const_cast<char*>(r.in) + theirs.begin * r.element, copy, their_bytes, static_cast<int>(t)});
        takes.push_back({peer, r.out + theirs.begin * r.element, copy, their_bytes, static_cast<int>(t)});
      }
      if (own_bytes > 0) {
        const StridedCopy* copy = &copies.emplace_back(Bytes(own_bytes));
        if (!as_they_come) {
          receives.push_back({peer, r.contributions.data() + m * own_bytes, copy, own_bytes, static_cast<int>(t)});
        }
        gives.push_back({peer, r.out + r.own.begin * r.element, copy, own_bytes, static_cast<int>(t)});
      }
    }
  }
  // Elements [begin, end) of this rank's chunk; from(m) is where those of member m start.
  const auto reduce = [&](size_t t, int64_t begin, int64_t end, absl::FunctionRef<const char*(int64_t m)> from) {
    const Reduction& r = reductions[t];
    const int64_t stride = 1;
    const int64_t length = end - begin;
    const int64_t own_at = (r.own.begin + begin) * r.element;
    std::vector<host::Contribution> list;
    for (const int64_t m : in_rank_order) {
      list.push_back({m == step.group_index ? r.in + own_at : from(m), {&stride, 1}});
    }
    host::ReduceBox(step.tensors[t].reduce, outputs[t].dtype, {&length, 1}, list, r.out + own_at, {&stride, 1});
  };
  if (as_they_come) {
    std::vector<int64_t> senders;
    std::vector<size_t> place(static_cast<size_t>(members));  // of each member among them
    for (const int64_t m : in_rank_order) {
      place[static_cast<size_t>(m)] = senders.size();
      if (m != step.group_index) senders.push_back(step.group[static_cast<size_t>(m)]);
    }
    std::vector<size_t> tensors;
    std::vector<int64_t> lengths;
    for (size_t t = 0; t < reductions.size(); ++t) {
      if (reductions[t].own.length() == 0) continue;
      tensors.push_back(t);
      lengths.push_back(reductions[t].own.length() * reductions[t].element);
    }
    const auto combine = [&](size_t piece, int64_t begin, int64_t end, absl::Span<const char* const> from) {
      const int64_t element = reductions[tensors[piece]].element;
      reduce(tensors[piece], begin / element, end / element,
             [&](int64_t m) { return from[place[static_cast<size_t>(m)]]; });
    };
    RETURN_IF_ERROR(near->Combine(sends, senders, lengths, combine, &packed.stats, &packed.lap));
  } else {
    RETURN_IF_ERROR(ExchangePieces(packed, sends, receives));
    for (size_t t = 0; t < reductions.size(); ++t) {
      const Reduction& r = reductions[t];
      const int64_t length = r.own.length();
      if (length == 0) continue;
      reduce(t, 0, length, [&](int64_t m) { return r.contributions.data() + m * length * r.element; });
    }
  }
  packed.lap(&packed.stats.unpack_seconds);
  RETURN_IF_ERROR(ExchangePieces(packed, gives, takes));
  for (size_t t = 0; t < reductions.size(); ++t) {
    if (!reductions[t].result) continue;
    StridedCopy(WholeRegion(outputs[t].shape), reductions[t].element, DenseStrides(outputs[t].shape),
                outputs[t].strides)
        .Run(reductions[t].result.data(), outputs[t].data);
  }
  packed.lap(&packed.stats.unpack_seconds);
  return absl::OkStatus();
}

}  // namespace reshard::packed
