#include <algorithm>
#include <cstddef>
#include <vector>

#include "runtime/host/reduce.h"
#include "runtime/packed/packed_moves.h"
#include "runtime/packed/step_copies.h"
#include "status/macros.h"

namespace reshard::packed {

namespace {

// The ranks that this rank receives from, itself included, ascending.
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
  const Region* region = nullptr;  // of this rank's own contribution
};

}  // namespace

absl::Status ReduceScatterIntraHost(PackedStep& packed, IntraHostExchange& intra_host) {
  const StepProgram& step = packed.step;
  StepCopies copies;
  const std::vector<MessagePart> sends = SendsOf(step, packed.inputs, copies);
  std::vector<int64_t> senders = SendersOf(step);
  std::vector<Combined> tensors;
  std::vector<int64_t> lengths;
  int64_t written = 0;
  for (const Transfer& transfer : step.receives) {
    if (transfer.peer != packed.rank) continue;
    tensors.push_back({transfer.tensor, transfer.region.get()});
    lengths.push_back(transfer.bytes);
    written += transfer.bytes;
  }
  const auto own = static_cast<size_t>(std::find(senders.begin(), senders.end(), packed.rank) - senders.begin());
  if (own < senders.size()) senders.erase(senders.begin() + static_cast<std::ptrdiff_t>(own));
  if (tensors.size() * (senders.size() + 1) != step.receives.size() && !step.receives.empty()) {
    return absl::InternalError("a reduction to which not every member contributes");
  }
  const CopyMode mode = CombineModeAmong(static_cast<int64_t>(senders.size()) + 1, written);
  std::vector<host::RankValues> values(senders.size() + 1);
  const auto combine = [&](size_t piece, int64_t begin, int64_t end, absl::Span<const char* const> from) {
    const Combined& combined = tensors[piece];
    const ConstTensorView& in = packed.inputs[combined.tensor];
    const TensorView& out = packed.outputs[combined.tensor];
    for (size_t k = 0; k < values.size(); ++k) {
      values[k] =
          k == own ? host::RankValues{in.data, in.strides} : host::RankValues{from[k < own ? k : k - 1], {}, begin};
    }
    const int64_t size = SizeOf(out.dtype);
    host::ReduceRange(step.tensors[combined.tensor].reduce, *combined.region, values, out, begin / size, end / size,
                      mode);
  };
  if (senders.empty()) {
    for (size_t piece = 0; piece < lengths.size(); ++piece) combine(piece, 0, lengths[piece], {});
  }
  RETURN_IF_ERROR(intra_host.Combine(sends, senders, lengths, combine, &packed.stats, &packed.stopwatch));
  packed.stats.written += written;
  return absl::OkStatus();
}

}  // namespace reshard::packed
