// What wrappers have added to the names of a model's weights: torch.compile, FSDP, activation checkpointing, DDP,
// DeepSpeed, or a dictionary around the state dict. A loader of the bare model does not know these names.
#ifndef RESHARD_CHECKPOINT_WRAPPERS_H_
#define RESHARD_CHECKPOINT_WRAPPERS_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/types/span.h"
#include "reshard/checkpoint/catalog.h"

namespace reshard {

// One addition to names.
struct Wrapper {
  enum class Position {
    kPart,    // a part of a name, wherever it stands and however often
    kPrefix,  // once, in front of a name
  };
  std::string text;  // with the dot that ends it: "_orig_mod.", "module."
  Position place = Position::kPart;
  int64_t names = 0;  // how many tensors have it in their names
};

// Whether both take the same off the same places, in the same order; how many names have it does not matter.
bool AreSame(absl::Span<const Wrapper> a, absl::Span<const Wrapper> b);

// The wrappers in the names of `weights`, in the order in which they come off.
//
// Known parts (`_orig_mod.`, `_fsdp_wrapped_module.`, `_checkpoint_wrapped_module.`) come off wherever they stand.
// Prefixes come off only if the names of all tensors have them, repeatedly until nothing changes:
//  - the key of a known container (`model`, `state_dict`, `app`, ...), where the checkpoint records that it is one: a
//    first step of all paths (Catalog::PathOf) with a dotted name as a later step;
//  - `module.`, `_forward_module.`, `state_dict.`, `model_state_dict.`, `model_state.`;
//  - one `model.` where some names have it twice, or have `lm_head.` behind it. A `model.` of another kind is the
//    model's own: many loaders look for it.
// `strip_prefix` is taken off the names that begin with it before anything is looked for.
// Post-condition: no name is left empty. Two names may become one: the caller has to check.
std::vector<Wrapper> FindWrappers(const Catalog& weights, std::string_view strip_prefix = {});

// The name after taking off each of the wrappers that it has.
std::string WithoutWrappers(std::string_view name, absl::Span<const Wrapper> wrappers);

// The name without any of the known parts of wrappers, wherever they stand.
std::string WithoutKnownParts(std::string_view name);

}  // namespace reshard

#endif  // RESHARD_CHECKPOINT_WRAPPERS_H_
