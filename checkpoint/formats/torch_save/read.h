// Reads what torch.save has written as catalogs.
#ifndef RESHARD_CHECKPOINT_FORMATS_TORCH_SAVE_READ_H_
#define RESHARD_CHECKPOINT_FORMATS_TORCH_SAVE_READ_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "reshard/checkpoint/catalog.h"

namespace reshard::torch_save {

// The tensors of all readers: those of the nested containers of each file, by their paths (flatten.h), in any strides;
// a parameter is its tensor; tensors that share a storage are tensors of their own; an array of NumPy is a tensor. A
// tensor that only PyTorch or its class can read (sparse, quantized, a subclass) has its kind as stored dtype, and no
// elements. A value that is plain data is a byte item; anything else is an attribute with its kind, which cannot be
// carried. Of a TorchScript module only tensors are read, by their paths in its objects.

// Whether the file begins as one of torch.save does, in either form.
absl::StatusOr<bool> IsArchive(const std::string& path);

// One file (.pt, .pth, .bin, .ckpt). A root that is not a container has the name of the file without its extension.
// DataLoss, also: a DTensor, of which one file has only a part. Unimplemented: a root that is an object other than a
// module. The catalog is not complete where the file is one of several parts by its name (incomplete()).
absl::StatusOr<Catalog> ReadFile(const std::string& path, const CatalogLimits& limits);

// Of the names of the files in a directory, those of a Hugging Face model: its `*.bin.index.json`, or
// `pytorch_model.bin`. Empty: there is none.
std::string BinSetOf(absl::Span<const std::string> names);
// The model in `directory` of which BinSetOf has returned `name`. DataLoss, also: a tensor or a file that the index
// names but that is missing, a name in two files.
absl::StatusOr<Catalog> ReadBinSet(const std::string& directory, const std::string& name, const CatalogLimits& limits);

// A file in which a rank has saved its own parts.
struct RankFile {
  std::string name;
  std::string prefix;  // of all names in it
  int64_t rank = 0;
};
// Of the names of the files in a directory, those of all ranks: `model_world_size_W_rank_R.pt` with all R from 0 to
// W - 1, as verl writes them, or `pytorch_model_fsdp_MODEL_rankR.bin` with all R from 0 on, as accelerate does without
// DCP, or nothing but `ITEM_R.pt` with the same R from 0 on for all items, whose names have ITEM
// as prefix. Empty: there are none. DataLoss: files of some ranks are missing (which). InvalidArgument: of two sizes or
// models.
absl::StatusOr<std::vector<RankFile>> RankFilesOf(absl::Span<const std::string> names);
// One catalog over all of `files`: the parts of DTensors are chunks; what is not a DTensor is one tensor or value where
// all ranks that have it have the same, and one per rank otherwise (Catalog::rank_local).
// InvalidArgument, also: files with a prefix, tensors and no DTensor, each of which may be a checkpoint of its own.
absl::StatusOr<Catalog> ReadRankFiles(const std::string& directory, absl::Span<const RankFile> files,
                                      const CatalogLimits& limits);

}  // namespace reshard::torch_save

#endif  // RESHARD_CHECKPOINT_FORMATS_TORCH_SAVE_READ_H_
