// What is read of dequantized values is each value times the scale of its block.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <numeric>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "checkpoint/catalog/catalog_builder.h"
#include "checkpoint/formats/safetensors/format.h"
#include "checkpoint/recipe/cast.h"
#include "checkpoint/views/lower.h"
#include "checkpoint/views/read_view.h"
#include "tests/catch.h"
#include "tests/checkpoint/views/plain_views.h"

namespace reshard::testing {
namespace {

using Op = Expression::Op;

// Quantized values and scales in memory, and a catalog of them. Elements are small whole numbers, in their own types.
class Quantized {
 public:
  void Add(const std::string& name, DType dtype, Plain tensor) {
    plain_[name] = std::move(tensor);
    order_.emplace_back(name, dtype);
  }
  const std::map<std::string, Plain>& plain() const { return plain_; }

  Catalog MakeCatalog() const {
    catalog::CatalogBuilder builder(safetensors::kFormat, "");
    for (const auto& [name, dtype] : order_) {
      REQUIRE(builder.AddTensor(name, "x", dtype, plain_.at(name).shape, false).ok());
    }
    return std::move(builder).BuildUnstored();
  }

  absl::Status Read(int64_t tensor, absl::Span<const int64_t> offset, absl::Span<const int64_t> size,
                    absl::Span<char> out) const {
    const auto& [name, dtype] = order_[tensor];
    const Plain& whole = plain_.at(name);
    const std::string bytes = Bytes(Plain::Of({size.begin(), size.end()},
                                              [&](Shape index) {
                                                for (size_t d = 0; d < index.size(); ++d) index[d] += offset[d];
                                                return whole.at(index);
                                              }),
                                    dtype);
    REQUIRE(bytes.size() == out.size());
    std::memcpy(out.data(), bytes.data(), bytes.size());
    return absl::OkStatus();
  }

  static std::string Bytes(const Plain& tensor, DType dtype) {
    // 0 to 8 in f8_e4m3fn and f8_e5m2, and powers of 2 in f8_e8m0.
    constexpr unsigned char kE4M3[] = {0x00, 0x38, 0x40, 0x44, 0x48, 0x4a, 0x4c, 0x4e, 0x50};
    constexpr unsigned char kE5M2[] = {0x00, 0x3c, 0x40, 0x42, 0x44, 0x45, 0x46, 0x47, 0x48};
    std::string bytes;
    for (const int64_t element : tensor.elements) {
      const auto size = static_cast<size_t>(std::abs(element));
      const int sign = element < 0 ? 0x80 : 0;
      const auto number = static_cast<float>(element);
      const auto whole = static_cast<char>(element);
      char byte = 0;
      switch (dtype) {
        case DType::kF32:
          bytes.append(reinterpret_cast<const char*>(&number), sizeof(number));
          continue;
        case DType::kBF16:
          bytes.append(reinterpret_cast<const char*>(&number) + 2, 2);  // little-endian; small numbers end in zeros
          continue;
        case DType::kI8:
          byte = whole;
          break;
        case DType::kF8E4M3FN:
          byte = static_cast<char>(kE4M3[size] | sign);
          break;
        case DType::kF8E5M2:
          byte = static_cast<char>(kE5M2[size] | sign);
          break;
        case DType::kF8E8M0:
          byte = static_cast<char>(127 + std::countr_zero(size));
          break;
        default:
          FAIL("no such elements here");
      }
      bytes += byte;
    }
    return bytes;
  }

