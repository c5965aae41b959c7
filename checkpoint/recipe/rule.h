// What the names in a rule for tensors have to do with each other.
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
  // A placeholder of the target that is no part of a name, but says which part of something is taken.
  struct Counted {
    std::string placeholder;
    const Expression* operation;  // in the rule that was read
  };
  NamePattern to;
  // A name in the expression with all placeholders of `to` but those that are counted.
  NamePattern key;
  std::vector<Counted> counted;

  // InvalidArgument: a name that is no NamePattern; a placeholder that nothing gives a value to, or that is a number
  // here and any text there; an operation over a placeholder that has more than one input, or that the target has.
  static absl::StatusOr<Rule> Of(const TensorRule& rule);
};

// The first name in an expression that has that placeholder. Names there are NamePatterns.
const std::string* FirstNameWith(const Expression& expression, std::string_view placeholder);

}  // namespace reshard::recipe

#endif  // RESHARD_CHECKPOINT_RECIPE_RULE_H_
