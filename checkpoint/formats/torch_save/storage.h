// Where the elements of tensors are in a file of torch.save.
#ifndef RESHARD_CHECKPOINT_FORMATS_TORCH_SAVE_STORAGE_H_
#define RESHARD_CHECKPOINT_FORMATS_TORCH_SAVE_STORAGE_H_

#include <cstdint>
#include <optional>
#include <string>

#include "absl/container/flat_hash_map.h"

namespace reshard::torch_save {

// Elements that follow each other in a file; tensors are views of them.
struct Storage {
  int64_t at = 0;                                // offset in the file, in bytes
  int64_t length = 0;                            // in bytes
  std::optional<uint32_t> crc32 = std::nullopt;  // of all of it, where the file has one
};

// By key, as descriptions refer to them.
using Storages = absl::flat_hash_map<std::string, Storage>;

}  // namespace reshard::torch_save

#endif  // RESHARD_CHECKPOINT_FORMATS_TORCH_SAVE_STORAGE_H_
