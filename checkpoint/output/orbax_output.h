// Writes checkpoints that JAX programs restore with orbax-checkpoint, without its OCDBT: a folder per array, in the
// form of Zarr 2, and files that say what the tree is. A listing beside them says the same to this library.
//
//   params.decoder.norm.scale/.zarray      shape, dtype and the shape of a chunk
//   params.decoder.norm.scale/0.0          chunks: their elements, dense and row-major, not compressed
//                                          (of a tensor without elements one, which is empty)
//   _METADATA                              the keys of the tree, {"params": {"decoder": {"norm": {"scale": ...
//   _CHECKPOINT_METADATA                   who reads it
//   reshard.listing.json                   checkpoint/formats/listing/read.h
//   commit_success.txt                     that it is complete, where a store cannot rename
//
// Names are cut at each "." into the keys of nested dicts. Arrays are NumPy's as far as Orbax is concerned, so that it
// restores them without the devices that saved them, and as JAX's under any sharding that a caller asks for.
#ifndef RESHARD_CHECKPOINT_OUTPUT_ORBAX_OUTPUT_H_
#define RESHARD_CHECKPOINT_OUTPUT_ORBAX_OUTPUT_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "absl/types/span.h"
#include "checkpoint/output/output_format.h"
#include "reshard/checkpoint/rules.h"

namespace reshard::output {

// The shape of a chunk of at most `most` bytes, or of one element if that has more, for a tensor whose shards have the
// shape `shard`; positive. Chunks form a grid from the first index on. A dimension of the chunk divides the shard's,
// unless the tensor, `shape`, is not cut at all: then the last chunk of one dimension may be shorter, and all
// dimensions before it are 1 and all after it whole, so that what the last chunk has is at the beginning of its file.
//
// Example: [8192, 80, 28672] of 2 bytes, at most 64 MiB: rows of 4,587,520 bytes, 14 of them fit -> [8, 80, 28672];
//          [11] of 4 bytes, at most 16: [4], and 3 elements in the last of three chunks.
std::vector<int64_t> ChunkShape(absl::Span<const int64_t> shape, absl::Span<const int64_t> shard, int64_t element_bytes,
                                int64_t most);

// Chunks have at most `chunk_bytes`. With `rules` they are the shards of a tensor, or equal parts of them, so that a
// program that restores it in that layout reads what it needs.
// Fails with what the rules report. Refuses tensors that they do not cut into equal boxes.
std::unique_ptr<OutputFormat> MakeOrbaxOutput(const std::optional<LayoutRules>& rules, int64_t chunk_bytes,
                                              const ObjectTerms& objects);

}  // namespace reshard::output

#endif  // RESHARD_CHECKPOINT_OUTPUT_ORBAX_OUTPUT_H_
