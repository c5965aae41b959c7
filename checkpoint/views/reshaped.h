// A view in another shape.
#ifndef RESHARD_CHECKPOINT_VIEWS_RESHAPED_H_
#define RESHARD_CHECKPOINT_VIEWS_RESHAPED_H_

#include <cstdint>
#include <utility>
#include <vector>

#include "checkpoint/views/node.h"

namespace reshard::views {

// A kReshape node. The shape has as many elements as the input has.
inline Node Reshaped(Node input, std::vector<int64_t> shape) {
  Node node;
  node.kind = Node::Kind::kReshape;
  node.dtype = input.dtype;
  node.shape = std::move(shape);
  node.inputs.push_back(std::move(input));
  return node;
}

}  // namespace reshard::views

#endif  // RESHARD_CHECKPOINT_VIEWS_RESHAPED_H_
