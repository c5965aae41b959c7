// Elements of one type as elements of another.
#ifndef RESHARD_CHECKPOINT_RECIPE_CAST_H_
#define RESHARD_CHECKPOINT_RECIPE_CAST_H_

#include <cstddef>

#include "absl/status/status.h"
#include "reshard/layout/dtype.h"

namespace reshard::recipe {

// Whether patterns of dtypes apply to it: f16, bf16, f32 and f64. Narrower floats have scales beside them, without
// which they mean little.
bool IsWideFloat(DType dtype);

// Whether Cast can: between numbers, but not from floats to integers (which has no result for most floats), nor from
// complex ones to others. InvalidArgument: it cannot; says both types.
absl::Status CheckCast(DType from, DType to);

// Whether every element can be cast back to what it was, except for the bits of a NaN.
bool IsExactCast(DType from, DType to);

// Casts `count` elements that lie side by side, as PyTorch's Tensor.to does: integers wrap; everything but 0 becomes
// true; floats are rounded to nearest even, by way of f32 where the result is narrower than that, and what is out of
// range becomes infinite, or NaN in types that have no infinity. A NaN stays one. Requires CheckCast; the two do not
// overlap.
void Cast(DType from, DType to, const void* in, size_t count, void* out);

}  // namespace reshard::recipe

#endif  // RESHARD_CHECKPOINT_RECIPE_CAST_H_
