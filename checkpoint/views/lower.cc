#include "checkpoint/views/lower.h"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <numeric>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "checkpoint/io/show.h"
#include "checkpoint/recipe/cast.h"
#include "checkpoint/recipe/operations.h"
#include "checkpoint/views/reshaped.h"
#include "checkpoint/views/scaled.h"
#include "reshard/layout/checked.h"
#include "status/macros.h"
#include "status/view.h"

namespace reshard::views {
namespace {

using Op = Expression::Op;
using Shape = std::vector<int64_t>;

constexpr size_t kMostDims = 64;

absl::Status Bad(const std::string& what) { return absl::InvalidArgumentError(what); }

// The product, or nothing if it, or its bytes, are too many.
std::optional<int64_t> Elements(const Shape& shape, DType dtype) {
  std::optional<int64_t> elements = 1;
  bool is_empty = false;
  for (const int64_t size : shape) {
    if (size == 0) is_empty = true;
    if (size > 0 && elements) elements = CheckedMul(*elements, size);
  }
  if (!elements || !CheckedMul(*elements, SizeOf(dtype))) return std::nullopt;
  return is_empty ? 0 : elements;
}

absl::StatusOr<size_t> DimOf(int64_t dim, size_t rank) {
  const auto signed_rank = static_cast<int64_t>(rank);
  if (dim < -signed_rank || dim >= signed_rank) {
    return Bad(absl::StrCat("there is no dimension ", dim, " of ", rank));
  }
  return static_cast<size_t>(dim < 0 ? dim + signed_rank : dim);
}

absl::StatusOr<Node> Reshape(Node input, Shape shape) {
  if (shape.size() > kMostDims) return Bad(absl::StrCat("more than ", kMostDims, " dimensions"));
  const std::optional<int64_t> before = Elements(input.shape, input.dtype), after = Elements(shape, input.dtype);
  if (!before || !after || *before != *after) {
    return Bad(absl::StrCat("shape ", io::Shown(input.shape), " does not have as many elements as ", io::Shown(shape)));
  }
  if (shape == input.shape) return input;
  return Reshaped(std::move(input), std::move(shape));
}

absl::StatusOr<Node> Permute(Node input, std::vector<size_t> dims) {
  bool same = true;
  for (size_t d = 0; d < dims.size(); ++d) same &= dims[d] == d;
  if (same) return input;
  Node node;
  node.kind = Node::Kind::kPermute;
  node.dtype = input.dtype;
  for (const size_t d : dims) node.shape.push_back(input.shape[d]);
  node.dims = std::move(dims);
  node.inputs.push_back(std::move(input));
  return node;
}

absl::StatusOr<Node> Swap(Node input, size_t a, size_t b) {
  std::vector<size_t> dims(input.shape.size());
  std::iota(dims.begin(), dims.end(), size_t{0});
  std::swap(dims[a], dims[b]);
  return Permute(std::move(input), std::move(dims));
}

absl::StatusOr<Node> Slice(Node input, size_t dim, int64_t begin, int64_t end) {
  if (begin == 0 && end == input.shape[dim]) return input;
  Node node;
  node.kind = Node::Kind::kSlice;
  node.dtype = input.dtype;
  node.shape = input.shape;
  node.shape[dim] = end - begin;
  node.dim = dim;
  node.begin = begin;
  node.inputs.push_back(std::move(input));
  return node;
}

absl::StatusOr<Node> Concatenate(std::vector<Node> inputs, size_t dim) {
  if (inputs.size() == 1) return std::move(inputs[0]);
  Node node;
  node.kind = Node::Kind::kConcatenate;
  node.dtype = inputs[0].dtype;
  node.shape = inputs[0].shape;
  node.shape[dim] = 0;
  node.dim = dim;
  for (const Node& input : inputs) {
    Shape others = input.shape;
    if (others.size() == node.shape.size()) others[dim] = node.shape[dim];
    if (others != node.shape) {
      return Bad(absl::StrCat("shapes ", io::Shown(inputs[0].shape), " and ", io::Shown(input.shape),
                              " differ in more than dimension ", dim));
    }
    if (input.dtype != node.dtype) {
      return Bad(absl::StrCat("elements of types ", status::View(Name(node.dtype)), " and ",
                              status::View(Name(input.dtype)), "; cast one of them"));
    }
    const std::optional<int64_t> end = CheckedAdd(node.shape[dim], input.shape[dim]);
    if (!end) return Bad("too many elements");
    node.shape[dim] = *end;
    node.ends.push_back(*end);
  }
  if (!Elements(node.shape, node.dtype)) return Bad("too many elements");
  node.inputs = std::move(inputs);
  return node;
}

// Dimension `dim` as dimensions of `sizes`, of which one may be -1.
absl::StatusOr<Node> Unflatten(Node input, size_t dim, Shape sizes) {
  int64_t known = 1;
  std::optional<size_t> open;
  for (size_t i = 0; i < sizes.size(); ++i) {
    if (sizes[i] == -1 && !open) {
      open = i;
      continue;
    }
    const std::optional<int64_t> product = sizes[i] < 0 ? std::nullopt : CheckedMul(known, sizes[i]);
    if (!product) return Bad(absl::StrCat(io::Shown(sizes), " are not sizes"));
    known = *product;
  }
  const int64_t length = input.shape[dim];
  if (open && (known == 0 || length % known != 0)) {
    return Bad(absl::StrCat("dimension ", dim, " of ", io::Shown(input.shape), " is not a multiple of ", known));
  }
  if (open) sizes[*open] = length / known;
  if (!open && known != length) {
    return Bad(
        absl::StrCat("sizes ", io::Shown(sizes), " do not make dimension ", dim, " of ", io::Shown(input.shape)));
  }
  Shape shape = input.shape;
  shape.erase(shape.begin() + static_cast<ptrdiff_t>(dim));
  shape.insert(shape.begin() + static_cast<ptrdiff_t>(dim), sizes.begin(), sizes.end());
  return Reshape(std::move(input), std::move(shape));
}

absl::StatusOr<Node> Flatten(Node input, size_t first, size_t last) {
  Shape shape = input.shape;
  int64_t length = 1;
  for (size_t d = first; d <= last; ++d) {
    const std::optional<int64_t> product = CheckedMul(length, shape[d]);
    if (!product) return Bad("too many elements");
    length = *product;
  }
  shape.erase(shape.begin() + static_cast<ptrdiff_t>(first) + 1, shape.begin() + static_cast<ptrdiff_t>(last) + 1);
  shape[first] = length;
  return Reshape(std::move(input), std::move(shape));
}

// The sizes of parts that have `length` elements in all; the expression's sizes may be proportions.
absl::StatusOr<Shape> SizesOf(const Expression& expression, int64_t length) {
  Shape sizes = expression.sizes;
  int64_t total = 0;
  for (const int64_t size : sizes) {
    const std::optional<int64_t> sum = size < 0 ? std::nullopt : CheckedAdd(total, size);
    if (!sum) return Bad(absl::StrCat(io::Shown(sizes), " are not sizes"));
    total = *sum;
  }
  if (!expression.in_ratio && total != length) {
    return Bad(absl::StrCat("sizes ", io::Shown(sizes), " make ", total, ", not ", length));
  }
  if (expression.in_ratio) {
    if (total == 0 || length % total != 0) {
      return Bad(absl::StrCat(length, " elements cannot be cut in the ratio ", io::Shown(sizes)));
    }
    for (int64_t& size : sizes) size *= length / total;
  }
  return sizes;
}

// Concatenates, and compares the inputs with the sizes that the expression says they have, if any.
absl::StatusOr<Node> Join(const Expression& expression, std::vector<Node> inputs, size_t dim) {
  Shape lengths;
  for (const Node& input : inputs) lengths.push_back(dim < input.shape.size() ? input.shape[dim] : 0);
  ASSIGN_OR_RETURN(Node whole, Concatenate(std::move(inputs), dim));
  if (expression.sizes.empty()) return whole;
  ASSIGN_OR_RETURN(const Shape sizes, SizesOf(expression, whole.shape[dim]));
  if (sizes == lengths) return whole;
  return Bad(
      absl::StrCat("the inputs have ", io::Shown(lengths), " along dimension ", dim, ", not ", io::Shown(sizes)));
}

absl::StatusOr<Node> TakePart(Node input, size_t dim, const Shape& sizes, int64_t part) {
  if (part < 0 || part >= static_cast<int64_t>(sizes.size())) {
    return Bad(absl::StrCat("there is no part ", part, " of ", sizes.size()));
  }
  const auto end = sizes.begin() + part;
  const int64_t begin = std::accumulate(sizes.begin(), end, int64_t{0});
  return Slice(std::move(input), dim, begin, begin + *end);
}

absl::Status CheckFrom(const Shape& said, const Shape& is) {
  if (said.empty() || said == is) return absl::OkStatus();
  return Bad(absl::StrCat("the input has ", io::Shown(is), " there"));
}

class Lowering {
 public:
  explicit Lowering(const Catalog& catalog) : catalog_(catalog) {}

