// Identifies a view in a digest.
#ifndef RESHARD_CHECKPOINT_VIEWS_NODE_HASH_H_
#define RESHARD_CHECKPOINT_VIEWS_NODE_HASH_H_

#include "checkpoint/hash/digest.h"
#include "checkpoint/views/node.h"

namespace reshard::views {

// Adds a view. Views that are read from different places, or in different ways, add different data.
void AddTo(const Node& node, hash::Digest* digest);

}  // namespace reshard::views

#endif  // RESHARD_CHECKPOINT_VIEWS_NODE_HASH_H_
