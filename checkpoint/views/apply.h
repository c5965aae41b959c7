// A recipe applied to a checkpoint: what its result is, and how each tensor of it is read.
#ifndef RESHARD_CHECKPOINT_VIEWS_APPLY_H_
#define RESHARD_CHECKPOINT_VIEWS_APPLY_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "checkpoint/views/node.h"
#include "reshard/checkpoint/catalog.h"
#include "reshard/checkpoint/recipe.h"

namespace reshard::views {

struct View {
  int64_t stored = 0;        // the tensor that it is, or the first one that it is made of
  std::optional<Node> node;  // nothing where it is that tensor as it is
  std::string text;          // what it is, for people; empty where it is the tensor as it is
};

struct Applied {
  Catalog catalog;          // of the result
  std::vector<View> views;  // of its tensors
};

// `stored` is what the recipe's selection has left. Tensors are in the order of the first ones that they are made of.
// InvalidArgument: a rule that does not fit, with its new name; a tensor that no rule uses and that is neither to be
// kept nor dropped; more than 2^20 uses of tensors in all, or 2^16 parts of something; two of one name; an operation
// over a placeholder whose numbers are not 0, 1, 2, ...; nothing left.
absl::StatusOr<Applied> Apply(const Recipe& recipe, const Catalog& stored);

// A tensor of which less is in the result than it has: a part of a split that no rule takes, or what a slice leaves.
struct PartlyUsed {
  int64_t stored = 0;
  int64_t used = 0;      // elements; those that come twice count twice
  int64_t elements = 0;  // in all
};

// Counts the elements of all boxes. Finds nothing if a view has very many of them.
std::vector<PartlyUsed> FindPartlyUsed(const std::vector<View>& views, const Catalog& stored);

}  // namespace reshard::views

#endif  // RESHARD_CHECKPOINT_VIEWS_APPLY_H_