  absl::StatusOr<Node> Of(const Expression& expression) const {
    if (expression.op == Op::kTensor) return Tensor(expression.name);
    std::vector<Node> inputs;
    for (const Expression& input : expression.inputs) {
      ASSIGN_OR_RETURN(Node node, Of(input));
      inputs.push_back(std::move(node));
    }
    if (inputs.empty()) return Bad("an operation without inputs");
    absl::StatusOr<Node> node = Operation(expression, std::move(inputs));
    if (node.ok()) return node;
    return Bad(absl::StrCat(recipe::Brief(expression), ": ", node.status().message()));
  }

  absl::StatusOr<int64_t> NumParts(const Expression& expression) const {
    if (const std::optional<int64_t> fixed = recipe::FixedParts(expression)) {
      return *fixed >= 1 ? absl::StatusOr<int64_t>(*fixed) : Bad(absl::StrCat("there are no ", *fixed, " chunks"));
    }
    ASSIGN_OR_RETURN(const Node input, Of(expression.inputs[0]));
    ASSIGN_OR_RETURN(const size_t dim, DimOf(expression.dim, input.shape.size()));
    return input.shape[dim];
  }

 private:
  absl::StatusOr<Node> Tensor(const std::string& name) const {
    const Catalog::Tensor* const found = catalog_.FindTensor(name);
    if (found == nullptr) return Bad(absl::StrCat("there is no tensor ", io::Shown(name)));
    if (!found->dtype) {
      return Bad(absl::StrCat("tensor ", io::Shown(name), " has elements of type ", io::Shown(found->stored_dtype),
                              ", which operations do not take"));
    }
    return TensorNode(catalog_, found - catalog_.tensors().data());
  }

