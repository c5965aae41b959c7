// Lowers what a recipe says to the few operations that can be read.
#ifndef RESHARD_CHECKPOINT_VIEWS_LOWER_H_
#define RESHARD_CHECKPOINT_VIEWS_LOWER_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "checkpoint/views/node.h"
#include "reshard/checkpoint/catalog.h"
#include "reshard/checkpoint/expression.h"

namespace reshard::views {

// Lowers an expression over tensors of a catalog: one without placeholders in names and parts, and with nothing left to
// be repeated over one. InvalidArgument: a tensor that is not there; a dimension, size or part that does not fit the
// shapes, which the message has; a cast that is not possible; elements of a type that is not known.
absl::StatusOr<Node> Lower(const Expression& expression, const Catalog& catalog);

// A tensor of the catalog as it is. Requires that its dtype is known.
Node TensorNode(const Catalog& catalog, int64_t tensor);

// The same elements as another type. InvalidArgument: a cast that is not possible; too many bytes.
absl::StatusOr<Node> CastTo(Node input, DType dtype);

// The number of parts of which an operation takes one. If its input decides that (recipe::FixedParts), the expression
// must be as Lower requires, except for that part. InvalidArgument: there can be none; otherwise as Lower.
absl::StatusOr<int64_t> NumParts(const Expression& expression, const Catalog& catalog);

}  // namespace reshard::views

#endif  // RESHARD_CHECKPOINT_VIEWS_LOWER_H_
