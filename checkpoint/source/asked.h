// Checks that what a recipe asks for exists at all.
#ifndef RESHARD_CHECKPOINT_SOURCE_ASKED_H_
#define RESHARD_CHECKPOINT_SOURCE_ASKED_H_

#include "absl/status/status.h"
#include "reshard/checkpoint/catalog.h"
#include "reshard/checkpoint/recipe.h"

namespace reshard::source {

// Checks that each pattern of recipe.asked.include and .exclude matches a tensor, byte item or attribute of `stored`,
// and that the prefix and each of .renamings fit a name that the selection takes, with or without
// recipe.selection.wrappers. InvalidArgument: one matches none; says the number of names and the nearest one. Otherwise
// as Select.
absl::Status CheckAsked(const Recipe& recipe, const Catalog& stored);

// Checks that each of recipe.asked.dtypes matches a tensor of the result. Errors as above.
absl::Status CheckAskedCasts(const Recipe& recipe, const Catalog& result);

}  // namespace reshard::source

#endif  // RESHARD_CHECKPOINT_SOURCE_ASKED_H_