  static absl::StatusOr<Node> Operation(const Expression& e, std::vector<Node> inputs) {
    Node& input = inputs[0];
    const size_t rank = input.shape.size();
    switch (e.op) {
      case Op::kTensor:
        break;
      case Op::kConcatenate: {
        ASSIGN_OR_RETURN(const size_t dim, DimOf(e.dim, rank));
        return Join(e, std::move(inputs), dim);
      }
      case Op::kSplit: {
        ASSIGN_OR_RETURN(const size_t dim, DimOf(e.dim, rank));
        ASSIGN_OR_RETURN(const Shape sizes, SizesOf(e, input.shape[dim]));
        return TakePart(std::move(input), dim, sizes, e.part.number);
      }
      case Op::kChunk: {
        ASSIGN_OR_RETURN(const size_t dim, DimOf(e.dim, rank));
        if (e.count < 1 || input.shape[dim] % e.count != 0) {
          return Bad(
              absl::StrCat("dimension ", dim, " of ", io::Shown(input.shape), " has no ", e.count, " equal parts"));
        }
        if (e.part.number < 0 || e.part.number >= e.count) {
          return Bad(absl::StrCat("there is no part ", e.part.number, " of ", e.count));
        }
        const int64_t length = input.shape[dim] / e.count;
        return Slice(std::move(input), dim, e.part.number * length, (e.part.number + 1) * length);
      }
      case Op::kStack: {
        ASSIGN_OR_RETURN(const size_t dim, DimOf(e.dim, rank + 1));
        for (Node& each : inputs) {
          Shape shape = each.shape;
          if (shape.size() != rank) return Bad("inputs of different rank");
          shape.insert(shape.begin() + static_cast<ptrdiff_t>(dim), 1);
          ASSIGN_OR_RETURN(each, Reshape(std::move(each), std::move(shape)));
        }
        return Concatenate(std::move(inputs), dim);
      }
      case Op::kUnstack: {
        ASSIGN_OR_RETURN(const size_t dim, DimOf(e.dim, rank));
        const int64_t part = e.part.number;
        if (part < 0 || part >= input.shape[dim]) {
          return Bad(absl::StrCat("there is no index ", part, " of dimension ", dim, " of ", io::Shown(input.shape)));
        }
        ASSIGN_OR_RETURN(Node one, Slice(std::move(input), dim, part, part + 1));
        Shape shape = one.shape;
        shape.erase(shape.begin() + static_cast<ptrdiff_t>(dim));
        return Reshape(std::move(one), std::move(shape));
      }
      case Op::kTranspose: {
        if (e.numbers.size() != 2) return Bad("two dimensions are needed");
        ASSIGN_OR_RETURN(const size_t a, DimOf(e.numbers[0], rank));
        ASSIGN_OR_RETURN(const size_t b, DimOf(e.numbers[1], rank));
        return Swap(std::move(input), a, b);
      }
      case Op::kPermute: {
        std::vector<size_t> dims;
        for (const int64_t dim : e.numbers) {
          ASSIGN_OR_RETURN(const size_t d, DimOf(dim, rank));
          if (std::find(dims.begin(), dims.end(), d) != dims.end()) {
            return Bad(absl::StrCat("dimension ", dim, " appears twice"));
          }
          dims.push_back(d);
        }
        if (dims.size() != rank) return Bad(absl::StrCat(dims.size(), " dimensions for ", io::Shown(input.shape)));
        return Permute(std::move(input), std::move(dims));
      }
      case Op::kReshape: {
        RETURN_IF_ERROR(CheckFrom(e.sizes, input.shape));
        const std::optional<int64_t> all = Elements(input.shape, input.dtype);
        ASSIGN_OR_RETURN(Node flat, Reshape(std::move(input), {all.value_or(0)}));
        return Unflatten(std::move(flat), 0, e.numbers);
      }
      case Op::kFlatten: {
        if (e.numbers.size() != 2) return Bad("two dimensions are needed");
        ASSIGN_OR_RETURN(const size_t first, DimOf(e.numbers[0], rank));
        ASSIGN_OR_RETURN(const size_t last, DimOf(e.numbers[1], rank));
        if (first > last) return Bad("the first dimension comes after the last one");
        RETURN_IF_ERROR(CheckFrom(e.sizes, {input.shape.begin() + static_cast<ptrdiff_t>(first),
                                            input.shape.begin() + static_cast<ptrdiff_t>(last) + 1}));
        return Flatten(std::move(input), first, last);
      }
      case Op::kUnflatten: {
        ASSIGN_OR_RETURN(const size_t dim, DimOf(e.dim, rank));
        return Unflatten(std::move(input), dim, e.sizes);
      }
      case Op::kInterleave: {
        ASSIGN_OR_RETURN(const size_t dim, DimOf(e.dim, rank));
        if (e.count < 1) return Bad(absl::StrCat("there are no ", e.count, " blocks"));
        for (Node& each : inputs) {
          if (each.shape.size() != rank) return Bad("inputs of different rank");
          ASSIGN_OR_RETURN(each, Unflatten(std::move(each), dim, {e.count, -1}));
        }
        ASSIGN_OR_RETURN(Node blocks, Join(e, std::move(inputs), dim + 1));
        return Flatten(std::move(blocks), dim, dim + 1);
      }
      case Op::kDeinterleave: {
        ASSIGN_OR_RETURN(const size_t dim, DimOf(e.dim, rank));
        if (e.count < 1) return Bad(absl::StrCat("there are no ", e.count, " blocks"));
        ASSIGN_OR_RETURN(Node blocks, Unflatten(std::move(input), dim, {e.count, -1}));
        ASSIGN_OR_RETURN(const Shape sizes, SizesOf(e, blocks.shape[dim + 1]));
        ASSIGN_OR_RETURN(Node part, TakePart(std::move(blocks), dim + 1, sizes, e.part.number));
        return Flatten(std::move(part), dim, dim + 1);
      }
      case Op::kPermuteForRope: {
        if (rank == 0) return Bad("there is no dimension of heads");
        if (e.count < 1) return Bad(absl::StrCat("there are no ", e.count, " heads"));
        ASSIGN_OR_RETURN(Node heads, Unflatten(std::move(input), 0, {e.count, -1, 2}));
        ASSIGN_OR_RETURN(Node swapped, Swap(std::move(heads), 1, 2));
        return Flatten(std::move(swapped), 0, 2);
      }
      case Op::kSlice: {
        ASSIGN_OR_RETURN(const size_t dim, DimOf(e.dim, rank));
        const int64_t length = input.shape[dim];
        const int64_t asked = e.end.value_or(length);
        const int64_t begin = e.begin < 0 ? e.begin + length : e.begin;
        const int64_t end = asked < 0 ? asked + length : asked;
        if (begin < 0 || end < begin || end > length) {
          return Bad(absl::StrCat("[", e.begin, ", ", asked, ") is not within dimension ", dim, " of ",
                                  io::Shown(input.shape)));
        }
        return Slice(std::move(input), dim, begin, end);
      }
      case Op::kPad: {
        ASSIGN_OR_RETURN(const size_t dim, DimOf(e.dim, rank));
        const int64_t to = e.end.value_or(-1);
        RETURN_IF_ERROR(CheckFrom(e.sizes, {input.shape[dim]}));
        if (to < input.shape[dim]) {
          return Bad(absl::StrCat("dimension ", dim, " of ", io::Shown(input.shape), " is longer than ", to));
        }
        if (to == input.shape[dim]) return std::move(input);
        return Pad(std::move(input), dim, to, e.value);
      }
      case Op::kCast: {
        if (e.from && *e.from != input.dtype) {
          return Bad(absl::StrCat("the input is ", status::View(Name(input.dtype))));
        }
        return CastTo(std::move(input), e.dtype);
      }
      case Op::kDequantize: {
        if (inputs.size() != 2) return Bad("values and scales are needed");
        return Dequantize(std::move(inputs[0]), std::move(inputs[1]), e.numbers, e.dtype);
      }
      case Op::kMultiply:
        return Multiply(std::move(input), e.value);
    }
    return absl::InternalError("unknown operation");
  }

