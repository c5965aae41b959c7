#include "tests/checkpoint/views/plain_views.h"

#include <algorithm>
#include <numeric>
#include <utility>

namespace reshard::testing {
namespace {

using Op = Expression::Op;

int64_t Count(const Shape& shape) {
  return std::accumulate(shape.begin(), shape.end(), int64_t{1}, std::multiplies<>());
}

size_t Dim(int64_t dim, size_t rank) { return static_cast<size_t>(dim < 0 ? dim + static_cast<int64_t>(rank) : dim); }

Plain Reshaped(Plain in, Shape shape) {
  const auto open = std::find(shape.begin(), shape.end(), -1);
  if (open != shape.end()) {
    *open = 1;
    *open = Count(in.shape) / Count(shape);
  }
  in.shape = std::move(shape);
  return in;
}

Plain Sliced(const Plain& in, size_t dim, int64_t begin, int64_t end) {
  Shape shape = in.shape;
  shape[dim] = end - begin;
  return Plain::Of(shape, [&](Shape index) {
    index[dim] += begin;
    return in.at(index);
  });
}

Plain Joined(const std::vector<Plain>& in, size_t dim) {
  Shape shape = in[0].shape;
  shape[dim] = 0;
  for (const Plain& each : in) shape[dim] += each.shape[dim];
  return Plain::Of(shape, [&](Shape index) {
    size_t i = 0;
    while (index[dim] >= in[i].shape[dim]) index[dim] -= in[i++].shape[dim];
    return in[i].at(index);
  });
}

Plain Permuted(const Plain& in, const std::vector<size_t>& dims) {
  Shape shape;
  for (const size_t d : dims) shape.push_back(in.shape[d]);
  return Plain::Of(shape, [&](const Shape& index) {
    Shape before(index.size());
    for (size_t d = 0; d < dims.size(); ++d) before[dims[d]] = index[d];
    return in.at(before);
  });
}

// [begin, end) of the part-th part.
std::pair<int64_t, int64_t> PartOf(const Expression& e, int64_t length) {
  const int64_t total = std::accumulate(e.sizes.begin(), e.sizes.end(), int64_t{0});
  const int64_t unit = e.in_ratio ? length / total : 1;
  int64_t begin = 0;
  for (int64_t i = 0; i < e.part.number; ++i) begin += unit * e.sizes[i];
  return {begin, begin + unit * e.sizes[e.part.number]};
}

}  // namespace

Plain Plain::Of(const Shape& shape, const std::function<int64_t(const Shape& index)>& element) {
  Plain out{shape, {}};
  const int64_t count = Count(shape);
  for (int64_t n = 0; n < count; ++n) {
    Shape index(shape.size());
    int64_t rest = n;
    for (size_t d = shape.size(); d-- > 0;) {
      index[d] = rest % shape[d];
      rest /= shape[d];
    }
    out.elements.push_back(element(index));
  }
  return out;
}

int64_t Plain::at(const Shape& index) const {
  int64_t n = 0;
  for (size_t d = 0; d < shape.size(); ++d) n = n * shape[d] + index[d];
  return elements.at(n);
}

Plain Evaluate(const Expression& e, const std::map<std::string, Plain>& tensors) {
  if (e.op == Op::kTensor) return tensors.at(e.name);
  std::vector<Plain> in;
  for (const Expression& input : e.inputs) in.push_back(Evaluate(input, tensors));
  const Plain& a = in[0];
  const size_t rank = a.shape.size();
  const size_t dim = Dim(e.dim, e.op == Op::kStack ? rank + 1 : rank);
  switch (e.op) {
    case Op::kTensor:
    case Op::kCast:
      return a;
    case Op::kConcatenate:
      return Joined(in, dim);
    case Op::kSplit: {
      const auto [begin, end] = PartOf(e, a.shape[dim]);
      return Sliced(a, dim, begin, end);
    }
    case Op::kChunk: {
      const int64_t length = a.shape[dim] / e.count;
      return Sliced(a, dim, e.part.number * length, (e.part.number + 1) * length);
    }
    case Op::kStack: {
      Shape shape = a.shape;
      shape.insert(shape.begin() + static_cast<ptrdiff_t>(dim), static_cast<int64_t>(in.size()));
      return Plain::Of(shape, [&](Shape index) {
        const auto i = static_cast<size_t>(index[dim]);
        index.erase(index.begin() + static_cast<ptrdiff_t>(dim));
        return in[i].at(index);
      });
    }
    case Op::kUnstack: {
      Shape shape = a.shape;
      shape.erase(shape.begin() + static_cast<ptrdiff_t>(dim));
      return Plain::Of(shape, [&](Shape index) {
        index.insert(index.begin() + static_cast<ptrdiff_t>(dim), e.part.number);
        return a.at(index);
      });
    }
    case Op::kTranspose: {
      std::vector<size_t> dims(rank);
      std::iota(dims.begin(), dims.end(), size_t{0});
      std::swap(dims[Dim(e.numbers[0], rank)], dims[Dim(e.numbers[1], rank)]);
      return Permuted(a, dims);
    }
    case Op::kPermute: {
      std::vector<size_t> dims;
      for (const int64_t d : e.numbers) dims.push_back(Dim(d, rank));
      return Permuted(a, dims);
    }
    case Op::kReshape:
      return Reshaped(a, e.numbers);
    case Op::kFlatten: {
      const size_t first = Dim(e.numbers[0], rank), last = Dim(e.numbers[1], rank);
      Shape shape(a.shape.begin(), a.shape.begin() + static_cast<ptrdiff_t>(first));
      shape.push_back(
          Count({a.shape.begin() + static_cast<ptrdiff_t>(first), a.shape.begin() + static_cast<ptrdiff_t>(last) + 1}));
      shape.insert(shape.end(), a.shape.begin() + static_cast<ptrdiff_t>(last) + 1, a.shape.end());
      return Reshaped(a, shape);
    }
    case Op::kUnflatten: {
      Shape shape(a.shape.begin(), a.shape.begin() + static_cast<ptrdiff_t>(dim));
      shape.insert(shape.end(), e.sizes.begin(), e.sizes.end());
      shape.insert(shape.end(), a.shape.begin() + static_cast<ptrdiff_t>(dim) + 1, a.shape.end());
      return Reshaped(a, shape);
    }
    case Op::kInterleave: {
      std::vector<Plain> blocks;
      for (int64_t b = 0; b < e.count; ++b) {
        for (const Plain& each : in) {
          const int64_t length = each.shape[dim] / e.count;
          blocks.push_back(Sliced(each, dim, b * length, (b + 1) * length));
        }
      }
      return Joined(blocks, dim);
    }
    case Op::kDeinterleave: {
      std::vector<Plain> parts;
      const int64_t length = a.shape[dim] / e.count;
      const auto [begin, end] = PartOf(e, length);
      for (int64_t b = 0; b < e.count; ++b) parts.push_back(Sliced(a, dim, b * length + begin, b * length + end));
      return Joined(parts, dim);
    }
    case Op::kPermuteForRope: {
      // Row 2i + j of a head becomes row i + j * half.
      const int64_t head = a.shape[0] / e.count, half = head / 2;
      return Plain::Of(a.shape, [&](Shape index) {
        const int64_t row = index[0] % head;
        index[0] += 2 * (row % half) + row / half - row;
        return a.at(index);
      });
    }
    case Op::kSlice: {
      const int64_t length = a.shape[dim], end = e.end.value_or(length);
      return Sliced(a, dim, e.begin < 0 ? e.begin + length : e.begin, end < 0 ? end + length : end);
    }
    case Op::kPad: {
      Shape shape = a.shape;
      shape[dim] = *e.end;
      return Plain::Of(shape, [&](const Shape& index) {
        return index[dim] < a.shape[dim] ? a.at(index) : static_cast<int64_t>(e.value);
      });
    }
    case Op::kDequantize:
      return Plain::Of(a.shape, [&](const Shape& index) {
        Shape block = index;
        for (size_t i = 0; i < e.numbers.size(); ++i) {
          const size_t d = rank - e.numbers.size() + i;
          block[d] = e.numbers[i] < 0 ? 0 : index[d] / e.numbers[i];
        }
        return a.at(index) * in[1].at(block);
      });
    case Op::kMultiply:
      return Plain::Of(a.shape, [&](const Shape& index) { return a.at(index) * static_cast<int64_t>(e.value); });
  }
  return a;
}

Shape RandomExpressions::Cut(int64_t length) {
  Shape sizes;
  for (int64_t left = length; left > 0;) {
    sizes.push_back(Number(1, left));
    left -= sizes.back();
  }
  return sizes;
}

Expression RandomExpressions::Unary(Expression input) {
  const Shape shape = ShapeOf(input);
  const auto rank = static_cast<int64_t>(shape.size());
  Expression e;
  e.inputs.push_back(std::move(input));
  const auto divisor = [&](int64_t length) {
    int64_t d = Number(1, length);
    while (length % d != 0) --d;
    return d;
  };
  if (rank == 0) {
    e.op = Op::kReshape;
    e.numbers = Shape(static_cast<size_t>(Number(0, 2)), 1);
    return e;
  }
  const int64_t dim = Number(0, rank - 1), length = shape[dim];
  e.dim = Number(0, 1) == 0 ? dim : dim - rank;
  switch (Number(0, 11)) {
    case 0:
    case 1: {
      e.op = Op::kSplit;
      e.sizes = Cut(length);
      e.part.number = Number(0, static_cast<int64_t>(e.sizes.size()) - 1);
      return e;
    }
    case 2:
      e.op = Op::kChunk;
      e.count = divisor(length);
      e.part.number = Number(0, e.count - 1);
      return e;
    case 3:
      e.op = Op::kUnstack;
      e.part.number = Number(0, length - 1);
      return e;
    case 4:
      e.op = Op::kTranspose;
      e.dim = 0;
      e.numbers = {dim, Number(-rank, rank - 1)};
      return e;
    case 5: {
      e.op = Op::kPermute;
      e.dim = 0;
      e.numbers.resize(rank);
      std::iota(e.numbers.begin(), e.numbers.end(), int64_t{0});
      std::shuffle(e.numbers.begin(), e.numbers.end(), random_);
      return e;
    }
    case 6: {
      // Sizes that have little to do with those before.
      e.op = Op::kReshape;
      e.dim = 0;
      int64_t left = Count(shape);
      while (left > 1 && e.numbers.size() < 4) {
        e.numbers.push_back(divisor(left));
        left /= e.numbers.back();
      }
      e.numbers.push_back(Number(0, 1) == 0 ? -1 : left);
      return e;
    }
    case 7:
      e.op = Op::kFlatten;
      e.dim = 0;
      e.numbers = {dim, Number(dim, rank - 1)};
      return e;
    case 8:
      e.op = Op::kUnflatten;
      e.sizes = {divisor(length), -1};
      return e;
    case 9: {
      e.op = Op::kDeinterleave;
      e.count = divisor(length);
      e.sizes = Cut(length / e.count);
      e.part.number = Number(0, static_cast<int64_t>(e.sizes.size()) - 1);
      return e;
    }
    case 10:
      if (shape[0] % 2 == 0) {
        e.op = Op::kPermuteForRope;
        e.dim = 0;
        e.count = divisor(shape[0] / 2);
        return e;
      }
      [[fallthrough]];
    default:
      if (Number(0, 1) == 0) {
        e.op = Op::kPad;
        e.end = length + Number(0, 3);
        e.value = static_cast<double>(Number(0, 100));
        return e;
      }
      e.op = Op::kSlice;
      e.begin = Number(0, length - 1);
      e.end = Number(e.begin + 1, length);
      if (Number(0, 1) == 0) e.begin -= length;
      if (*e.end < length && Number(0, 1) == 0) *e.end -= length;
      return e;
  }
}

// The same expression over other tensors of the same shapes.
static void Replace(Expression* e, const std::function<int64_t()>& which) {
  if (e->op == Op::kTensor) e->name.back() = static_cast<char>('0' + which());
  for (Expression& input : e->inputs) Replace(&input, which);
}

Expression RandomExpressions::Join(Expression input) {
  const Shape shape = ShapeOf(input);
  const auto rank = static_cast<int64_t>(shape.size());
  Expression e;
  for (int64_t i = Number(1, 3); i >= 0; --i) {
    Expression other = input;
    Replace(&other, [&] { return Number(0, 2); });
    e.inputs.push_back(std::move(other));
  }
  if (rank == 0 || Number(0, 2) == 0) {
    e.op = Op::kStack;
    e.dim = Number(-rank - 1, rank);
    return e;
  }
  const int64_t dim = Number(0, rank - 1), length = shape[dim];
  e.dim = dim;
  if (Number(0, 1) == 0) {
    e.op = Op::kInterleave;
    e.count = Number(1, length);
    while (length % e.count != 0) --e.count;
    return e;
  }
  e.op = Op::kConcatenate;
  for (Expression& each : e.inputs) {
    Expression shorter;
    shorter.op = Op::kSlice;
    shorter.dim = dim;
    shorter.end = Number(1, length);
    shorter.inputs.push_back(std::move(each));
    each = std::move(shorter);
  }
  return e;
}

Expression RandomExpressions::Next(int depth) {
  Expression e;
  auto tensor = tensors_.begin();
  std::advance(tensor, Number(0, static_cast<int64_t>(tensors_.size()) - 1));
  e.name = tensor->first;
  constexpr int64_t kMostElements = 2000;
  for (int d = 0; d < depth; ++d) {
    const bool is_large = Count(ShapeOf(e)) > kMostElements;
    e = !is_large && Number(0, 2) == 0 ? Join(std::move(e)) : Unary(std::move(e));
  }
  return e;
}

}  // namespace reshard::testing
