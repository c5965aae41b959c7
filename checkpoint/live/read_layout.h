// Which rank reads which part of a tensor when each element is read once.
#ifndef RESHARD_CHECKPOINT_LIVE_READ_LAYOUT_H_
#define RESHARD_CHECKPOINT_LIVE_READ_LAYOUT_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "reshard/layout/dtype.h"
#include "reshard/layout/layout.h"

namespace reshard::live {

// The layout in which the devices of a target layout read a tensor of one dimension or more. Every axis of the mesh
// shards it, so that no two devices read the same element.
//
// Of two candidates per dimension, picks the one with the least estimated time: the target with its replicas cut along
// the dimension, after which only replicas have to be gathered; or the dimension cut by all axes, which is better where
// the target's fragments are small pieces of what is contiguous in the files. `chunk` is the shape of a typical chunk.
// Deterministic. Errors as Layout::Create.
absl::StatusOr<Layout> ReadLayout(const Layout& target, DType dtype, absl::Span<const int64_t> chunk);

}  // namespace reshard::live

#endif  // RESHARD_CHECKPOINT_LIVE_READ_LAYOUT_H_
