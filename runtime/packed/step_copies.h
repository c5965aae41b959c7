// The copies of a step's transfers: those that the program prepared if the fragments are dense, otherwise new ones for
// the strides of the views.
#ifndef RESHARD_RUNTIME_PACKED_STEP_COPIES_H_
#define RESHARD_RUNTIME_PACKED_STEP_COPIES_H_

#include <deque>

#include "reshard/runtime/program.h"
#include "reshard/runtime/strided_copy.h"
#include "reshard/runtime/tensor_view.h"

namespace reshard::packed {

// Owns the copies that it makes. `dense` says whether the views are dense, see IsDense.
class StepCopies {
 public:
  // From the fragment to the message.
  const StridedCopy* Pack(const Transfer& transfer, const ConstTensorView& in, bool dense) {
    if (dense && transfer.copy.bytes() > 0) return &transfer.copy;
    return MakePack(*transfer.region, in);
  }
  // From the message to the fragment.
  const StridedCopy* Unpack(const Transfer& transfer, const TensorView& out, bool dense) {
    if (dense && transfer.copy.bytes() > 0) return &transfer.copy;
    return MakeUnpack(*transfer.region, out);
  }
  // From this rank's input to its output.
  const StridedCopy* Own(const Transfer& transfer, const ConstTensorView& in, const TensorView& out, bool dense) {
    if (dense && transfer.copy.bytes() > 0) return &transfer.copy;
    return &made_.emplace_back(*transfer.region, SizeOf(out.dtype), in.strides, out.strides);
  }

  const StridedCopy* MakePack(const Region& region, const ConstTensorView& in) {
    return &made_.emplace_back(ToMessage(region), SizeOf(in.dtype), in.strides, MessageStrides(region));
  }
  const StridedCopy* MakeUnpack(const Region& region, const TensorView& out) {
    return &made_.emplace_back(FromMessage(region), SizeOf(out.dtype), MessageStrides(region), out.strides);
  }
  // `bytes` consecutive bytes.
  const StridedCopy* Bytes(int64_t from, int64_t to, int64_t bytes) {
    constexpr int64_t kStride = 1;
    return &made_.emplace_back(Region{{{from, to, bytes}}}, 1, absl::Span<const int64_t>(&kStride, 1),
                               absl::Span<const int64_t>(&kStride, 1));
  }

 private:
  std::deque<StridedCopy> made_;
};

}  // namespace reshard::packed

#endif  // RESHARD_RUNTIME_PACKED_STEP_COPIES_H_
