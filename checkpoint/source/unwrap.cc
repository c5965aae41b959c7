#include "checkpoint/source/unwrap.h"

#include <algorithm>
#include <string>

#include "checkpoint/recipe/name_pattern.h"
#include "reshard/checkpoint/selection.h"
#include "status/macros.h"

namespace reshard::source {
namespace {

using recipe::NamePattern;

// Whether a tensor that the rule is about has one of the names.
bool Fits(const Expression& expression, const std::vector<std::string>& names) {
  if (expression.op == Expression::Op::kTensor) {
    const absl::StatusOr<NamePattern> pattern = NamePattern::Parse(expression.name);
    return pattern.ok() && std::any_of(names.begin(), names.end(),
                                       [&](const std::string& name) { return pattern->Match(name, {}).has_value(); });
  }
  return std::any_of(expression.inputs.begin(), expression.inputs.end(),
                     [&](const Expression& input) { return Fits(input, names); });
}

std::vector<std::string> TensorNames(const Catalog& catalog) {
  std::vector<std::string> names;
  for (const Catalog::Tensor& tensor : catalog.tensors()) names.emplace_back(tensor.name);
  return names;
}

}  // namespace

absl::StatusOr<std::vector<Wrapper>> FindWrappersFor(const Recipe& recipe, const Catalog& stored) {
  if (stored.tensors().empty()) return std::vector<Wrapper>();
  Selection weights = recipe.selection.under_stored_names();
  weights.weights_only = true;
  const absl::StatusOr<Catalog> taken = Select(stored, weights);
  if (absl::IsInvalidArgument(taken.status())) return std::vector<Wrapper>();  // no weights
  if (!taken.ok()) return taken.status();
  std::vector<Wrapper> wrappers = FindWrappers(*taken, recipe.selection.strip_prefix);
  if (wrappers.empty() || recipe.tensors.empty()) return wrappers;

  Selection as_stored = recipe.selection, bare = recipe.selection;
  as_stored.weights_only = bare.weights_only = true;
  bare.wrappers = wrappers;
  ASSIGN_OR_RETURN(const Catalog of_stored, Select(stored, as_stored));
  ASSIGN_OR_RETURN(const Catalog of_bare, Select(stored, bare));
  const std::vector<std::string> stored_names = TensorNames(of_stored), bare_names = TensorNames(of_bare);
  const auto fitting = [&](const std::vector<std::string>& names) {
    return std::count_if(recipe.tensors.begin(), recipe.tensors.end(),
                         [&](const TensorRule& rule) { return Fits(rule.from, names); });
  };
  if (fitting(stored_names) > fitting(bare_names)) wrappers.clear();
  return wrappers;
}

}  // namespace reshard::source
