#include "checkpoint/source/asked.h"

#include <algorithm>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/strings/str_cat.h"
#include "checkpoint/catalog/nearest.h"
#include "checkpoint/io/show.h"
#include "reshard/checkpoint/pattern.h"
#include "reshard/checkpoint/wrappers.h"
#include "status/macros.h"
#include "status/view.h"

namespace reshard::source {
namespace {

using Names = std::vector<std::string>;

Names NamesOf(const Catalog& catalog) {
  Names names;
  for (const Catalog::Tensor& tensor : catalog.tensors()) names.emplace_back(tensor.name);
  for (const Catalog::ByteItem& item : catalog.byte_items()) names.emplace_back(item.name);
  for (const Catalog::Attribute& attribute : catalog.attributes()) names.emplace_back(attribute.name);
  // What differs between ranks may be asked for by its common name.
  for (const Catalog::RankLocal& one : catalog.rank_local()) names.push_back(one.name);
  return names;
}

// `what` is "include"; `shown` is the text that was asked for. There are `count` names, of which `names` may have some
// in two forms.
absl::Status MatchesOne(std::string_view what, std::string_view shown, std::string_view pattern, const Names& names,
                        size_t count) {
  if (std::any_of(names.begin(), names.end(), [&](const std::string& name) { return MatchesPattern(pattern, name); })) {
    return absl::OkStatus();
  }
  const std::optional<std::string> near = catalog::NearestToPattern(pattern, names);
  return absl::InvalidArgumentError(absl::StrCat(
      status::View(what), " ", io::Shown(shown), " matches none of ", count, " names",
      near ? absl::StrCat("; the nearest is ", io::Shown(*near)) : "", "; allow unmatched patterns if this is meant"));
}

}  // namespace

absl::Status CheckAsked(const Recipe& recipe, const Catalog& stored) {
  const Recipe::Asked& asked = recipe.asked;
  if (!asked.include.empty() || !asked.exclude.empty()) {
    const Names names = NamesOf(stored);
    for (const std::string& pattern : asked.include) {
      RETURN_IF_ERROR(MatchesOne("include", pattern, pattern, names, names.size()));
    }
    for (const std::string& pattern : asked.exclude) {
      RETURN_IF_ERROR(MatchesOne("exclude", pattern, pattern, names, names.size()));
    }
  }
  if (asked.strip_prefix.empty() && asked.renamings.empty()) return absl::OkStatus();
  ASSIGN_OR_RETURN(const Catalog taken, Select(stored, recipe.selection.under_stored_names()));
  Names names = NamesOf(taken);
  const size_t count = names.size();
  if (!recipe.selection.wrappers.empty()) {
    for (size_t i = 0; i < count; ++i) names.push_back(WithoutWrappers(names[i], recipe.selection.wrappers));
  }
  if (!asked.strip_prefix.empty()) {
    // A prefix is literal, whatever is in it.
    const bool any = std::any_of(names.begin(), names.end(),
                                 [&](const std::string& name) { return name.starts_with(asked.strip_prefix); });
    if (!any)
      RETURN_IF_ERROR(MatchesOne("the prefix to strip", asked.strip_prefix, asked.strip_prefix + "*", names, count));
  }
  // Renamings apply to what the prefix leaves.
  const std::string& prefix = recipe.selection.strip_prefix;
  for (std::string& name : names) {
    if (!prefix.empty() && name.starts_with(prefix)) name.erase(0, prefix.size());
  }
  for (const std::string& pattern : asked.renamings) {
    RETURN_IF_ERROR(MatchesOne("rename", pattern, pattern, names, count));
  }
  return absl::OkStatus();
}

absl::Status CheckAskedCasts(const Recipe& recipe, const Catalog& result) {
  if (recipe.asked.dtypes.empty()) return absl::OkStatus();
  Names names;
  for (const Catalog::Tensor& tensor : result.tensors()) names.emplace_back(tensor.name);
  for (const std::string& pattern : recipe.asked.dtypes) {
    if (pattern == "*") continue;  // everything, however little that is
    RETURN_IF_ERROR(MatchesOne("dtype", pattern, pattern, names, names.size()));
  }
  return absl::OkStatus();
}

}  // namespace reshard::source
