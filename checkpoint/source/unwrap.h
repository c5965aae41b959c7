// Which wrappers come off the names of a checkpoint before anything else looks at these names.
#ifndef RESHARD_CHECKPOINT_SOURCE_UNWRAP_H_
#define RESHARD_CHECKPOINT_SOURCE_UNWRAP_H_

#include <vector>

#include "absl/status/statusor.h"
#include "reshard/checkpoint/catalog.h"
#include "reshard/checkpoint/recipe.h"
#include "reshard/checkpoint/wrappers.h"

namespace reshard::source {

// The wrappers (reshard/checkpoint/wrappers.h) of the weights that the recipe's selection takes, whether or not it
// takes more than weights. None if more rules of the recipe fit names as they are stored than names without
// wrappers: it is then written for stored names. Errors as Select, except for a checkpoint without weights.
absl::StatusOr<std::vector<Wrapper>> FindWrappersFor(const Recipe& recipe, const Catalog& stored);

}  // namespace reshard::source

#endif  // RESHARD_CHECKPOINT_SOURCE_UNWRAP_H_
