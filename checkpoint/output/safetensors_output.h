// Writes safetensors: `model.safetensors`, or several files and an index that says which tensor is where.
#ifndef RESHARD_CHECKPOINT_OUTPUT_SAFETENSORS_OUTPUT_H_
#define RESHARD_CHECKPOINT_OUTPUT_SAFETENSORS_OUTPUT_H_

#include <memory>

#include "checkpoint/output/output_format.h"

namespace reshard::output {

// There is an index where there are several files, where the source has one, and always where it is asked for; never
// with SafetensorsTerms::one_file. Into a store (`objects`): `model-TAG.safetensors`, in pieces of at most
// ObjectTerms::batch_bytes.
std::unique_ptr<OutputFormat> MakeSafetensorsOutput(SafetensorsTerms terms, ObjectTerms objects = {});

}  // namespace reshard::output

#endif  // RESHARD_CHECKPOINT_OUTPUT_SAFETENSORS_OUTPUT_H_
