// Reads checkpoints of DeepSpeed: ZeRO 1, 2 and 3, without ZeRO, and universal ones.
#ifndef RESHARD_CHECKPOINT_FORMATS_DEEPSPEED_READ_H_
#define RESHARD_CHECKPOINT_FORMATS_DEEPSPEED_READ_H_

#include <string>

#include "absl/status/statusor.h"
#include "checkpoint/formats/deepspeed/files.h"
#include "reshard/checkpoint/catalog.h"

namespace reshard::deepspeed {

// Of a checkpoint with ZeRO, or a universal one:
//   module.NAME                the parameters, as the optimizer has them, mostly in f32; buffers, as the model has them
//   optimizer.state.NAME.KEY   for each tensor KEY that the optimizer keeps of a parameter (exp_avg, step, ...)
// Parameters are cut out of the flat buffers of all ranks where they lie: their chunks are parts of those. What else
// the model's file says is there as in any file of torch.save. The model's own parameters, which are those of the
// optimizer in fewer bits, are left out, and so is what describes the buffers. Without ZeRO: all of the model's file.
//
// DataLoss: a file is missing, or is not of that form; buffers have fewer elements than their parameters, or clearly
// more. Unimplemented: as FindFiles. Otherwise as for files of torch.save.
absl::StatusOr<Catalog> ReadDeepSpeed(const std::string& directory, const Files& files, const CatalogLimits& limits);

}  // namespace reshard::deepspeed

#endif  // RESHARD_CHECKPOINT_FORMATS_DEEPSPEED_READ_H_
