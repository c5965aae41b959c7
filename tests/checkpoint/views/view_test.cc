// What is read of a view is what its expression means.
#include <algorithm>
#include <array>
#include <cstring>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "checkpoint/catalog/catalog_builder.h"
#include "checkpoint/formats/safetensors/format.h"
#include "checkpoint/views/lower.h"
#include "checkpoint/views/read_view.h"
#include "checkpoint/views/strided_box.h"
#include "tests/catch.h"
#include "tests/checkpoint/views/plain_views.h"

namespace reshard::testing {
namespace {

using Op = Expression::Op;

// Tensors in memory, and a catalog of them. An element is its number, in as many bytes as it has.
class Tensors {
 public:
  explicit Tensors(DType dtype) : dtype_(dtype) {}

  void Add(const std::string& name, const Shape& shape) {
    const auto first = static_cast<int64_t>(1000 * plain_.size());
    int64_t n = 0;
    plain_[name] = Plain::Of(shape, [&](const Shape&) { return first + n++; });
    order_.push_back(name);
  }
  const std::map<std::string, Plain>& plain() const { return plain_; }

  Catalog MakeCatalog() const {
    catalog::CatalogBuilder builder(safetensors::kFormat, "");
    for (const std::string& name : order_) {
      REQUIRE(builder.AddTensor(name, "x", dtype_, plain_.at(name).shape, false).ok());
    }
    return std::move(builder).BuildUnstored();
  }

  std::string Bytes(const Plain& tensor) const {
    std::string bytes;
    for (const int64_t element : tensor.elements) {
      std::array<int64_t, 2> whole = {element, 0};
      bytes.append(reinterpret_cast<const char*>(whole.data()), static_cast<size_t>(SizeOf(dtype_)));
    }
    return bytes;
  }

  absl::Status Read(int64_t tensor, absl::Span<const int64_t> offset, absl::Span<const int64_t> size,
                    absl::Span<char> out) const {
    const Plain& whole = plain_.at(order_[tensor]);
    const std::string bytes = Bytes(Plain::Of({size.begin(), size.end()}, [&](Shape index) {
      for (size_t d = 0; d < index.size(); ++d) index[d] += offset[d];
      return whole.at(index);
    }));
    REQUIRE(bytes.size() == out.size());
    std::memcpy(out.data(), bytes.data(), bytes.size());
    return absl::OkStatus();
  }

