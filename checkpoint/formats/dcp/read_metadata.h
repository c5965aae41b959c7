// Reads `.metadata` of PyTorch's distributed checkpoints: a pickle that says what each tensor is, in which boxes it is
// stored, and where each box is.
#ifndef RESHARD_CHECKPOINT_FORMATS_DCP_READ_METADATA_H_
#define RESHARD_CHECKPOINT_FORMATS_DCP_READ_METADATA_H_

#include "absl/status/status.h"
#include "checkpoint/catalog/catalog_builder.h"
#include "checkpoint/io/files.h"
#include "reshard/checkpoint/catalog.h"

namespace reshard::dcp {

// Adds what the `.metadata` (or per-rank `__N.metadata`) in `file` lists to `builder`, and what else it says of the
// checkpoint as attributes. Objects of unknown classes (of extensions) are skipped where they do not matter, and
// subclasses are taken for what they contain.
// Time and memory are in proportion to the bytes, however often values in it are shared.
//
// DataLoss: it is not such a pickle, has a name twice, or a box with elements but without a location. Unimplemented: an
// encoded stream, with the name of the encoding; an item that is neither a tensor nor bytes. Otherwise as Pickle::Read.
absl::Status ReadMetadata(const io::ReadFile& file, const CatalogLimits& limits, catalog::CatalogBuilder* builder);

}  // namespace reshard::dcp

#endif  // RESHARD_CHECKPOINT_FORMATS_DCP_READ_METADATA_H_
