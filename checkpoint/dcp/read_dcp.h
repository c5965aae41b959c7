// A directory that PyTorch's distributed checkpoint wrote.
#ifndef RESHARD_CHECKPOINT_DCP_READ_DCP_H_
#define RESHARD_CHECKPOINT_DCP_READ_DCP_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "reshard/checkpoint/catalog.h"

namespace reshard {

// The names among `names`, those of a directory, that describe a DCP checkpoint: ".metadata", or, when there is none,
// "__0.metadata", "__1.metadata", ... of ranks that saved on their own, by rank. Empty: it is none.
std::vector<std::string> MetadataFiles(absl::Span<const std::string> names);

// Reads `metadata`, files of MetadataFiles, all about one checkpoint. Errors as ReadCatalog.
absl::StatusOr<Catalog> ReadDcpCatalog(const std::string& directory, absl::Span<const std::string> metadata,
                                       const CatalogLimits& limits);

}  // namespace reshard

#endif  // RESHARD_CHECKPOINT_DCP_READ_DCP_H_
