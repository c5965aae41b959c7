#include <algorithm>
#include <cstddef>
#include <numeric>
#include <vector>

#include "absl/functional/function_ref.h"
#include "runtime/host/host_pool.h"
#include "runtime/host/reduce.h"
#include "runtime/packed/packed_moves.h"
#include "runtime/packed/step_copies.h"
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

// The members of a step's group by rank, as indices into it: pieces go by peer, and contributions are combined in the
// order of the ranks.
std::vector<int64_t> MembersByRank(const StepProgram& step) {
  std::vector<int64_t> members(step.group.size());
  std::iota(members.begin(), members.end(), int64_t{0});
  std::sort(members.begin(), members.end(), [&](int64_t a, int64_t b) {
    return step.group[static_cast<size_t>(a)] < step.group[static_cast<size_t>(b)];
  });
  return members;
}

// The elements of a fragment that a member of an AllReduce combines: its chunk, or all of them.
Interval CombinedBy(const StepProgram& step, int64_t member, int64_t elements, bool all) {
  return all ? Interval{0, elements} : AllReduceChunk(elements, static_cast<int64_t>(step.group.size()), member);
}

// What this rank contributes to what the others combine in an AllReduce; in[t] is the t-th input, dense.
std::vector<Piece> ContributionsOf(const StepProgram& step, absl::Span<const ConstTensorView> inputs,
                                   absl::Span<const char* const> in, bool all, StepCopies& copies) {
  std::vector<Piece> sends;
  for (const int64_t m : MembersByRank(step)) {
    if (m == step.group_index) continue;
    for (size_t t = 0; t < inputs.size(); ++t) {
      const int64_t size = SizeOf(inputs[t].dtype);
      const Interval chunk = CombinedBy(step, m, NumElements(inputs[t].shape), all);
      const int64_t bytes = chunk.length() * size;
      if (bytes == 0) continue;
      sends.push_back({step.group[static_cast<size_t>(m)], const_cast<char*>(in[t]) + chunk.begin * size,
                       copies.Bytes(0, 0, bytes), bytes, static_cast<int>(t)});
    }
  }
  return sends;
}

// Whether every member of an AllReduce between ranks that share memory combines everything, instead of its chunk for
// all: ranks meet once instead of twice, and of more than two each reads more. The same on all members.
bool EachCombinesAll(const StepProgram& step, absl::Span<const ConstTensorView> inputs) {
  // Measured with 2, 4 and 8 ranks: above, reading takes longer than meeting once more.
  constexpr int64_t kMost = int64_t{128} << 10;
  int64_t bytes = 0;
  for (const ConstTensorView& input : inputs) bytes += NumElements(input.shape) * SizeOf(input.dtype);
  return bytes * (static_cast<int64_t>(step.group.size()) - 1) <= kMost;
}

// One tensor of a reduction whose contributions are combined as they come.
struct Combined {
  int tensor = 0;
  const Region* region = nullptr;  // of this rank's own contribution
};

}  // namespace

void PackContributionsAhead(const StepProgram& step, absl::Span<const ConstTensorView> inputs, uint64_t tag,
                            NearExchange& near) {
  if (!std::all_of(inputs.begin(), inputs.end(), IsDense)) return;
  std::vector<const char*> in;
  for (const ConstTensorView& input : inputs) in.push_back(Data(input));
  StepCopies copies;
  near.PackAhead(tag, ContributionsOf(step, inputs, in, EachCombinesAll(step, inputs), copies));
}

absl::Status ReduceScatterNear(PackedStep& packed, NearExchange& near) {
  const StepProgram& step = packed.step;
  StepCopies copies;
  const std::vector<Piece> sends = SendsOf(step, packed.inputs, copies);
  std::vector<int64_t> senders = SendersOf(step);
  std::vector<Combined> tensors;
  std::vector<int64_t> lengths;
  int64_t written = 0;
  for (const Transfer& transfer : step.receives) {
    if (transfer.peer != packed.rank) continue;
    tensors.push_back({transfer.tensor, &transfer.region});
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
  std::vector<host::RankValues> values(senders.size() + 1);
  const auto combine = [&](size_t piece, int64_t begin, int64_t end, absl::Span<const char* const> from) {
    const Combined& combined = tensors[piece];
    const ConstTensorView& in = packed.inputs[static_cast<size_t>(combined.tensor)];
    const TensorView& out = packed.outputs[static_cast<size_t>(combined.tensor)];
    for (size_t k = 0; k < values.size(); ++k) {
      values[k] =
          k == own ? host::RankValues{in.data, in.strides} : host::RankValues{from[k < own ? k : k - 1], {}, begin};
    }
    const int64_t size = SizeOf(out.dtype);
    host::ReduceRange(step.tensors[static_cast<size_t>(combined.tensor)].reduce, *combined.region, values, out,
                      begin / size, end / size, mode);
  };
  if (senders.empty()) {
    for (size_t piece = 0; piece < lengths.size(); ++piece) combine(piece, 0, lengths[piece], {});
  }
  RETURN_IF_ERROR(near.Combine(sends, senders, lengths, combine, &packed.stats, &packed.lap));
  packed.stats.written += written;
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
  const bool all = as_they_come && EachCombinesAll(step, inputs);
  StepCopies copies;
  std::vector<Reduction> reductions(step.tensors.size());
  std::vector<const char*> dense_inputs(reductions.size());
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
    r.own = CombinedBy(step, step.group_index, r.elements, all);
    r.in = Data(inputs[t]);
    r.out = static_cast<char*>(outputs[t].data);
    if (!IsDense(inputs[t])) {
      r.packed = host::HostBlock(bytes);
      if (!r.packed) return NoStaging(bytes);
      StridedCopy(WholeRegion(inputs[t].shape), r.element, inputs[t].strides, DenseStrides(inputs[t].shape))
          .Run(inputs[t].data, r.packed.data());
      r.in = r.packed.data();
    }
    dense_inputs[t] = r.in;
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
  const std::vector<Piece> sends = ContributionsOf(step, inputs, dense_inputs, all, copies);
  const std::vector<int64_t> in_rank_order = MembersByRank(step);
  for (const int64_t m : in_rank_order) {
    const int64_t peer = step.group[static_cast<size_t>(m)];
    if (peer == packed.rank || all) continue;
    for (size_t t = 0; t < reductions.size(); ++t) {
      Reduction& r = reductions[t];
      const Interval theirs = AllReduceChunk(r.elements, members, m);
      const int64_t their_bytes = theirs.length() * r.element;
      const int64_t own_bytes = r.own.length() * r.element;
      if (their_bytes > 0) {
        const StridedCopy* copy = copies.Bytes(0, 0, their_bytes);
        takes.push_back({peer, r.out + theirs.begin * r.element, copy, their_bytes, static_cast<int>(t)});
      }
      if (own_bytes > 0) {
        const StridedCopy* copy = copies.Bytes(0, 0, own_bytes);
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
    const int64_t before = packed.stats.received;
    RETURN_IF_ERROR(near->Combine(sends, senders, lengths, combine, &packed.stats, &packed.lap));
    if (all) {
      const int64_t extra = packed.stats.received - before - step.recv_bytes;
      packed.stats.received_extra += extra;
      packed.stats.received -= extra;
    }
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
