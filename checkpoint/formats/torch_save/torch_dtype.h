// The dtypes by PyTorch's names.
#ifndef RESHARD_CHECKPOINT_FORMATS_TORCH_SAVE_TORCH_DTYPE_H_
#define RESHARD_CHECKPOINT_FORMATS_TORCH_SAVE_TORCH_DTYPE_H_

#include <optional>
#include <string_view>

#include "reshard/layout/dtype.h"

namespace reshard::torch_save {

// "float32" for kF32: the name of the dtype in the module `torch`.
std::string_view TorchName(DType dtype);

// "FloatStorage" for kF32: the typed storage in the module `torch`. Empty for a dtype newer than those, whose tensors
// have storages without a type.
std::string_view StorageName(DType dtype);

// The dtype with that name in PyTorch ("torch.bfloat16"); nullopt for one that this library does not have.
std::optional<DType> DTypeOfTorch(std::string_view name);

// The dtype of a typed storage ("FloatStorage"); nullopt for one that this library does not have.
std::optional<DType> DTypeOfStorage(std::string_view name);

// Whether a PyTorch may have a dtype of that name ("torch.complex32", "torch.float3_of_the_future").
bool LooksLikeTorchDType(std::string_view name);

}  // namespace reshard::torch_save

#endif  // RESHARD_CHECKPOINT_FORMATS_TORCH_SAVE_TORCH_DTYPE_H_
