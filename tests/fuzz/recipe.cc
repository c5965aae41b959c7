// Any bytes as a recipe, which is then turned around, and applied to a few tensors, of which the results are read.
#include "reshard/checkpoint/recipe.h"

#include <string>
#include <vector>

#include "checkpoint/catalog/catalog_builder.h"
#include "checkpoint/formats/safetensors/format.h"
#include "checkpoint/views/apply.h"
#include "checkpoint/views/read_view.h"
#include "tests/fuzz/fuzz.h"

namespace {

using namespace reshard;

const Catalog& Stored() {
  static const Catalog catalog = [] {
    catalog::CatalogBuilder builder(safetensors::kFormat, "");
    const auto add = [&](const char* name, DType dtype, const std::vector<int64_t>& shape) {
      (void)builder.AddTensor(name, "x", dtype, shape, false).ok();
    };
    for (const char* name : {"a.0.w", "a.1.w", "a.2.w"}) add(name, DType::kF32, {4, 6});
    add("b", DType::kBF16, {12});
    add("c", DType::kI64, {});
    add("d", DType::kF4E2M1x2, {2, 0, 3});
    return std::move(builder).BuildUnstored();
  }();
  return catalog;
}

void Use(const Recipe& recipe) {
  const absl::StatusOr<views::Applied> applied = views::Apply(recipe, Stored());
  if (!applied.ok()) return;
  for (size_t t = 0; t < applied->views.size(); ++t) {
    const Catalog::Tensor& tensor = applied->catalog.tensors()[t];
    constexpr int64_t kMostBytes = 1 << 16;
    if (!applied->views[t].node || tensor.bytes > kMostBytes) continue;
    std::string out(static_cast<size_t>(tensor.bytes), '\0');
    const auto read = [](int64_t, absl::Span<const int64_t>, absl::Span<const int64_t>, absl::Span<char>) {
      return absl::OkStatus();
    };
    (void)views::ReadView(*applied->views[t].node, std::vector<int64_t>(tensor.shape.size(), 0), tensor.shape, read,
                          absl::MakeSpan(out))
        .ok();
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const absl::StatusOr<Recipe> recipe = Recipe::Parse(testing::Text(data, size));
  if (!recipe.ok()) return 0;
  Use(*recipe);
  const absl::StatusOr<Recipe> inverted = recipe->Inverted();
  if (inverted.ok()) Use(*inverted);
  return 0;
}
