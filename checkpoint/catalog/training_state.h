// Which tensors and values of a checkpoint are the state of training rather than weights. What they are made of
// decides, not what they are called: a model may have a part called `optimizer`.
#ifndef RESHARD_CHECKPOINT_CATALOG_TRAINING_STATE_H_
#define RESHARD_CHECKPOINT_CATALOG_TRAINING_STATE_H_

#include <string>
#include <string_view>

#include "absl/container/flat_hash_set.h"
#include "reshard/checkpoint/catalog.h"

namespace reshard::catalog {

// The state of training is
// - an optimizer: what is in a container that has `param_groups`, or whose `state` has moments (`exp_avg`,
//   `momentum_buffer`, ...);
// - a gradient scaler: a container with `growth_factor` and `backoff_factor`; a scheduler: one with `last_epoch` and
//   `_step_count`;
// - the state of a random number generator: one dimension of integers, of PyTorch's size or below a name with `rng` or
//   `random` in it;
// - counters: integers without dimensions beside the container of the weights, and containers that frameworks keep
//   (`callbacks`, `optimizer`, `train_state`, ...) as long as nothing in them has more than one element;
// - in a checkpoint of Lightning, all but `state_dict`.
// Example: {"model": {"w": [4, 4]}, "opt": {"state": {0: {"exp_avg": [4, 4]}}, "param_groups": [{"lr": 0.1}]}} gives
// the names model.w, opt.state.0.exp_avg and opt.param_groups.0.lr; the container `opt` is an optimizer, `model.w` is
// not.
class TrainingState {
 public:
  explicit TrainingState(const Catalog& catalog);

  // Whether this tensor or byte item of the catalog is state of training.
  bool Has(std::string_view name) const;

 private:
  bool InContainer(std::string_view name) const;

  absl::flat_hash_set<std::string> containers_;  // with all that is in them: "opt"
  absl::flat_hash_set<std::string> names_;
  bool only_state_dict_ = false;
};

}  // namespace reshard::catalog

#endif  // RESHARD_CHECKPOINT_CATALOG_TRAINING_STATE_H_
