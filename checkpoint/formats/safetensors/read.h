// Reads safetensors checkpoints as catalogs.
#ifndef RESHARD_CHECKPOINT_FORMATS_SAFETENSORS_READ_H_
#define RESHARD_CHECKPOINT_FORMATS_SAFETENSORS_READ_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "reshard/checkpoint/catalog.h"

namespace reshard::safetensors {

// Errors of all: NotFound: nothing there, or no safetensors files. DataLoss: a bad header or index, a tensor or file
// that the index names but that is missing or in another of its files as well, a name twice, shards that do not fit
// each other. InvalidArgument: an index that names a path outside the directory; several indices of which none is
// model.safetensors.index.json. ResourceExhausted: over a limit. Unavailable: the system could not read a file.
//
// Files that PyTorch's Hugging Face storage wrote shard by shard say in `__metadata__` where in the tensor each of
// their entries begins (DCP_SHARDING_INFO); entries with the same name are then the chunks of one tensor, which is as
// large as they reach. Files may be symbolic links (Hugging Face's cache consists of them); their names must not leave
// the directory.

// A directory, in which these names are:
//   with *.safetensors.index.json
//     the files that it names, and all tensors in them. The index is checked against the files.
//   without
//     all *.safetensors of the directory, in which no name may appear twice; if there are none, those of its folder
//     `sharded`
absl::StatusOr<Catalog> ReadSafetensorsDirectory(const std::string& root, const std::vector<std::string>& names,
                                                 const CatalogLimits& limits);
// What that index in the directory says, whatever else is there.
absl::StatusOr<Catalog> ReadSafetensorsIndex(const std::string& directory, const std::string& index,
                                             const CatalogLimits& limits);
// These files in the directory together, in which no name may appear twice.
absl::StatusOr<Catalog> ReadSafetensorsFiles(const std::string& directory, absl::Span<const std::string> files,
                                             const CatalogLimits& limits);

}  // namespace reshard::safetensors

#endif  // RESHARD_CHECKPOINT_FORMATS_SAFETENSORS_READ_H_
