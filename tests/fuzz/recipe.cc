// Any bytes as a recipe, or where they do not begin as one as a program that writes one. It is applied to a few
// tensors, of which the results are read, and turned around. Whatever is wrong with it is the input's fault, said
// briefly; and the way back makes tensors as they were.
#include "reshard/checkpoint/recipe.h"

#include <optional>
#include <string>
#include <vector>

#include "checkpoint/catalog/catalog_builder.h"
#include "checkpoint/formats/safetensors/format.h"
#include "checkpoint/views/apply.h"
#include "checkpoint/views/read_view.h"
#include "checkpoint/views/scales.h"
#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/recipe_program.h"

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
    add("q", DType::kF8E4M3FN, {4, 6});
    add("s", DType::kF32, {2, 3});
    return std::move(builder).BuildUnstored();
  }();
  return catalog;
}

void Expect(const absl::Status& status) {
  constexpr size_t kLongest = 2000;
  testing::Promised(status.ok() || status.code() == absl::StatusCode::kInvalidArgument, "bad input is InvalidArgument");
  testing::Promised(status.message().size() <= kLongest, "a message has at most 2000 bytes");
}

// Nothing where it does not fit the tensors.
std::optional<views::Applied> Use(const Recipe& recipe, const Catalog& stored) {
  absl::StatusOr<views::Applied> applied = views::Apply(recipe, stored);
  Expect(applied.status());
  if (!applied.ok()) return std::nullopt;
  for (size_t t = 0; t < applied->views.size(); ++t) {
    const Catalog::Tensor& tensor = applied->catalog.tensors()[t];
    constexpr int64_t kMostBytes = 1 << 16;
    if (!applied->views[t].node || tensor.bytes > kMostBytes) continue;
    std::string out(static_cast<size_t>(tensor.bytes), '\0');
    const auto read = [](int64_t, absl::Span<const int64_t>, absl::Span<const int64_t>, absl::Span<char>) {
      return absl::OkStatus();
    };
    Expect(views::ReadView(*applied->views[t].node, std::vector<int64_t>(tensor.shape.size(), 0), tensor.shape, read,
                           absl::MakeSpan(out)));
  }
  (void)views::FindPartlyUsed(applied->views, stored);
  (void)views::FindUnscaled(applied->views, applied->catalog, stored, recipe);
  return *std::move(applied);
}

// Where the way back makes a tensor of a name that there was, it has the dtype and shape that it had.
void CompareWithStored(const Catalog& back) {
  for (const Catalog::Tensor& tensor : back.tensors()) {
    const Catalog::Tensor* const before = Stored().FindTensor(tensor.name);
    if (before == nullptr) continue;
    testing::Promised(before->dtype == tensor.dtype && before->shape == tensor.shape, "the way back leads back");
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const bool is_text = size == 0 || data[0] == '{';
  const std::string text = is_text ? std::string(testing::Text(data, size)) : testing::RecipeProgram(data, size).Text();
  const absl::StatusOr<Recipe> recipe = Recipe::Parse(text);
  Expect(recipe.status());
  if (!recipe.ok()) return 0;
  const std::optional<views::Applied> made = Use(*recipe, Stored());
  const absl::StatusOr<Recipe> inverted = recipe->Inverted();
  Expect(inverted.status());
  if (!inverted.ok()) return 0;
  (void)Use(*inverted, Stored());
  if (!made) return 0;
  const std::optional<views::Applied> back = Use(*inverted, made->catalog);
  if (back) CompareWithStored(back->catalog);
  return 0;
}