 private:
  const DType dtype_;
  std::map<std::string, Plain> plain_;
  std::vector<std::string> order_;
};

}  // namespace

TEST_CASE("a random view has what its expression means, box by box") {
  std::mt19937_64 random(Seed());
  const auto number = [&](int64_t least, int64_t most) {
    return std::uniform_int_distribution<int64_t>(least, most)(random);
  };
  constexpr int kCases = 5000;
  // Integers, so that a number that pads is one; of all sizes.
  constexpr DType kDTypes[] = {DType::kU8,  DType::kI8,  DType::kI16, DType::kU16,
                               DType::kI32, DType::kU32, DType::kI64, DType::kU64};
  for (int i = 0; i < kCases; ++i) {
    const DType dtype = kDTypes[i % 8];
    Tensors tensors(dtype);
    for (const char* kind : {"a", "b"}) {
      Shape shape;
      for (int64_t d = number(0, 4); d > 0; --d) shape.push_back(number(1, 7));
      for (const char* which : {".0", ".1", ".2"}) tensors.Add(std::string(kind) + which, shape);
    }
    const Expression expression = RandomExpressions(random(), tensors.plain()).Next(static_cast<int>(number(1, 5)));
    INFO(ToString(expression));
    const absl::StatusOr<views::Node> view = views::Lower(expression, tensors.MakeCatalog());
    REQUIRE(view.status().ToString() == "OK");
    const Plain wanted = Evaluate(expression, tensors.plain());
    REQUIRE(view->shape == wanted.shape);
    const auto reader = [&](int64_t tensor, absl::Span<const int64_t> offset, absl::Span<const int64_t> size,
                            absl::Span<char> out) { return tensors.Read(tensor, offset, size, out); };
    for (int box = 0; box < 3; ++box) {
      Shape offset, size;
      for (const int64_t length : wanted.shape) {
        offset.push_back(box == 0 ? 0 : number(0, length - 1));
        size.push_back(box == 0 ? length : number(1, length - offset.back()));
      }
      const std::string bytes = tensors.Bytes(Plain::Of(size, [&](Shape index) {
        for (size_t d = 0; d < index.size(); ++d) index[d] += offset[d];
        return wanted.at(index);
      }));
      std::string read(bytes.size(), '\x5a');
      REQUIRE(views::ReadView(*view, offset, size, reader, absl::MakeSpan(read)).ok());
      REQUIRE(read == bytes);
    }
  }
}

TEST_CASE("padding is of the value that is asked for, its sign included") {
  Tensors tensors(DType::kF32);
  tensors.Add("a", {1});
  Expression a, e;
  a.name = "a";
  e.op = Op::kPad;
  e.inputs = {a};
  e.end = 2;
  e.value = -0.0;
  e.sizes = {1};
  const absl::StatusOr<views::Node> view = views::Lower(e, tensors.MakeCatalog());
  REQUIRE(view.status().ToString() == "OK");
  CHECK(view->inputs[1].element == std::string("\0\0\0\x80", 4));
  e.sizes = {0};
  CHECK(views::Lower(e, tensors.MakeCatalog()).status().message().find("the input has [1] there") !=
        std::string_view::npos);
}

TEST_CASE("a view is read in as few boxes as its shapes allow") {
  Tensors tensors(DType::kU8);
  tensors.Add("a", {64, 32});
  tensors.Add("b", {64, 32});
  tensors.Add("rows", {4096});
  const Catalog catalog = tensors.MakeCatalog();
  const auto boxes = [&](const Expression& expression, const Shape& size) {
    const absl::StatusOr<views::Node> view = views::Lower(expression, catalog);
    REQUIRE(view.status().ToString() == "OK");
    int64_t count = 0;
    REQUIRE(views::VisitLeaves(*view, views::StridedBox::Of(Shape(size.size(), 0), size),
                               [&](const views::Node&, const views::StridedBox&, const views::Casts&) {
                                 ++count;
                                 return absl::OkStatus();
                               })
                .ok());
    return count;
  };
  Expression a, b;
  a.name = "a";
  b.name = "b";
  Expression e;
  e.op = Op::kConcatenate;
  e.inputs = {a, b};
  CHECK(boxes(e, {128, 32}) == 2);
  e.op = Op::kInterleave;
  e.count = 64;  // row by row
  CHECK(boxes(e, {128, 32}) == 2);
  e.dim = 1;
  e.count = 32;  // column by column
  CHECK(boxes(e, {64, 64}) == 2);
  e = {};
  e.op = Op::kPermuteForRope;
  e.count = 8;
  e.inputs = {a};
  CHECK(boxes(e, {64, 32}) == 1);
  e = {};
  e.op = Op::kTranspose;
  e.numbers = {0, 1};
  e.inputs = {a};
  CHECK(boxes(e, {32, 64}) == 1);
  e = {};
  e.op = Op::kReshape;
  e.numbers = {32, 64};
  e.inputs = {a};
  CHECK(boxes(e, {32, 64}) == 1);
  // Rows of another length: what begins and ends within a row stands alone.
  e.numbers = {128, 16};
  CHECK(boxes(e, {3, 16}) == 2);
}

TEST_CASE("of a box that is scattered only what is near is read with it") {
  // Every hundredth row of a tensor whose rows are long.
  Tensors tensors(DType::kU8);
  constexpr int64_t kRows = 10000, kLength = 5000;
  catalog::CatalogBuilder builder(safetensors::kFormat, "");
  REQUIRE(builder.AddTensor("x", "x", DType::kU8, Shape{kRows, kLength}, false).ok());
  const Catalog catalog = std::move(builder).BuildUnstored();
  Expression x, blocks, part;
  x.name = "x";
  part.op = Op::kDeinterleave;
  part.count = 100;
  part.sizes = {1, 99};
  part.inputs = {x};
  const absl::StatusOr<views::Node> view = views::Lower(part, catalog);
  REQUIRE(view.status().ToString() == "OK");
  REQUIRE(view->shape == Shape{100, kLength});
  int64_t bytes = 0;
  const auto reader = [&](int64_t, absl::Span<const int64_t>, absl::Span<const int64_t>, absl::Span<char> out) {
    bytes += static_cast<int64_t>(out.size());
    return absl::OkStatus();
  };
  std::string out(100 * kLength, '\0');
  REQUIRE(views::ReadView(*view, {0, 0}, {100, kLength}, reader, absl::MakeSpan(out)).ok());
  CHECK(bytes <= 4 * static_cast<int64_t>(out.size()));
}

TEST_CASE("what does not fit is refused, with the shapes") {
  Tensors tensors(DType::kF32);
  tensors.Add("a", {6, 4});
  tensors.Add("b", {5, 3});
  const Catalog catalog = tensors.MakeCatalog();
  Expression a, b;
  a.name = "a";
  b.name = "b";
  const auto refused = [&](Expression e) {
    const absl::Status status = views::Lower(e, catalog).status();
    CHECK(status.code() == absl::StatusCode::kInvalidArgument);
    return std::string(status.message());
  };
  const auto has = [](const std::string& text, const char* part) { return text.find(part) != std::string::npos; };
  Expression e;
  e.op = Op::kConcatenate;
  e.inputs = {a, b};
  CHECK(has(refused(e), "shapes [6, 4] and [5, 3] differ in more than dimension 0"));
  e.inputs = {a};
  e.sizes = {5};
  CHECK(has(refused(e), "sizes [5] make 5, not 6"));
  e = {};
  e.name = "c";
  CHECK(has(refused(e), "there is no tensor \"c\""));
  e = {};
  e.op = Op::kSplit;
  e.inputs = {a};
  e.sizes = {2, 1};
  e.in_ratio = true;
  e.part.number = 2;
  CHECK(has(refused(e), "there is no part 2 of 2"));
  e.dim = 1;
  CHECK(has(refused(e), "4 elements cannot be cut in the ratio [2, 1]"));
  e = {};
  e.op = Op::kReshape;
  e.inputs = {a};
  e.numbers = {5, -1};
  CHECK(has(refused(e), "is not a multiple of 5"));
  e.numbers = {int64_t{1} << 62, int64_t{1} << 62};
  CHECK(has(refused(e), "are not sizes"));
  e = {};
  e.op = Op::kPermute;
  e.inputs = {a};
  e.numbers = {0, 0};
  CHECK(has(refused(e), "dimension 0 appears twice"));
  e.numbers = {0};
  CHECK(has(refused(e), "1 dimensions for [6, 4]"));
  e = {};
  e.op = Op::kSlice;
  e.inputs = {a};
  e.end = 7;
  CHECK(has(refused(e), "[0, 7) is not within dimension 0 of [6, 4]"));
  e = {};
  e.op = Op::kUnstack;
  e.inputs = {a};
  e.part.number = 6;
  CHECK(has(refused(e), "there is no index 6 of dimension 0 of [6, 4]"));
  e = {};
  e.op = Op::kPad;
  e.inputs = {a};
  e.end = 5;
  CHECK(has(refused(e), "is longer than 5"));
  e = {};
  e.op = Op::kCast;
  e.inputs = {a};
  e.dtype = DType::kI32;
  CHECK(has(refused(e), "f32 elements cannot be cast to i32"));
  e.dtype = DType::kBF16;
  e.from = DType::kF16;
  CHECK(has(refused(e), "the input is f32"));
  e = {};
  e.op = Op::kDequantize;
  e.inputs = {a, b};
  e.numbers = {128, 128};
  e.dtype = DType::kBF16;
  CHECK(has(refused(e), "the values are f32, and only 8-bit ones have scales"));
  e = {};
  e.op = Op::kPermuteForRope;
  e.inputs = {a};
  e.count = 2;
  CHECK(has(refused(e), "is not a multiple of 4"));
  e = {};
  e.op = Op::kStack;
  CHECK(has(refused(e), "an operation without inputs"));
}

}  // namespace reshard::testing