 private:
  std::map<std::string, Plain> plain_;
  std::vector<std::pair<std::string, DType>> order_;
};

int64_t Elements(absl::Span<const int64_t> shape) {
  return std::accumulate(shape.begin(), shape.end(), int64_t{1}, std::multiplies<>());
}

// Puts what dequantizes tensor X in the place of each tensor X.
void Dequantize(Expression* e, const Shape& block) {
  if (e->op != Op::kTensor) {
    for (Expression& input : e->inputs) Dequantize(&input, block);
    return;
  }
  Expression values, stored, scales;
  stored.name = "stored." + e->name;
  values.op = Op::kTranspose;
  values.numbers = {0, -1};
  values.inputs = {stored};
  scales.name = "scales." + e->name;
  e->name.clear();
  e->op = Op::kDequantize;
  e->numbers = block;
  e->dtype = DType::kF32;
  e->inputs = {values, scales};
}

}  // namespace

TEST_CASE("a random view of dequantized values has what its expression means, box by box") {
  std::mt19937_64 random(Seed());
  const auto number = [&](int64_t least, int64_t most) {
    return std::uniform_int_distribution<int64_t>(least, most)(random);
  };
  constexpr int kCases = 1500;
  constexpr DType kValues[] = {DType::kF8E4M3FN, DType::kF8E5M2, DType::kI8};
  constexpr DType kScales[] = {DType::kF32, DType::kBF16, DType::kF8E8M0};
  for (int i = 0; i < kCases; ++i) {
    Quantized stored;
    std::map<std::string, Plain> made;  // what is dequantized, as if it were stored
    Shape shape, grid, block;
    for (int64_t d = number(1, 3); d > 0; --d) shape.push_back(number(1, 9));
    const auto blocked = static_cast<size_t>(number(1, static_cast<int64_t>(shape.size())));
    for (size_t d = 0; d < shape.size(); ++d) {
      grid.push_back(shape[d]);
      if (d < shape.size() - blocked) continue;
      block.push_back(number(0, 4) == 0 ? -1 : number(1, 10));
      grid[d] = block.back() < 0 ? 1 : (shape[d] - 1) / block.back() + 1;
    }
    Shape transposed = shape;
    std::swap(transposed.front(), transposed.back());
    for (const char* name : {"a.0", "a.1", "a.2"}) {
      stored.Add(std::string("stored.") + name, kValues[i % 3],
                 Plain::Of(transposed, [&](const Shape&) { return number(-8, 8); }));
      stored.Add(std::string("scales.") + name, kScales[i / 3 % 3],
                 Plain::Of(grid, [&](const Shape&) { return int64_t{1} << number(0, 4); }));
      Expression e;
      e.name = name;
      Dequantize(&e, block);
      made[name] = Evaluate(e, stored.plain());
    }
    Expression expression = RandomExpressions(random(), made).Next(static_cast<int>(number(0, 4)));
    const Plain wanted = Evaluate(expression, made);
    Dequantize(&expression, block);
    INFO(ToString(expression));
    const absl::StatusOr<views::Node> view = views::Lower(expression, stored.MakeCatalog());
    REQUIRE(view.status().ToString() == "OK");
    REQUIRE(view->shape == wanted.shape);
    REQUIRE(view->dtype == DType::kF32);
    const auto reader = [&](int64_t tensor, absl::Span<const int64_t> offset, absl::Span<const int64_t> size,
                            absl::Span<char> out) { return stored.Read(tensor, offset, size, out); };
    for (int box = 0; box < 3; ++box) {
      Shape offset, size;
      for (const int64_t length : wanted.shape) {
        offset.push_back(box == 0 ? 0 : number(0, length - 1));
        size.push_back(box == 0 ? length : number(1, length - offset.back()));
      }
      const std::string bytes = Quantized::Bytes(Plain::Of(size,
                                                           [&](Shape index) {
                                                             for (size_t d = 0; d < index.size(); ++d) {
                                                               index[d] += offset[d];
                                                             }
                                                             return wanted.at(index);
                                                           }),
                                                 DType::kF32);
      std::string read(bytes.size(), '\x5a');
      REQUIRE(views::ReadView(*view, offset, size, reader, absl::MakeSpan(read)).ok());
      REQUIRE(read == bytes);
    }
  }
}

TEST_CASE("of scales only those of the blocks that are read are read, and no piece is long") {
  constexpr int64_t kRows = 5000, kColumns = 3000;
  catalog::CatalogBuilder builder(safetensors::kFormat, "");
  REQUIRE(builder.AddTensor("w", "x", DType::kF8E4M3FN, Shape{kRows, kColumns}, false).ok());
  REQUIRE(builder.AddTensor("s", "x", DType::kF32, Shape{40, 24}, false).ok());
  const Catalog catalog = std::move(builder).BuildUnstored();
  Expression values, scales, e;
  values.name = "w";
  scales.name = "s";
  e.op = Op::kDequantize;
  e.numbers = {128, 128};
  e.dtype = DType::kBF16;
  e.inputs = {values, scales};
  const absl::StatusOr<views::Node> view = views::Lower(e, catalog);
  REQUIRE(view.status().ToString() == "OK");
  CHECK(views::ReadBuffers(*view) == 5);
  int64_t of_scales = 0, of_values = 0, longest = 0;
  const auto reader = [&](int64_t tensor, absl::Span<const int64_t>, absl::Span<const int64_t>, absl::Span<char> out) {
    const auto bytes = static_cast<int64_t>(out.size());
    (tensor == 1 ? of_scales : of_values) += bytes;
    longest = std::max(longest, bytes);
    return absl::OkStatus();
  };
  // Rows 100 to 300 lie in three blocks.
  std::string out(static_cast<size_t>(200 * kColumns * 2), '\0');
  REQUIRE(views::ReadView(*view, {100, 0}, {200, kColumns}, reader, absl::MakeSpan(out)).ok());
  CHECK(of_values == 200 * kColumns);
  CHECK(of_scales >= 3 * 24 * 4);
  CHECK(of_scales <= int64_t{64} << 10);
  CHECK(longest <= static_cast<int64_t>(out.size()));
}

TEST_CASE("what is multiplied is each value times the number, in f32, cast back") {
  std::mt19937_64 random(Seed());
  catalog::CatalogBuilder builder(safetensors::kFormat, "");
  const auto add = [&](const char* name, DType dtype, const Shape& shape) {
    REQUIRE(builder.AddTensor(name, "x", dtype, shape, false).ok());
  };
  add("matrix", DType::kF32, {5, 7});
  add("vector", DType::kBF16, {300});
  add("number", DType::kF16, {});
  add("nothing", DType::kF32, {0, 3});
  add("wide", DType::kF64, {2});
  const Catalog catalog = std::move(builder).BuildUnstored();
  const auto lowered = [&](const char* name, double by) {
    Expression e, stored;
    stored.name = name;
    e.op = Op::kMultiply;
    e.value = by;
    e.inputs = {stored};
    return views::Lower(e, catalog);
  };
  for (const char* name : {"matrix", "vector", "number", "nothing"}) {
    const Catalog::Tensor& tensor = *catalog.FindTensor(name);
    INFO(name);
    std::vector<float> values(static_cast<size_t>(Elements(tensor.shape)));
    for (float& value : values) value = std::uniform_real_distribution<float>(-100, 100)(random);
    std::string stored(static_cast<size_t>(tensor.bytes), '\0'), wanted = stored, read = stored;
    recipe::Cast(DType::kF32, *tensor.dtype, values.data(), values.size(), stored.data());
    recipe::Cast(*tensor.dtype, DType::kF32, stored.data(), values.size(), values.data());
    for (float& value : values) value *= 11.3137085F;
    recipe::Cast(DType::kF32, *tensor.dtype, values.data(), values.size(), wanted.data());
    const absl::StatusOr<views::Node> view = lowered(name, std::sqrt(128.0));
    REQUIRE(view.status().ToString() == "OK");
    CHECK(view->dtype == *tensor.dtype);
    CHECK(absl::MakeConstSpan(view->shape) == absl::Span<const int64_t>(tensor.shape));
    // Only whole tensors are asked for: boxes are those of dequantized values.
    const auto reader = [&](int64_t, absl::Span<const int64_t> offset, absl::Span<const int64_t> size,
                            absl::Span<char> out) {
      CHECK(std::all_of(offset.begin(), offset.end(), [](int64_t at) { return at == 0; }));
      CHECK(static_cast<size_t>(Elements(size) * SizeOf(*tensor.dtype)) == out.size());
      std::copy(stored.begin(), stored.end(), out.begin());
      return absl::OkStatus();
    };
    const Shape offset(tensor.shape.size(), 0);
    REQUIRE(views::ReadView(*view, offset, tensor.shape, reader, absl::MakeSpan(read)).ok());
    CHECK(read == wanted);
  }
  CHECK_THAT(std::string(lowered("wide", 2).status().message()), Catch::Contains("is f64, not f32, f16 or bf16"));
  CHECK_THAT(std::string(lowered("matrix", 1e300).status().message()), Catch::Contains("not a number that f32 has"));
}

TEST_CASE("what cannot be dequantized is refused, with the reason") {
  catalog::CatalogBuilder builder(safetensors::kFormat, "");
  const auto add = [&](const char* name, DType dtype, const Shape& shape) {
    REQUIRE(builder.AddTensor(name, "x", dtype, shape, false).ok());
  };
  add("w", DType::kF8E4M3FN, {6, 4});
  add("v", DType::kF8E4M3FN, {6});
  for (const auto& [name, shape] :
       {std::pair("s.", Shape{}), {"s.1", {1}}, {"s.6", {6}}, {"s.6.1", {6, 1}}, {"s.2.2", {2, 2}}}) {
    add(name, DType::kF32, shape);
  }
  add("d", DType::kF64, {2, 2});
  const Catalog catalog = std::move(builder).BuildUnstored();
  const auto lowered = [&](const char* values, const char* scales, const Shape& block, DType dtype = DType::kBF16) {
    Expression e;
    e.op = Op::kDequantize;
    e.inputs.resize(2);
    e.inputs[0].name = values;
    e.inputs[1].name = scales;
    e.numbers = block;
    e.dtype = dtype;
    return std::string(views::Lower(e, catalog).status().message());
  };
  const auto has = [](const std::string& text, const char* part) { return text.find(part) != std::string::npos; };
  // One scale in all, one per row, and blocks of which the last ones are shorter.
  CHECK(lowered("w", "s.", {-1, -1}).empty());
  CHECK(lowered("w", "s.1", {128, 128}).empty());
  CHECK(lowered("w", "s.6", {1, -1}).empty());
  CHECK(lowered("w", "s.6.1", {1, -1}).empty());
  CHECK(lowered("w", "s.6", {-1}).empty());
  CHECK(lowered("w", "s.2.2", {4, 3}).empty());
  CHECK(lowered("v", "s.6", {1}).empty());
  CHECK(has(lowered("w", "s.2.2", {128, 128}),
            "the scales have shape [2, 2], and blocks of [128, 128] in [6, 4] need [1, 1]"));
  CHECK(has(lowered("v", "s.6", {1, 1}), "blocks of [1, 1] have more dimensions than [6]"));
  CHECK(has(lowered("w", "s.2.2", {0, 3}), "are not sizes of a block"));
  CHECK(has(lowered("w", "d", {4, 3}), "the scales are f64"));
  CHECK(has(lowered("w", "s.2.2", {4, 3}, DType::kF8E5M2), "the result would be f8e5m2"));
}

}  // namespace reshard::testing
