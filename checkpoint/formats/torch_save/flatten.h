// The values in the nested containers of a description, by flat names.
#ifndef RESHARD_CHECKPOINT_FORMATS_TORCH_SAVE_FLATTEN_H_
#define RESHARD_CHECKPOINT_FORMATS_TORCH_SAVE_FLATTEN_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "checkpoint/formats/pickle/machine.h"
#include "reshard/checkpoint/catalog.h"

namespace reshard::torch_save {

struct Leaf {
  std::string name;                     // the steps of the path, joined by '.'
  std::vector<Catalog::PathStep> path;  // empty for the root
  pickle::Pickle::Value value = 0;
};

// What torch.distributed.checkpoint would make of the root: dicts are taken apart, keys as texts; lists only where they
// contain, at any depth, a dict or a tensor; tuples only where they contain a tensor. Everything else is a leaf. An
// empty dict leaves none.
// Unimplemented: a key that is neither text, number, bool nor None. DataLoss: two leaves of one name, or more of them,
// or longer names, than `bytes` of a description that repeats nothing can have.
absl::StatusOr<std::vector<Leaf>> Flatten(const pickle::Pickle& description, int64_t bytes);

}  // namespace reshard::torch_save

#endif  // RESHARD_CHECKPOINT_FORMATS_TORCH_SAVE_FLATTEN_H_
