// Layout rules: which tensor of a model gets which layout. The first rule whose pattern matches the name wins.
//
//   {"mesh":"{dp:2,tp:4}","layouts":[["*.wq.weight","[<tp>, *]"],["*","[<dp>, ...]"]]}
#ifndef RESHARD_CHECKPOINT_RULES_H_
#define RESHARD_CHECKPOINT_RULES_H_

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "reshard/layout/layout.h"
#include "reshard/layout/mesh.h"

namespace reshard {

// True when the pattern fits the whole name: `*` is any text, also none, `?` one character (of UTF-8), all else itself.
// At most pattern x name steps.
bool MatchesPattern(std::string_view pattern, std::string_view name);

class LayoutRules {
 public:
  struct Rule {
    std::string pattern;
    std::string layout;  // a layout rule, see ParseLayoutRule
  };

  // InvalidArgument: not JSON of the form above (what is wrong, and where), or a bad mesh.
  static absl::StatusOr<LayoutRules> Parse(std::string_view json);
  // One rule for all tensors.
  static absl::StatusOr<LayoutRules> ForAll(std::string_view mesh, std::string_view layout);

  const std::shared_ptr<const Mesh>& mesh() const { return mesh_; }
  const std::vector<Rule>& rules() const { return rules_; }

  // The first rule that matches, or null.
  const Rule* Match(std::string_view name) const;

  // The layout that the first matching rule gives a tensor. `[...]` fits every rank, 0 too.
  // InvalidArgument names the tensor: no rule matches; the rule does not fit the shape or is no layout of the mesh (the
  // rule, the shape, and why).
  absl::StatusOr<Layout> LayoutFor(std::string_view name, const std::vector<int64_t>& shape) const;

 private:
  std::shared_ptr<const Mesh> mesh_;
  std::vector<Rule> rules_;
};

}  // namespace reshard

#endif  // RESHARD_CHECKPOINT_RULES_H_
