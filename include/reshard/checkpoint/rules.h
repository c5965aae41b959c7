// Layout rules: which tensor of a model gets which layout. The first rule whose pattern matches the name wins.
//
//   {"mesh":"{dp:2,tp:4}","layouts":[["*.wq.weight","[<tp>, *]"],["*","[<dp>, ...]"]]}
#ifndef RESHARD_CHECKPOINT_RULES_H_
#define RESHARD_CHECKPOINT_RULES_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "reshard/checkpoint/pattern.h"
#include "reshard/layout/layout.h"
#include "reshard/layout/mesh.h"

namespace reshard {

// A mesh, and a list of rules over it.
class LayoutRules {
 public:
  // The layout of the tensors whose names match a pattern.
  struct Rule {
    std::string pattern;  // see MatchesPattern
    std::string layout;   // a layout rule, see ParseLayoutRule
  };

  // InvalidArgument: not JSON of the form above (the message says what is wrong, and where), a malformed mesh, or a
  // layout rule that is malformed or names an axis that the mesh does not have (CheckLayoutRule).
  static absl::StatusOr<LayoutRules> Parse(std::string_view json);
  // The same rule for all tensors. InvalidArgument: a malformed mesh or rule.
  static absl::StatusOr<LayoutRules> ForAll(std::string_view mesh, std::string_view layout);
  static absl::StatusOr<LayoutRules> ForAll(const Mesh& mesh, std::string_view layout);

  // The mesh that the layouts are over. Never null.
  const Mesh& mesh() const { return mesh_; }
  // In the order in which they are tried.
  const std::vector<Rule>& rules() const { return rules_; }

  // The first rule whose pattern matches, or null if none does.
  const Rule* Match(std::string_view name) const;

  // The layout that the first matching rule gives a tensor. A rule whose pattern has a `*` or `?` is meant for tensors
  // of any rank (ParseLayoutRuleForAnyRank): `[<dp>, ...]` leaves 0-d tensors whole. A rule that names one must fit it.
  // InvalidArgument, with the name of the tensor: no rule matches; or the rule does not fit the shape or is not a
  // layout over the mesh (with the rule, the shape, and why).
  absl::StatusOr<Layout> LayoutFor(std::string_view name, const std::vector<int64_t>& shape) const;

 private:
  Mesh mesh_;
  std::vector<Rule> rules_;
};

}  // namespace reshard

#endif  // RESHARD_CHECKPOINT_RULES_H_
