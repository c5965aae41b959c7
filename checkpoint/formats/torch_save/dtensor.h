// DTensors in the description of an archive: which part of the whole tensor the file has.
#ifndef RESHARD_CHECKPOINT_FORMATS_TORCH_SAVE_DTENSOR_H_
#define RESHARD_CHECKPOINT_FORMATS_TORCH_SAVE_DTENSOR_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "checkpoint/formats/pickle/machine.h"
#include "checkpoint/formats/torch_save/archive.h"

namespace reshard::torch_save {

// What one rank has of a DTensor.
struct LocalPart {
  pickle::Pickle::Value local = 0;  // its tensor
  std::vector<int64_t> shape;       // of the whole, in elements
  bool in_mesh = false;             // otherwise the rank that has saved the file has no part
  std::vector<int64_t> offset;      // of the part
  std::vector<int64_t> size;
};

bool IsDTensor(const pickle::Pickle& description, pickle::Pickle::Value value);

// Of a value for which IsDTensor. A dimension of n elements over k ranks is cut as torch.chunk does, ceil(n / k)
// elements each for as long as there are any; over several mesh dimensions one after the other, in the order of the
// mesh, or in that which _StridedShard or the shard order of the spec asks for.
// DataLoss: no mesh, placements or coordinates, or others than they can be. Unimplemented: partial sums, and placements
// that this library does not know (which).
absl::StatusOr<LocalPart> ReadDTensor(const Archive& archive, pickle::Pickle::Value dtensor);

}  // namespace reshard::torch_save

#endif  // RESHARD_CHECKPOINT_FORMATS_TORCH_SAVE_DTENSOR_H_
