// How the names in a rule for tensors relate to each other.
#ifndef RESHARD_CHECKPOINT_RECIPE_RULE_H_
#define RESHARD_CHECKPOINT_RECIPE_RULE_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "checkpoint/recipe/name_pattern.h"
#include "reshard/checkpoint/expression.h"
#include "reshard/checkpoint/recipe.h"

namespace reshard::recipe {

struct Rule {
  // An operation that takes the part that a placeholder counts. Pointers are into the rule that was read.
  struct Use {
    const Expression* operation;
    // The operations with an `over` that it is an input of, at any depth, the outermost one first.
    std::vector<const Expression*> around;
    size_t depth = 0;  // how many operations it is an input of
  };
  // A placeholder of the target that is not in a name, but says which part of something is taken. All of its operations
  // must have the same number of parts.
  struct Counted {
    std::string placeholder;
    std::vector<Use> uses;  // at least one
  };
  NamePattern to;
  // A name in the expression with all placeholders of `to` but those that are counted.
  NamePattern key;
  // In an order in which each can be counted: an operation within another one is counted before that one.
  std::vector<Counted> counted;

  // InvalidArgument: a name that is no NamePattern; a placeholder that nothing gives a value to, or that is a number
  // in one place and any text in another; an operation over a placeholder that has more than one input, or that the
  // target has.
  static absl::StatusOr<Rule> Of(const TensorRule& rule);
};

// The first name in an expression that has that placeholder. Names there are NamePatterns.
const std::string* FirstNameWith(const Expression& expression, std::string_view placeholder);

}  // namespace reshard::recipe

#endif  // RESHARD_CHECKPOINT_RECIPE_RULE_H_
