// From what a recipe says to the few operations that are read.
#ifndef RESHARD_CHECKPOINT_VIEWS_LOWER_H_
#define RESHARD_CHECKPOINT_VIEWS_LOWER_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "checkpoint/views/node.h"
#include "reshard/checkpoint/catalog.h"
#include "reshard/checkpoint/expression.h"

namespace reshard::views {

// An expression over tensors of a catalog: without placeholders in names and parts, and with nothing left to be
// repeated over one. InvalidArgument: a tensor that is not there; a dimension, size or part that does not fit the
// shapes, which the message has; a cast that cannot be; elements of a type that is not known.
absl::StatusOr<Node> Lower(const Expression& expression, const Catalog& catalog);

// A tensor of the catalog as it is. Requires that its dtype is known.
Node TensorNode(const Catalog& catalog, int64_t tensor);

// The same elements as another type. InvalidArgument: a cast that cannot be; too many bytes.
absl::StatusOr<Node> CastTo(Node input, DType dtype);

// The number of parts of which an operation takes one. Where its input says it (recipe::FixedParts), the expression is
// as Lower requires, but for that part. InvalidArgument: there can be none; otherwise as Lower.
absl::StatusOr<int64_t> NumParts(const Expression& expression, const Catalog& catalog);

}  // namespace reshard::views

#endif  // RESHARD_CHECKPOINT_VIEWS_LOWER_H_
