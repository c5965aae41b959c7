// What of a checkpoint is taken, what it is called, and what is made of it.
//
//   {"schema": "reshard.recipe/1",
//    "strip_prefix": "model.",
//    "tensors": [
//      {"to": "layers.{i}.qkv.weight",
//       "from": {"concatenate": ["layers.{i}.q.weight", "layers.{i}.k.weight", "layers.{i}.v.weight"], "dim": 0}},
//      {"to": "layers.{i}.experts.w1", "from": {"stack": "layers.{i}.experts.{e}.w1.weight", "over": "e"}}],
//    "keep": ["*"],
//    "dtype": [["*norm*", "f32"], ["*", "bf16"]]}
#ifndef RESHARD_CHECKPOINT_RECIPE_H_
#define RESHARD_CHECKPOINT_RECIPE_H_

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "reshard/checkpoint/expression.h"
#include "reshard/checkpoint/rules.h"
#include "reshard/checkpoint/selection.h"
#include "reshard/layout/dtype.h"

namespace reshard {

// Names in `to` and `from` may have placeholders: {i} is a decimal number, {p*} any text, and each has the same value
// everywhere in a rule. A rule makes one tensor for each combination of values of the placeholders of `to` for which
// the tensor in `from` that has all of them exists (a placeholder that selects a part ranges over the parts; a
// dequantized tensor exists for all values for which there are scales). {{ and }} are braces.
struct TensorRule {
  std::string to;
  Expression from;
  bool optional = false;  // it is not an error if there is nothing to make
};

struct Recipe {
  // What is taken, and under which names: everything below refers to these names.
  Selection selection = {};
  // What is made, besides what is kept.
  std::vector<TensorRule> tensors = {};
  // Patterns (reshard/checkpoint/pattern.h) of what no rule uses. If there are rules for tensors, every other tensor
  // must match one of these: what matches `keep` is taken as it is, what matches `drop` is left out. Byte items stay.
  std::vector<std::string> keep = {};
  std::vector<std::string> drop = {};
  // The first pattern that matches the name in the result says what f16, bf16, f32 and f64 elements are cast to. Others
  // stay as they are, and it is an error if a pattern without * and ? names such a tensor.
  std::vector<std::pair<std::string, DType>> dtypes = {};
  // How the result is sharded.
  std::optional<LayoutRules> layouts = {};

  // What Refine has added. A pattern that the caller adds is meant for this checkpoint, and is taken for a typo if it
  // matches nothing; what the recipe itself says is written for many checkpoints, and may match nothing.
  struct Asked {
    std::vector<std::string> include = {}, exclude = {}, renamings = {}, dtypes = {};  // patterns
    std::string strip_prefix = {};
  };
  // Each must match a name (source/asked.h). Clear it to skip that check.
  Asked asked = {};

  // Whether tensors stay what they are.
  bool only_selects() const { return tensors.empty() && drop.empty() && dtypes.empty(); }

  // reshard.recipe/1, see docs/recipe.schema.json. InvalidArgument: not JSON, or not a recipe; the message says what is
  // wrong, and where. The text may be untrusted: nothing in it is taken for granted.
  static absl::StatusOr<Recipe> Parse(std::string_view json);

  // Adds what is requested besides the recipe: renamings, patterns and casts of `selection` and `casts` come before its
  // own, and are also in `asked`. InvalidArgument: a prefix is in both.
  absl::Status Refine(const Selection& selection, const std::vector<std::pair<std::string, DType>>& casts);

  // The recipe that makes the old tensors out of the new ones. InvalidArgument: a rule or a renaming that loses
  // something, or does not say what is needed to undo it (sizes of a concatenation, ...), by name.
  absl::StatusOr<Recipe> Inverted() const;
};

}  // namespace reshard

#endif  // RESHARD_CHECKPOINT_RECIPE_H_
