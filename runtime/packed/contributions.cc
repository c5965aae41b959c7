#include "runtime/packed/contributions.h"

#include <algorithm>

#include "runtime/packed/packed_moves.h"

namespace reshard::packed {

absl::Status Contributions::Allocate() {
  for (const Transfer& transfer : step_.receives) {  // ascending by peer
    const auto t = static_cast<size_t>(transfer.tensor);
    if (!Reduces(step_.tensors[t].op)) continue;
    tensors_.resize(step_.tensors.size());
    OfTensor& of = tensors_[t];
    of.pitch = host::AlignedHostBytes(transfer.bytes);
    of.region = transfer.region.get();
    of.members.push_back(transfer.peer);
  }
  for (OfTensor& of : tensors_) {
    const auto own = std::count(of.members.begin(), of.members.end(), rank_);
    const int64_t bytes = of.pitch * (std::ssize(of.members) - own);
    if (bytes > 0 && !(of.block = host::HostBlock(bytes))) return NoStaging(bytes);
  }
  return absl::OkStatus();
}

char* Contributions::Next(int tensor) {
  OfTensor& of = tensors_[tensor];
  return of.block.data() + of.placed++ * of.pitch;
}

int64_t Contributions::Combine() const {
  int64_t written = 0;
  for (size_t t = 0; t < tensors_.size(); ++t) {
    const OfTensor& of = tensors_[t];
    if (of.members.empty()) continue;
    const TensorView& out = outputs_[t];
    std::vector<host::RankValues> values;
    const char* next = of.block.data();
    for (const int64_t member : of.members) {
      if (member == rank_) {
        values.push_back({inputs_[t].data, inputs_[t].strides});
      } else {
        values.push_back({next, {}});
        next += of.pitch;
      }
    }
    const int64_t elements = NumElements(out.shape);
    host::ReduceRange(step_.tensors[t].reduce, *of.region, values, out, 0, elements);
    written += elements * SizeOf(out.dtype);
  }
  return written;
}

}  // namespace reshard::packed
