// DTensors in the description of an archive: which part of the whole tensor the file has.
#ifndef RESHARD_CHECKPOINT_FORMATS_TORCH_SAVE_DTENSOR_H_
#define RESHARD_CHECKPOINT_FORMATS_TORCH_SAVE_DTENSOR_H_

#include <cstdint>
#include <string_view>
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

// Reads a value that IsDTensor, the tensor of that name. layout/notation/dtensor_placements.h says what placements
// mean.
// Errors name the tensor. DataLoss: no mesh, placements or coordinates, or impossible ones. Unimplemented:
// partial sums, placements that this library does not know, and those that give a rank several blocks of a dimension.
absl::StatusOr<LocalPart> ReadDTensor(const Archive& archive, std::string_view name, pickle::Pickle::Value dtensor);

}  // namespace reshard::torch_save

#endif  // RESHARD_CHECKPOINT_FORMATS_TORCH_SAVE_DTENSOR_H_
