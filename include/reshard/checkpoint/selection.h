// Which tensors and byte items of a checkpoint are converted, loaded or compared, and what they are called then.
//
//   Selection selection;
//   selection.exclude = {"*.optimizer.*"};
//   selection.strip_prefix = "model.";
#ifndef RESHARD_CHECKPOINT_SELECTION_H_
#define RESHARD_CHECKPOINT_SELECTION_H_

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "reshard/checkpoint/catalog.h"

namespace reshard {

// Patterns (reshard/checkpoint/pattern.h) are matched with names as the checkpoint has them.
struct Selection {
  std::vector<std::string> include = {};  // only what matches one of these; empty: everything
  std::vector<std::string> exclude = {};  // of that, nothing that matches one of these
  bool byte_items = true;                 // byte items, too
  // Neither byte items, attributes nor the state of training: names with a part like `optimizer`, `lr_scheduler` or
  // `rng_state` (IsTrainingState).
  bool weights_only = false;

  // What is left is renamed: first the prefix is taken away where there is one, then the first of the renamings that
  // matches is applied, and then the prefix is put in front.
  std::string strip_prefix = {};
  // From a pattern to a name in which $1 to $9 are what its `*` stand for, and $$ is a dollar.
  std::vector<std::pair<std::string, std::string>> renamings = {};
  std::string add_prefix = {};

  // Whether it takes everything as it is.
  bool takes_all() const;
};

// Whether a part of the name, between dots or slashes, is what frameworks call the state of training by: `optimizer`,
// `optim`, `lr_scheduler`, `rng_state`, `train_state` and the like.
bool IsTrainingState(std::string_view name);

// InvalidArgument: a $ in `to` that is neither of a `*` of `from` nor doubled.
absl::Status CheckRenaming(std::string_view from, std::string_view to);

// "OLD=NEW" as a renaming. InvalidArgument: no "=", or a $ in NEW that is neither of a `*` of OLD nor doubled.
absl::StatusOr<std::pair<std::string, std::string>> ParseRenaming(std::string_view text);

// The catalog of what is selected, under its new names, in the order of the old one; its chunks and files are those of
// the old one. A path in nested containers is kept where the name is.
// InvalidArgument: nothing is left; two of one name, with both old names; a renaming that names no capture.
absl::StatusOr<Catalog> Select(Catalog catalog, const Selection& selection);

}  // namespace reshard

#endif  // RESHARD_CHECKPOINT_SELECTION_H_
