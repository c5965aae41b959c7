// Safetensors checkpoints as catalogs.
#ifndef RESHARD_CHECKPOINT_SAFETENSORS_READ_H_
#define RESHARD_CHECKPOINT_SAFETENSORS_READ_H_

#include <string>

#include "absl/status/statusor.h"
#include "reshard/checkpoint/catalog.h"

namespace reshard {

// `path` is one file, or a directory:
//   with *.safetensors.index.json   the files that it names, and all tensors in them; where several files have a
//   tensor,
//                                   the one that the index says. The index is checked against the files.
//   without                         all *.safetensors of the directory, where no name may come twice; when there are
//                                   none those of its folder `sharded`
// Files that PyTorch's Hugging Face storage wrote shard by shard say in `__metadata__` where in the tensor each of
// their entries begins (DCP_SHARDING_INFO); entries of one name are then the chunks of one tensor, as large as they
// reach. Files may be symbolic links (Hugging Face's cache is made of them), their names may not leave the directory.
//
// NotFound: nothing there, or no safetensors files. DataLoss: a bad header or index, a tensor or file that the index
// names and is missing, a name twice, shards that do not fit each other. InvalidArgument: an index that names a path
// outside of the directory; several indices of which none is model.safetensors.index.json. ResourceExhausted: beyond a
// limit. Unavailable: the system.
absl::StatusOr<Catalog> ReadSafetensorsCatalog(const std::string& path, const CatalogLimits& limits);

}  // namespace reshard

#endif  // RESHARD_CHECKPOINT_SAFETENSORS_READ_H_
