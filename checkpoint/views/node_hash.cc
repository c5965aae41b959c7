#include "checkpoint/views/node_hash.h"

#include <cstdint>
#include <string_view>
#include <vector>

namespace reshard::views {

void AddTo(const Node& node, hash::Digest* digest) {
  digest->Add({static_cast<int64_t>(node.kind), static_cast<int64_t>(node.dtype), node.tensor,
               static_cast<int64_t>(node.dim), node.begin, static_cast<int64_t>(node.shape.size()),
               static_cast<int64_t>(node.inputs.size())});
  digest->Add(std::string_view(node.element));
  digest->Add(node.shape);
  digest->Add(node.ends);
  digest->Add(node.blocks);
  for (const size_t dim : node.dims) digest->Add(static_cast<int64_t>(dim));
  for (const Node& input : node.inputs) AddTo(input, digest);
}

}  // namespace reshard::views
