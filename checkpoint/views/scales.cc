#include "checkpoint/views/scales.h"

#include <algorithm>
#include <set>
#include <string>

#include "absl/strings/str_cat.h"
#include "checkpoint/recipe/cast.h"
#include "checkpoint/views/scaled.h"
#include "reshard/checkpoint/pattern.h"
#include "status/view.h"

namespace reshard::views {
namespace {

constexpr std::string_view kSuffixes[] = {"_scale_inv", "_scale"};
constexpr std::string_view kOfInputs = ".input_scale", kWeight = ".weight";

bool HasNarrowElements(const Catalog::Tensor* tensor) {
  if (tensor == nullptr || !tensor->dtype) return false;
  return IsQuantized(*tensor->dtype) || *tensor->dtype == DType::kF4E2M1x2;
}

bool IsQuantizedBeside(const Catalog& catalog, int64_t tensor) {
  const Catalog::Tensor& found = catalog.tensors()[tensor];
  return HasNarrowElements(&found) &&
         std::any_of(std::begin(kSuffixes), std::end(kSuffixes), [&](std::string_view suffix) {
           return catalog.FindTensor(absl::StrCat(status::View(found.name), status::View(suffix))) != nullptr;
         });
}

// Adds the quantized tensors that become wide floats by a cast.
void CollectCasts(const Node& node, bool is_cast, const Catalog& stored, std::set<int64_t>* out) {
  if (node.kind == Node::Kind::kDequantize) return;
  if (node.kind == Node::Kind::kTensor && is_cast && IsQuantizedBeside(stored, node.tensor)) out->insert(node.tensor);
  const bool casts = is_cast || (node.kind == Node::Kind::kCast && recipe::IsWideFloat(node.dtype));
  for (const Node& input : node.inputs) CollectCasts(input, casts, stored, out);
}

}  // namespace

bool NamesScales(const Catalog& catalog, std::string_view name) {
  const auto base = [&](std::string_view suffix) { return name.substr(0, name.size() - suffix.size()); };
  for (const std::string_view suffix : kSuffixes) {
    if (name.ends_with(suffix) && HasNarrowElements(catalog.FindTensor(base(suffix)))) return true;
  }
  if (!name.ends_with(kOfInputs)) return false;
  return HasNarrowElements(catalog.FindTensor(absl::StrCat(status::View(base(kOfInputs)), status::View(kWeight))));
}

Unscaled FindUnscaled(const std::vector<View>& views, const Catalog& result, const Catalog& stored,
                      const Recipe& recipe) {
  std::set<int64_t> cast, kept;
  for (size_t t = 0; t < views.size(); ++t) {
    const View& view = views[t];
    if (view.node) {
      CollectCasts(*view.node, false, stored, &cast);
      continue;
    }
    const std::string_view name = result.tensors()[t].name;
    const bool is_asked_for = std::any_of(recipe.dtypes.begin(), recipe.dtypes.end(),
                                          [&](const auto& each) { return MatchesPattern(each.first, name); });
    if (is_asked_for && IsQuantizedBeside(stored, view.stored)) kept.insert(view.stored);
  }
  return {{cast.begin(), cast.end()}, {kept.begin(), kept.end()}};
}

}  // namespace reshard::views
