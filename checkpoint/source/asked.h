// Whether what somebody has asked for is there at all.
#ifndef RESHARD_CHECKPOINT_SOURCE_ASKED_H_
#define RESHARD_CHECKPOINT_SOURCE_ASKED_H_

#include "absl/status/status.h"
#include "reshard/checkpoint/catalog.h"
#include "reshard/checkpoint/recipe.h"

namespace reshard::source {

// Each pattern of recipe.asked.include and .exclude matches a tensor, byte item or attribute of the catalog, what is
// stored; the prefix and each of .renamings fit a name that the selection takes, with recipe.selection.wrappers or
// without. InvalidArgument: one matches none, with the number of names and the nearest one. Otherwise as Select.
absl::Status CheckAsked(const Recipe& recipe, const Catalog& stored);

// Each of recipe.asked.dtypes matches a tensor of the result. Errors as above.
absl::Status CheckAskedCasts(const Recipe& recipe, const Catalog& result);

}  // namespace reshard::source

#endif  // RESHARD_CHECKPOINT_SOURCE_ASKED_H_
