// Which tensors and byte items of a checkpoint are converted, loaded or compared, and what they are called then.
//
//   Selection selection;
//   selection.exclude = {"*.optimizer.*"};
//   selection.strip_prefix = "model.";
#ifndef RESHARD_CHECKPOINT_SELECTION_H_
#define RESHARD_CHECKPOINT_SELECTION_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "reshard/checkpoint/catalog.h"
#include "reshard/checkpoint/wrappers.h"

namespace reshard {

// Patterns (reshard/checkpoint/pattern.h) are matched against names as the checkpoint has them.
struct Selection {
  std::vector<std::string> include = {};  // only what matches one of these; empty: everything
  std::vector<std::string> exclude = {};  // of that, nothing that matches one of these
  bool byte_items = true;                 // byte items, and values that are not plain data, too
  // Leaves out byte items, attributes and the state of training: optimizers, scalers, schedulers, random number
  // generators and counters, which are recognized by what they contain (checkpoint/catalog/training_state.h).
  bool weights_only = false;
  // Takes what is there even if files of the checkpoint are missing.
  bool partial = false;
  // Takes what differs between the files of ranks, each rank's under a name of its own: "NAME.rank_0".
  bool keep_rank_local = false;

  // What is left is renamed: `wrappers` and `strip_prefix` are taken off names that have them, then the first of the
  // renamings that matches is applied, and then `add_prefix` is put in front. `strip_prefix` and `renamings` may be
  // written for names with wrappers or without: the prefix comes off the name as it is stored, or else off the name
  // without wrappers; a renaming that matches the latter takes precedence over one that matches the former.
  std::vector<Wrapper> wrappers = {};
  std::string strip_prefix = {};
  bool needs_prefix = false;  // it is an error if a name does not begin with strip_prefix
  // From a pattern to a name in which $1 to $9 are what its `*` stand for, and $$ is a dollar.
  std::vector<std::pair<std::string, std::string>> renamings = {};
  std::string add_prefix = {};

  // Whether it takes everything as it is.
  bool takes_all() const;
  // A selection that takes the same and renames nothing.
  Selection under_stored_names() const;
};

// InvalidArgument: a $ in `to` that neither stands for a `*` of `from` nor is doubled.
absl::Status CheckRenaming(std::string_view from, std::string_view to);

// "OLD=NEW" as a renaming. InvalidArgument: no "=", or a $ in NEW that neither stands for a `*` of OLD nor is doubled.
absl::StatusOr<std::pair<std::string, std::string>> ParseRenaming(std::string_view text);

// What a selection leaves out of one container of a checkpoint.
struct LeftOut {
  std::string container;  // the first step of the paths of what is in it, or the first part of their names
  int64_t tensors = 0;
  int64_t values = 0;  // byte items, and values that are not plain data
  int64_t bytes = 0;   // of tensors and byte items
};

// The catalog of what is selected, under its new names, in the order of the old one; its chunks and files are those of
// the old one. A path in nested containers is kept if the name is. If `left_out` is not null, it is set to what is not
// selected, in the order of the checkpoint.
// InvalidArgument: nothing is left; two would have the same name (with both old names); a renaming with a $ that stands
// for no `*`; a name without the prefix that it needs. DataLoss: the checkpoint is not complete, and `partial` does not
// allow it; what is selected differs between ranks, and `keep_rank_local` does not allow it (the name, two files, and
// what to do).
absl::StatusOr<Catalog> Select(Catalog catalog, const Selection& selection, std::vector<LeftOut>* left_out = nullptr);

}  // namespace reshard

#endif  // RESHARD_CHECKPOINT_SELECTION_H_
