#include "checkpoint/views/scaled.h"

#include <algorithm>
#include <array>
#include <cassert>
#include <cmath>
#include <limits>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "checkpoint/io/show.h"
#include "checkpoint/recipe/cast.h"
#include "checkpoint/views/reshaped.h"
#include "reshard/layout/checked.h"
#include "status/view.h"

namespace reshard::views {
namespace {

float ScaleAt(DType dtype, const char* scales, int64_t number) {
  const char* const at = scales + number * SizeOf(dtype);
  if (dtype == DType::kF8E8M0) {
    // A power of 2, as an exponent; the largest one is NaN.
    constexpr int kBias = 127, kNaN = 255;
    const int exponent = static_cast<unsigned char>(*at);
    return exponent == kNaN ? std::numeric_limits<float>::quiet_NaN() : std::ldexp(1.0F, exponent - kBias);
  }
  float scale = 0;
  recipe::Cast(dtype, DType::kF32, at, 1, &scale);
  return scale;
}

bool IsScale(DType dtype) {
  return dtype == DType::kF32 || dtype == DType::kF16 || dtype == DType::kBF16 || dtype == DType::kF8E8M0;
}

// Whether the bytes of a tensor of that shape fit 64 bits, as of any Node.
bool Fits(const std::vector<int64_t>& shape, DType dtype) {
  std::optional<int64_t> bytes = SizeOf(dtype);
  for (const int64_t size : shape) {
    if (size > 0 && bytes) bytes = CheckedMul(*bytes, size);
  }
  return bytes.has_value();
}

std::vector<int64_t> WithoutOnes(std::vector<int64_t> shape) {
  std::erase(shape, 1);
  return shape;
}

}  // namespace

bool IsQuantized(DType dtype) {
  switch (dtype) {
    case DType::kI8:
    case DType::kF8E4M3FN:
    case DType::kF8E5M2:
    case DType::kF8E4M3FNUZ:
    case DType::kF8E5M2FNUZ:
      return true;
    default:
      return false;
  }
}

absl::StatusOr<Node> Dequantize(Node values, Node scales, absl::Span<const int64_t> block, DType dtype) {
  const auto bad = [](const std::string& what) { return absl::InvalidArgumentError(what); };
  if (!IsQuantized(values.dtype)) {
    return bad(absl::StrCat("the values are ", status::View(Name(values.dtype)), ", and only 8-bit ones have scales"));
  }
  if (!IsScale(scales.dtype)) {
    return bad(absl::StrCat("the scales are ", status::View(Name(scales.dtype)), ", not f32, f16, bf16 or f8e8m0"));
  }
  if (!recipe::IsWideFloat(dtype)) {
    return bad(absl::StrCat("the result would be ", status::View(Name(dtype)), ", not f16, bf16, f32 or f64"));
  }
  const size_t rank = values.shape.size();
  if (block.empty()) return bad("a block needs sizes");
  if (block.size() > rank) {
    return bad(absl::StrCat("blocks of ", io::Shown(block), " have more dimensions than ", io::Shown(values.shape)));
  }
  Node node;
  node.kind = Node::Kind::kDequantize;
  node.dtype = dtype;
  node.shape = values.shape;
  node.blocks.assign(rank, 1);
  std::vector<int64_t> grid = values.shape;  // of the scales
  for (size_t d = rank - block.size(); d < rank; ++d) {
    const int64_t size = block[d - (rank - block.size())];
    if (size < 1 && size != -1) return bad(absl::StrCat(io::Shown(block), " are not sizes of a block"));
    const int64_t length = std::max<int64_t>(values.shape[d], 1);
    node.blocks[d] = size == -1 ? length : std::min(size, length);
    grid[d] = values.shape[d] == 0 ? 0 : (values.shape[d] - 1) / node.blocks[d] + 1;
  }
  if (!Fits(node.shape, dtype)) return bad("too many elements");
  if (WithoutOnes(grid) != WithoutOnes(scales.shape)) {
    return bad(absl::StrCat("the scales have shape ", io::Shown(scales.shape), ", and blocks of ", io::Shown(block),
                            " in ", io::Shown(values.shape), " need ", io::Shown(grid)));
  }
  node.inputs.push_back(std::move(values));
  node.inputs.push_back(scales.shape == grid ? std::move(scales) : Reshaped(std::move(scales), std::move(grid)));
  return node;
}

absl::StatusOr<Node> Multiply(Node input, double by) {
  if (!recipe::IsWideFloat(input.dtype) || input.dtype == DType::kF64) {
    return absl::InvalidArgumentError(
        absl::StrCat("the input is ", status::View(Name(input.dtype)), ", not f32, f16 or bf16"));
  }
  const auto scale = static_cast<float>(by);
  if (!std::isfinite(scale)) return absl::InvalidArgumentError(absl::StrCat(by, " is not a number that f32 has"));
  const std::vector<int64_t> shape = input.shape;
  if (shape.empty()) input = Reshaped(std::move(input), {1});  // one block of one element
  Node factor;
  factor.kind = Node::Kind::kConstant;
  factor.dtype = DType::kF32;
  factor.shape.assign(input.shape.size(), 1);
  factor.element.assign(reinterpret_cast<const char*>(&scale), sizeof(scale));
  Node node;
  node.kind = Node::Kind::kDequantize;
  node.dtype = input.dtype;
  node.shape = input.shape;
  for (const int64_t size : input.shape) node.blocks.push_back(std::max<int64_t>(size, 1));
  node.inputs.push_back(std::move(input));
  node.inputs.push_back(std::move(factor));
  return shape.empty() ? Reshaped(std::move(node), {}) : node;
}

ScaleBox ScalesOf(const Node& node, absl::Span<const int64_t> offset, absl::Span<const int64_t> size) {
  assert(std::find(size.begin(), size.end(), 0) == size.end());
  ScaleBox box;
  for (size_t d = 0; d < size.size(); ++d) {
    box.offset.push_back(offset[d] / node.blocks[d]);
    box.size.push_back((offset[d] + size[d] - 1) / node.blocks[d] - box.offset.back() + 1);
  }
  return box;
}

void VisitScaled(const Node& node, absl::Span<const int64_t> offset, absl::Span<const int64_t> size, const char* values,
                 const char* scales, absl::FunctionRef<void(absl::Span<const float> run, int64_t first)> take) {
  constexpr int64_t kMost = 1024;
  std::array<float, kMost> run;
  const DType dtype = node.inputs[0].dtype, scale_dtype = node.inputs[1].dtype;
  const ScaleBox box = ScalesOf(node, offset, size);
  const size_t last = size.size() - 1;       // values have a dimension, that of their blocks
  std::vector<int64_t> row(size.size(), 0);  // its index in the box; 0 in the last dimension
  for (int64_t first = 0;;) {
    int64_t scale_row = 0;  // the number of the first scale of the row
    for (size_t d = 0; d <= last; ++d) {
      const int64_t block = d < last ? (offset[d] + row[d]) / node.blocks[d] - box.offset[d] : 0;
      scale_row = scale_row * box.size[d] + block;
    }
    for (int64_t column = 0; column < size[last];) {
      const int64_t at = offset[last] + column, block = node.blocks[last];
      const int64_t count = std::min({size[last] - column, block - at % block, kMost});
      const float scale = ScaleAt(scale_dtype, scales, scale_row + at / block - box.offset[last]);
      recipe::Cast(dtype, DType::kF32, values + first * SizeOf(dtype), static_cast<size_t>(count), run.data());
      for (int64_t i = 0; i < count; ++i) run[i] *= scale;
      take(absl::MakeConstSpan(run.data(), static_cast<size_t>(count)), first);
      first += count;
      column += count;
    }
    size_t d = last;
    while (d > 0 && ++row[d - 1] == size[d - 1]) row[--d] = 0;
    if (d == 0) return;
  }
}

}  // namespace reshard::views
