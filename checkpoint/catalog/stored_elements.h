// Where the elements of a chunk are, and in which order, where that is not simply one after the other.
#ifndef RESHARD_CHECKPOINT_CATALOG_STORED_ELEMENTS_H_
#define RESHARD_CHECKPOINT_CATALOG_STORED_ELEMENTS_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "reshard/layout/dtype.h"

namespace reshard::catalog {

// Invariant: every element is within the record.
struct StoredElements {
  DType dtype = DType::kF32;
  std::vector<int64_t> shape;
  std::vector<int64_t> strides;  // in elements, not negative, in any order; 0 where they do not matter
  int64_t first_at = 0;          // offset in the file of the first element, in bytes
  bool conjugated = false;       // the values are the conjugates of what is stored
  bool negated = false;          // the values are the negatives of what is stored
  // The record that contains the elements, and perhaps those of other chunks: its bytes in the file, and the CRC-32
  // that the archive gives for them, if any.
  int64_t record_at = 0;
  int64_t record_length = 0;
  std::optional<uint32_t> record_crc32;
};

}  // namespace reshard::catalog

#endif  // RESHARD_CHECKPOINT_CATALOG_STORED_ELEMENTS_H_
