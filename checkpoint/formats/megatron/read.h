// Reads checkpoints of Megatron's legacy format (--ckpt-format torch), a file for each model-parallel rank, as one.
#ifndef RESHARD_CHECKPOINT_FORMATS_MEGATRON_READ_H_
#define RESHARD_CHECKPOINT_FORMATS_MEGATRON_READ_H_

#include <string>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "checkpoint/formats/megatron/files.h"
#include "reshard/checkpoint/catalog.h"

namespace reshard::megatron {

// The parameters of the model, by the names that they have where one rank has all of it:
// decoder.layers.7.mlp.linear_fc1.weight. Parts of tensor-parallel ranks are chunks of one tensor (cuts.h); layers are
// counted over all stages of the pipeline, interleaved or not, experts over all expert-parallel ranks. What every rank
// has whole is taken from the first; the embedding's copy in the last stage is left out where the arguments of the job
// say that it is one. The values in the first rank's file (iteration, args, ...) are there as in any file of
// torch.save.
//
// Example: ranks (tp, pp) = (0,0), (1,0), (0,1), (1,1) with one layer each, and linear_fc1 of 2 x 3 gate and 2 x 3 up
// rows per rank: decoder.layers.1.mlp.linear_fc1.weight is of stage 1; rows 0-2 and 6-8 are chunks of rank (0,1), rows
// 3-5 and 9-11 of rank (1,1).
//
// The state of the optimizer has no names of parameters in these files, and the state of random numbers is the ranks'
// own: they are left out, and named.
//
// DataLoss: files of some ranks are missing (which), or have other tensors than their job's arguments say.
// Unimplemented: a tensor-parallel parameter of another name than cuts.h knows, experts in one tensor or with a
// tensor parallelism of their own, versions before 2, whose queries, keys and values lie in another order.
absl::StatusOr<Catalog> ReadMegatron(const std::string& directory, absl::Span<const RankFile> files,
                                     const CatalogLimits& limits);

}  // namespace reshard::megatron

#endif  // RESHARD_CHECKPOINT_FORMATS_MEGATRON_READ_H_