  static absl::StatusOr<Node> Pad(Node input, size_t dim, int64_t to, double value) {
    Node constant;
    constant.kind = Node::Kind::kConstant;
    constant.dtype = input.dtype;
    constant.shape = input.shape;
    constant.shape[dim] = to - input.shape[dim];
    constant.element.assign(static_cast<size_t>(SizeOf(input.dtype)), '\0');
    if (value != 0 || std::signbit(value)) {
      const auto whole = static_cast<int64_t>(std::clamp(value, -0x1p62, 0x1p62));
      if (recipe::CheckCast(DType::kF64, input.dtype).ok()) {
        recipe::Cast(DType::kF64, input.dtype, &value, 1, constant.element.data());
      } else if (recipe::CheckCast(DType::kI64, input.dtype).ok() && static_cast<double>(whole) == value) {
        recipe::Cast(DType::kI64, input.dtype, &whole, 1, constant.element.data());
        int64_t back = 0;
        recipe::Cast(input.dtype, DType::kI64, constant.element.data(), 1, &back);
        if (back != whole) return Bad(absl::StrCat(value, " is no ", status::View(Name(input.dtype))));
      } else {
        return Bad(absl::StrCat(value, " is not an element of type ", status::View(Name(input.dtype))));
      }
    }
    std::vector<Node> inputs;
    inputs.push_back(std::move(input));
    inputs.push_back(std::move(constant));
    return Concatenate(std::move(inputs), dim);
  }

  const Catalog& catalog_;
};

}  // namespace

Node TensorNode(const Catalog& catalog, int64_t tensor) {
  const Catalog::Tensor& found = catalog.tensors()[tensor];
  assert(found.dtype.has_value());
  Node node;
  node.dtype = *found.dtype;
  node.shape.assign(found.shape.begin(), found.shape.end());
  node.tensor = tensor;
  return node;
}

absl::StatusOr<Node> CastTo(Node input, DType dtype) {
  RETURN_IF_ERROR(recipe::CheckCast(input.dtype, dtype));
  if (input.dtype == dtype) return input;
  if (!Elements(input.shape, dtype)) return Bad("too many elements");
  Node node;
  node.kind = Node::Kind::kCast;
  node.dtype = dtype;
  node.shape = input.shape;
  node.inputs.push_back(std::move(input));
  return node;
}

absl::StatusOr<Node> Lower(const Expression& expression, const Catalog& catalog) {
  return Lowering(catalog).Of(expression);
}

absl::StatusOr<int64_t> NumParts(const Expression& expression, const Catalog& catalog) {
  return Lowering(catalog).NumParts(expression);
}

}  // namespace reshard::views
