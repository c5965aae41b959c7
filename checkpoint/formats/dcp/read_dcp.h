// Reads directories that torch.distributed.checkpoint has written.
#ifndef RESHARD_CHECKPOINT_FORMATS_DCP_READ_DCP_H_
#define RESHARD_CHECKPOINT_FORMATS_DCP_READ_DCP_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "reshard/checkpoint/catalog.h"

namespace reshard::dcp {

// Of the names of the files in a directory, those that describe a DCP checkpoint: ".metadata" or, if there is none,
// "__0.metadata", "__1.metadata", ... of ranks that saved separately, by rank. Empty: it is not a DCP checkpoint.
std::vector<std::string> MetadataFiles(absl::Span<const std::string> names);

// Reads the files that MetadataFiles has returned, which all describe one checkpoint. Errors as ReadCatalog.
absl::StatusOr<Catalog> ReadDcpCatalog(const std::string& directory, absl::Span<const std::string> metadata,
                                       const CatalogLimits& limits);

}  // namespace reshard::dcp

#endif  // RESHARD_CHECKPOINT_FORMATS_DCP_READ_DCP_H_
