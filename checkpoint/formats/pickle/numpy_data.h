// What NumPy pickles: arrays and scalars, as data.
#ifndef RESHARD_CHECKPOINT_FORMATS_PICKLE_NUMPY_DATA_H_
#define RESHARD_CHECKPOINT_FORMATS_PICKLE_NUMPY_DATA_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "checkpoint/formats/pickle/machine.h"
#include "reshard/layout/dtype.h"

namespace reshard::pickle {

// Invariant: `bytes` are the elements of `shape`, little-endian, the last dimension the innermost, or the first where
// `is_fortran`.
struct NumpyData {
  DType dtype = DType::kF64;
  std::vector<int64_t> shape;  // empty for a scalar
  bool is_fortran = false;
  std::string bytes;
};

bool IsNumpyArray(const Pickle& pickle, Pickle::Value value);
bool IsNumpyScalar(const Pickle& pickle, Pickle::Value value);

// The array or scalar. Nothing for elements that are not numbers of this library, big-endian ones, a shape that its
// bytes contradict, and more than `most_bytes`.
std::optional<NumpyData> ReadNumpy(const Pickle& pickle, Pickle::Value value, size_t most_bytes);

}  // namespace reshard::pickle

#endif  // RESHARD_CHECKPOINT_FORMATS_PICKLE_NUMPY_DATA_H_
