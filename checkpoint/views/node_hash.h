// Which view it is.
#ifndef RESHARD_CHECKPOINT_VIEWS_NODE_HASH_H_
#define RESHARD_CHECKPOINT_VIEWS_NODE_HASH_H_

#include "checkpoint/hash/digest.h"
#include "checkpoint/views/node.h"

namespace reshard::views {

// Two views that are read from other places, or in another way, add something else.
void AddTo(const Node& node, hash::Digest* digest);

}  // namespace reshard::views

#endif  // RESHARD_CHECKPOINT_VIEWS_NODE_HASH_H_
