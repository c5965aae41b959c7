// The values in the nested containers of a description, by flat names.
#ifndef RESHARD_CHECKPOINT_FORMATS_TORCH_SAVE_FLATTEN_H_
#define RESHARD_CHECKPOINT_FORMATS_TORCH_SAVE_FLATTEN_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "checkpoint/formats/pickle/machine.h"
#include "checkpoint/formats/torch_save/archive.h"
#include "reshard/checkpoint/catalog.h"

namespace reshard::torch_save {

struct Leaf {
  std::string name;                     // the steps of the path, joined by '.'
  std::vector<Catalog::PathStep> path;  // empty for the root
  pickle::Pickle::Value value = 0;
};

// What torch.distributed.checkpoint would make of the root: dicts are taken apart, keys as texts; lists only where they
// contain, at any depth, a dict, a module or a tensor; tuples only where they contain a tensor. A Namespace, and an
// object into which the pickle puts items, are taken apart as the dicts or lists that they are. A module (an object
// whose state has `_parameters`, `_buffers` and `_modules`) becomes what its state_dict() would be: parameters,
// persistent buffers, and those of its submodules, with one step of the path for the dotted name. Everything else is a
// leaf. An empty dict leaves none. Of a TorchScript module the members of all objects are taken apart, too.
//
// Example: {"model": Linear(2, 2), "epoch": 3} gives model.weight with the path ("model", "weight"), model.bias, epoch.
//
// DataLoss: two leaves have one name; or the containers refer to one another so often that there are more leaves, or
// longer names, than limits proportional to the pickle's size allow: a small pickle can describe a tree of any size.
absl::StatusOr<std::vector<Leaf>> Flatten(const Archive& archive);

}  // namespace reshard::torch_save

#endif  // RESHARD_CHECKPOINT_FORMATS_TORCH_SAVE_FLATTEN_H_
