// `.metadata` of PyTorch's distributed checkpoints: a pickle of what each tensor is, the boxes that it is stored in,
// and where each box lies.
#ifndef RESHARD_CHECKPOINT_DCP_READ_METADATA_H_
#define RESHARD_CHECKPOINT_DCP_READ_METADATA_H_

#include <optional>
#include <string_view>

#include "absl/status/status.h"
#include "checkpoint/job/catalog_builder.h"
#include "reshard/checkpoint/catalog.h"

namespace reshard {

// The dtype that PyTorch calls so ("torch.bfloat16"); nothing for one that this library does not have.
std::optional<DType> DTypeOfTorch(std::string_view name);

// Adds what the `.metadata` (or per-rank `__N.metadata`) in `bytes` lists to `builder`. Objects of classes that nobody
// here knows (of extensions) are passed over where they do not matter, and subclasses are taken for what they contain.
// Time and memory are in proportion to the bytes, however often values in it are shared.
//
// DataLoss: not such a pickle, a name twice, a box with elements that has no place. Unimplemented: a stream that was
// encoded, with the name of the encoding; an item that is neither tensor nor bytes. Others as Pickle::Read.
absl::Status ReadMetadata(std::string_view bytes, const CatalogLimits& limits, CatalogBuilder* builder);

}  // namespace reshard

#endif  // RESHARD_CHECKPOINT_DCP_READ_METADATA_H_
