// Writes the `.metadata` file of a distributed checkpoint in the form that every PyTorch from 2.6 on reads: with five
// properties per tensor, and no classes but those of torch.distributed.checkpoint.metadata.
#ifndef RESHARD_CHECKPOINT_FORMATS_DCP_WRITE_METADATA_H_
#define RESHARD_CHECKPOINT_FORMATS_DCP_WRITE_METADATA_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/types/span.h"
#include "reshard/checkpoint/catalog.h"
#include "reshard/layout/dtype.h"

namespace reshard::dcp {

// What `.metadata` says about one tensor. Views into the caller's memory.
struct MetadataTensor {
  std::string_view name;
  DType dtype = DType::kF32;
  absl::Span<const int64_t> shape;
  bool requires_grad = false;
  std::vector<Catalog::Chunk> chunks;  // places: of the streams
};

struct MetadataBytes {
  std::string_view name;
  Catalog::FileRange place;
};

struct MetadataPath {
  std::string_view name;
  const std::vector<Catalog::PathStep>* path = nullptr;
};

// The file's bytes. `files` are the names that places index. Writes only attributes that are plain data and not of
// files. `checkpoint_id` and `save_id` are texts that readers only show.
std::string WriteMetadata(absl::Span<const MetadataTensor> tensors, absl::Span<const MetadataBytes> byte_items,
                          absl::Span<const MetadataPath> paths, absl::Span<const std::string> files,
                          absl::Span<const Catalog::Attribute> attributes, std::string_view checkpoint_id,
                          std::string_view save_id);

}  // namespace reshard::dcp

#endif  // RESHARD_CHECKPOINT_FORMATS_DCP_WRITE_METADATA_H_
