#include <string>
#include <utility>
#include <vector>

#include "reshard/checkpoint/recipe.h"

namespace reshard {

absl::Status Recipe::Refine(const Selection& more, const std::vector<std::pair<std::string, DType>>& casts) {
  for (const auto& [wanted, own] :
       {std::pair(&more.strip_prefix, &selection.strip_prefix), std::pair(&more.add_prefix, &selection.add_prefix)}) {
    if (wanted->empty()) continue;
    if (!own->empty()) return absl::InvalidArgumentError("a prefix is given both in the recipe and beside it");
    *own = *wanted;
  }
  selection.renamings.insert(selection.renamings.begin(), more.renamings.begin(), more.renamings.end());
  selection.include.insert(selection.include.end(), more.include.begin(), more.include.end());
  selection.exclude.insert(selection.exclude.end(), more.exclude.begin(), more.exclude.end());
  selection.weights_only = selection.weights_only || more.weights_only;
  selection.byte_items = selection.byte_items && more.byte_items;
  selection.partial = selection.partial || more.partial;
  selection.keep_rank_local = selection.keep_rank_local || more.keep_rank_local;
  dtypes.insert(dtypes.begin(), casts.begin(), casts.end());
  asked.include.insert(asked.include.end(), more.include.begin(), more.include.end());
  asked.exclude.insert(asked.exclude.end(), more.exclude.begin(), more.exclude.end());
  for (const auto& [from, to] : more.renamings) asked.renamings.push_back(from);
  for (const auto& [pattern, dtype] : casts) asked.dtypes.push_back(pattern);
  if (!more.strip_prefix.empty()) asked.strip_prefix = more.strip_prefix;
  return absl::OkStatus();
}

}  // namespace reshard
