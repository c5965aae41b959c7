// Writes safetensors: `model.safetensors`, or several files and an index that says which tensor is where.
#ifndef RESHARD_CHECKPOINT_OUTPUT_SAFETENSORS_OUTPUT_H_
#define RESHARD_CHECKPOINT_OUTPUT_SAFETENSORS_OUTPUT_H_

#include <cstdint>
#include <memory>

#include "checkpoint/output/output_format.h"

namespace reshard::output {

// A file has at most so many bytes of tensors, unless a single tensor has more. There is an index where there are
// several files, where the source has one, and always where it is asked for.
std::unique_ptr<OutputFormat> MakeSafetensorsOutput(int64_t file_bytes, bool always_index);

}  // namespace reshard::output

#endif  // RESHARD_CHECKPOINT_OUTPUT_SAFETENSORS_OUTPUT_H_
