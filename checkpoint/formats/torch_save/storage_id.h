// How the description of a file of torch.save refers to a storage.
#ifndef RESHARD_CHECKPOINT_FORMATS_TORCH_SAVE_STORAGE_ID_H_
#define RESHARD_CHECKPOINT_FORMATS_TORCH_SAVE_STORAGE_ID_H_

#include <cstdint>
#include <optional>
#include <string_view>

#include "checkpoint/formats/pickle/machine.h"
#include "reshard/layout/dtype.h"

namespace reshard::torch_save {

struct StorageId {
  std::string_view module;                    // of the class of the storage: "torch"
  std::string_view type;                      // the class: "FloatStorage"
  std::string_view key;                       // of the storage in its file
  int64_t elements = 0;                       // as it stands there, of any sign
  int64_t first = 0;                          // of the view of the storage that this is, in elements: where it begins
  bool is_untyped = false;                    // elements are bytes
  std::optional<DType> dtype = std::nullopt;  // of a typed storage, if this library has it
  std::optional<int64_t> element_bytes = std::nullopt;  // also of types that it does not have
};

// Of a persistent id ("storage", class, key, device, number of elements [, view]), where a view is None or, in the
// first form, (key, first, number of elements). Nothing for any other value. Views into the pickle.
std::optional<StorageId> ReadStorageId(const pickle::Pickle& pickle, pickle::Pickle::Value value);

}  // namespace reshard::torch_save

#endif  // RESHARD_CHECKPOINT_FORMATS_TORCH_SAVE_STORAGE_ID_H_
