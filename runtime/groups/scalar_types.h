// Element types of torch and of this library.
#ifndef RESHARD_RUNTIME_GROUPS_SCALAR_TYPES_H_
#define RESHARD_RUNTIME_GROUPS_SCALAR_TYPES_H_

#include <c10/core/ScalarType.h>

#include "absl/status/statusor.h"
#include "reshard/layout/dtype.h"

namespace reshard::groups {

// Unimplemented for types without a counterpart, such as quantized ones.
absl::StatusOr<DType> DTypeOf(at::ScalarType type);
// Every type has one.
at::ScalarType ScalarTypeOf(DType type);

}  // namespace reshard::groups

#endif  // RESHARD_RUNTIME_GROUPS_SCALAR_TYPES_H_
