// What the members of a group contribute to outputs that are reduced. What others send is staged until all of it is
// there; a rank's own part is read where it is.
#ifndef RESHARD_RUNTIME_PACKED_CONTRIBUTIONS_H_
#define RESHARD_RUNTIME_PACKED_CONTRIBUTIONS_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "reshard/runtime/program.h"
#include "reshard/runtime/tensor_view.h"
#include "runtime/host/host_pool.h"
#include "runtime/host/reduce.h"

namespace reshard::packed {

// The contributions to the tensors of a step that a ReduceScatter combines.
class Contributions {
 public:
  Contributions(const StepProgram& step, int64_t rank, absl::Span<const ConstTensorView> inputs,
                absl::Span<const TensorView> outputs)
      : step_(step), rank_(rank), inputs_(inputs), outputs_(outputs) {}

  // Makes room for what comes from other ranks. ResourceExhausted: no memory.
  absl::Status Allocate();
  // Where the contribution of the next other rank to a tensor goes, dense in the shape of the output. Call it in the
  // order of the ranks.
  char* Next(int tensor);
  // Writes the outputs, each combined in the order of the ranks. Returns how many bytes.
  int64_t Combine() const;

 private:
  struct OfTensor {
    host::HostBlock block;
    int64_t pitch = 0;               // bytes from one contribution in the block to the next
    int64_t placed = 0;              // of them
    const Region* region = nullptr;  // of one of them; the others differ in fragments only
    std::vector<int64_t> members;    // ascending
  };

  const StepProgram& step_;
  int64_t rank_;
  absl::Span<const ConstTensorView> inputs_;
  absl::Span<const TensorView> outputs_;
  std::vector<OfTensor> tensors_;  // one per tensor, or none at all
};

}  // namespace reshard::packed

#endif  // RESHARD_RUNTIME_PACKED_CONTRIBUTIONS_H_
