// Fingerprints: the same however a tensor lies on devices and in memory, another one for every change of it.
#include "reshard/runtime/fingerprint.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "reshard/layout/text.h"
#include "runtime/fingerprint/tensor_sum.h"
#include "tests/catch.h"

namespace reshard {
namespace {

using Random = std::mt19937_64;

int64_t Between(Random& random, int64_t least, int64_t most) {
  return least + static_cast<int64_t>(random() % static_cast<uint64_t>(most - least + 1));
}

// A whole tensor, row-major.
struct Whole {
  std::string name;
  DType dtype = DType::kF32;
  std::vector<int64_t> shape;
  std::vector<char> bytes;

  int64_t element() const { return SizeOf(dtype); }
};

Whole RandomWhole(Random& random, DType dtype, std::vector<int64_t> shape) {
  Whole whole{"layers.0.weight", dtype, std::move(shape), {}};
  int64_t size = SizeOf(dtype);
  for (const int64_t n : whole.shape) size *= n;
  for (int64_t i = 0; i < size; ++i) whole.bytes.push_back(static_cast<char>(random()));
  return whole;
}

// Every index in some slot, and copies.
Factor RandomSlots(Random& random, const AxisRef& axis, int64_t size) {
  std::vector<std::vector<int64_t>> slots(static_cast<size_t>(axis.size));
  for (int64_t index = 0; index < size; ++index) slots[random() % slots.size()].push_back(index);
  for (std::vector<int64_t>& mine : slots) {
    const int64_t copies = Between(random, 0, size - static_cast<int64_t>(mine.size()));
    for (int64_t i = 0; i < copies; ++i) mine.push_back(Between(random, 0, size - 1));
    if (random() % 2 == 0) std::shuffle(mine.begin(), mine.end(), random);
  }
  return Factor::Slots(axis, slots);
}

// A mesh of up to four axes, and a layout over it: axes whole or in parts, reflected, with blocks, unevenly, in slots.
Layout RandomLayout(Random& random, const std::vector<int64_t>& shape) {
  std::vector<Mesh::Axis> axes;
  const int64_t count = Between(random, 0, 4);
  for (int64_t a = 0; a < count; ++a) axes.push_back({absl::StrCat("a", a), Between(random, 1, 4)});
  const Mesh mesh = Mesh::Create(axes).value();
  std::vector<DimLayout> dims;
  for (const int64_t size : shape) dims.push_back({size, {}});
  for (int axis = 0; axis < mesh.num_axes() && !dims.empty(); ++axis) {
    const int64_t size = mesh.axis(axis).size;
    std::vector<AxisRef> parts = {{axis, 1, size}};
    if (size == 4 && random() % 2 == 0) parts = {{axis, 1, 2}, {axis, 2, 2}};
    for (const AxisRef& part : parts) {
      const size_t d = random() % (dims.size() + 1);
      if (d == dims.size()) continue;  // replicated
      std::vector<Factor>& factors = dims[d].factors;
      Factor factor;
      factor.axis = part;
      if (parts.size() == 1 && random() % 4 == 0) factor.kind = Factor::Kind::kReflected;
      factors.insert(factors.begin() + Between(random, 0, static_cast<int64_t>(factors.size())), factor);
      if (random() % 4 == 0) {
        Factor blocks;
        blocks.kind = Factor::Kind::kBlocks;
        blocks.blocks = Between(random, 1, 3);
        factors.insert(factors.begin() + Between(random, 0, static_cast<int64_t>(factors.size())), blocks);
      }
    }
  }
  for (DimLayout& dim : dims) {
    const bool whole_axis = dim.factors.size() == 1 && dim.factors[0].kind == Factor::Kind::kAxis &&
                            dim.factors[0].axis.size == mesh.axis(dim.factors[0].axis.axis).size;
    if (!whole_axis || dim.size == 0 || random() % 2 == 0) continue;
    dim.factors[0] = RandomSlots(random, dim.factors[0].axis, dim.size);
    break;  // a layout has one slot table at most
  }
  return Layout::Create(mesh, dims).value();
}

// Calls visit(indices within the fragment, offset of the element in the whole, in elements).
template <typename Visit>
void ForEachElement(const Layout& layout, int64_t position, const Visit& visit) {
  std::vector<std::vector<int64_t>> held;
  for (int d = 0; d < layout.rank(); ++d) {
    held.emplace_back();
    for (const Interval& interval : layout.Intervals(position, d)) {
      for (int64_t i = interval.begin; i < interval.end; ++i) held.back().push_back(i);
    }
    if (held.back().empty()) return;
  }
  std::vector<size_t> at(held.size(), 0);
  for (;;) {
    int64_t offset = 0;
    for (size_t d = 0; d < held.size(); ++d) offset = offset * layout.dim(static_cast<int>(d)).size + held[d][at[d]];
    visit(at, offset);
    size_t d = held.size();
    while (d > 0 && ++at[d - 1] == held[d - 1].size()) at[--d] = 0;
    if (d == 0) return;
  }
}

// The fingerprint of the whole as the sum over devices. Fragments lie in memory in a random order of dimensions, with
// gaps.
ContentFingerprint Over(const Whole& whole, const Layout& layout, Random& random) {
  ContentFingerprint sum;
  for (int64_t position = 0; position < layout.mesh().size(); ++position) {
    ConstTensorView view;
    view.dtype = whole.dtype;
    for (const int64_t n : layout.LocalShape(position)) view.shape.push_back(n);
    std::vector<size_t> order(view.shape.size());
    for (size_t d = 0; d < order.size(); ++d) order[d] = order.size() - 1 - d;
    if (random() % 2 == 0) std::shuffle(order.begin(), order.end(), random);
    view.strides.resize(view.shape.size());
    int64_t stride = random() % 3 == 0 ? 2 : 1;
    for (const size_t d : order) {
      view.strides[d] = stride;
      stride *= std::max<int64_t>(1, view.shape[d]) + (random() % 4 == 0 ? 1 : 0);
    }
    std::vector<char> memory(static_cast<size_t>((stride + 1) * whole.element()) + 1, 'x');
    char* const base = memory.data() + random() % 2;  // also where nothing is aligned
    view.data = base;
    ForEachElement(layout, position, [&](const std::vector<size_t>& at, int64_t offset) {
      int64_t place = 0;
      for (size_t d = 0; d < at.size(); ++d) place += static_cast<int64_t>(at[d]) * view.strides[d];
      std::memcpy(base + place * whole.element(), whole.bytes.data() + offset * whole.element(),
                  static_cast<size_t>(whole.element()));
    });
    const auto part = FingerprintOf(whole.name, view, layout, position);
    INFO(part.status());
    REQUIRE(part.ok());
    sum += *part;
  }
  return sum;
}

ContentFingerprint OnOne(const Whole& whole) {
  std::vector<DimLayout> dims;
  for (const int64_t size : whole.shape) dims.push_back({size, {}});
  const Layout layout = Layout::Create(Mesh::Create({}).value(), dims).value();
  return *FingerprintOf(whole.name, DenseView(whole.bytes.data(), whole.dtype, whole.shape), layout, 0);
}

const std::vector<DType> kDTypes = {DType::kBool, DType::kU8,  DType::kBF16, DType::kF16,
                                    DType::kF32,  DType::kF64, DType::kC64,  DType::kC128};

TEST_CASE("a fingerprint is that of the contents, over any mesh and in any layout and order") {
  Random random(testing::Seed());
  for (int round = 0; round < 25; ++round) {
    std::vector<Whole> tensors;
    ContentFingerprint wanted;
    for (const DType dtype : kDTypes) {
      std::vector<int64_t> shape;
      const int64_t rank = Between(random, 0, 4);
      for (int64_t d = 0; d < rank; ++d) shape.push_back(Between(random, round % 5 == 0 ? 0 : 1, 13));
      if (round % 8 == 7) shape = {Between(random, 1, 5), Between(random, 1000, 3000)};    // beyond a block
      if (round % 8 == 5) shape = {Between(random, 100, 300), Between(random, 100, 300)};  // beyond a tile
      if (round % 8 == 6) shape = {Between(random, 8, 30), 2, 2048};  // by columns, rows are not brought together
      if (round % 8 == 3) shape = {Between(random, 60, 200), 2, Between(random, 60, 200)};
      tensors.push_back(RandomWhole(random, dtype, shape));
      absl::StrAppend(&tensors.back().name, ".", tensors.size());
      wanted += OnOne(tensors.back());
    }
    std::shuffle(tensors.begin(), tensors.end(), random);
    ContentFingerprint sum;
    for (const Whole& whole : tensors) {
      const Layout layout = RandomLayout(random, whole.shape);
      INFO(ToString(layout.mesh()) << " " << ToString(layout) << " " << Name(whole.dtype));
      const ContentFingerprint one = Over(whole, layout, random);
      CHECK(one == OnOne(whole));
      sum += one;
    }
    CHECK(sum == wanted);
  }
}

TEST_CASE("how a tensor is cut into pieces makes no difference") {
  Random random(testing::Seed());
  const Whole whole = RandomWhole(random, DType::kU8, {3 * fingerprint::kBlockBytes + 7});
  const auto size = static_cast<int64_t>(whole.bytes.size());
  fingerprint::TensorSum at_once({1, 2});
  at_once.Add(whole.bytes.data(), 0, size);
  for (const int64_t most : {1, 3, 4, 5, 100, 5000}) {
    std::vector<std::pair<int64_t, int64_t>> pieces;
    for (int64_t at = 0; at < size;) {
      const int64_t here = std::min(size - at, Between(random, 1, most));
      pieces.emplace_back(at, here);
      at += here;
    }
    std::shuffle(pieces.begin(), pieces.end(), random);
    fingerprint::TensorSum sum({1, 2});
    for (const auto& [at, here] : pieces) sum.Add(whole.bytes.data() + at, at, here);
    CHECK(sum.sum() == at_once.sum());
  }
}

TEST_CASE("runs are added as if one by one") {
  Random random(testing::Seed());
  for (int i = 0; i < 500; ++i) {
    // Some of whole chunks, some not; within blocks and across their ends; next to each other and far apart.
    const int64_t unit = random() % 2 == 0 ? fingerprint::kChunkBytes : 1;
    const int64_t size = unit * Between(random, 0, random() % 4 == 0 ? fingerprint::kBlockBytes : 100);
    fingerprint::Runs runs;
    runs.offset = unit * Between(random, 0, 3000);
    runs.size = size;
    runs.offset_step = size + unit * Between(random, 0, random() % 2 == 0 ? 3 : 2000);
    runs.count = Between(random, 0, 50);
    // In memory they may lie in the other direction, too.
    runs.step = (random() % 2 == 0 ? 1 : -1) * (size + Between(random, 0, 5));
    std::vector<char> memory(static_cast<size_t>((runs.count + 1) * std::abs(runs.step) + size) + 1);
    for (char& byte : memory) byte = static_cast<char>(random());
    runs.bytes = memory.data() + (runs.step < 0 ? -runs.count * runs.step : 0);
    fingerprint::TensorSum at_once({1, 2}), one_by_one({1, 2});
    at_once.Add(runs);
    for (int64_t run = 0; run < runs.count; ++run) {
      one_by_one.Add(runs.bytes + run * runs.step, runs.offset + run * runs.offset_step, size);
    }
    INFO(runs.count << " runs of " << size << " bytes from " << runs.offset << ", every " << runs.offset_step);
    CHECK(at_once.sum() == one_by_one.sum());
  }
}

TEST_CASE("columns are added as if element by element") {
  Random random(testing::Seed());
  for (int i = 0; i < 200; ++i) {
    fingerprint::Columns columns;
    columns.element = int64_t{1} << Between(random, 0, 2);
    const int64_t of_chunk = fingerprint::kChunkBytes / columns.element;
    // Within blocks and across their ends; fewer rows than go at once, and more than sums are kept for.
    columns.columns = of_chunk * Between(random, 1, i % 8 == 0 ? 1100 : 30);
    columns.rows = Between(random, 0, i % 8 == 1 ? 3 * fingerprint::kRowsOfColumns : 40);
    columns.offset = fingerprint::kChunkBytes * Between(random, 0, 3000);
    columns.offset_step = fingerprint::kBlockBytes * Between(random, 1, 3);
    // In memory columns may lie in the other direction, too.
    columns.step = (random() % 2 == 0 ? 1 : -1) * (columns.rows * columns.element + Between(random, 0, 5));
    std::vector<char> memory(static_cast<size_t>((columns.columns + 1) * std::abs(columns.step)) + 1);
    for (char& byte : memory) byte = static_cast<char>(random());
    columns.bytes = memory.data() + (columns.step < 0 ? -columns.columns * columns.step : 0);
    fingerprint::TensorSum at_once({1, 2}), one_by_one({1, 2});
    at_once.Add(columns);
    for (int64_t row = 0; row < columns.rows; ++row) {
      for (int64_t column = 0; column < columns.columns; ++column) {
        one_by_one.Add(columns.bytes + column * columns.step + row * columns.element,
                       columns.offset + row * columns.offset_step + column * columns.element, columns.element);
      }
    }
    INFO(columns.columns << " columns of " << columns.rows << " elements of " << columns.element << " bytes from "
                         << columns.offset << ", rows every " << columns.offset_step);
    CHECK(at_once.sum() == one_by_one.sum());
  }
}

TEST_CASE("a matrix by columns has the fingerprint of its rows, however long these are") {
  Random random(testing::Seed());
  for (const DType dtype : kDTypes) {
    for (const int64_t row_bytes : {2048, 4096, 4112, 6144, 8192}) {
      const int64_t rows = Between(random, 2, 50), columns = row_bytes / SizeOf(dtype);
      const Whole whole = RandomWhole(random, dtype, {rows, columns});
      std::vector<char> by_columns(whole.bytes.size());
      const auto element = static_cast<size_t>(whole.element());
      for (int64_t row = 0; row < rows; ++row) {
        for (int64_t column = 0; column < columns; ++column) {
          std::memcpy(&by_columns[static_cast<size_t>(column * rows + row) * element],
                      &whole.bytes[static_cast<size_t>(row * columns + column) * element], element);
        }
      }
      ConstTensorView view = DenseView(static_cast<const void*>(by_columns.data()), dtype, whole.shape);
      view.strides = {1, rows};
      const Layout layout = Layout::Create(Mesh::Create({}).value(), {{rows, {}}, {columns, {}}}).value();
      INFO(rows << " rows of " << row_bytes << " bytes, " << Name(dtype));
      CHECK(*FingerprintOf(whole.name, view, layout, 0) == OnOne(whole));
    }
  }
}

TEST_CASE("every flipped bit is seen") {
  Random random(testing::Seed());
  for (const DType dtype : kDTypes) {
    Whole whole = RandomWhole(random, dtype, {7, 1500});
    const ContentFingerprint before = OnOne(whole);
    const Layout layout = RandomLayout(random, whole.shape);
    for (int i = 0; i < 150; ++i) {
      const size_t byte = random() % whole.bytes.size();
      const auto bit = static_cast<char>(1 << (random() % 8));
      whole.bytes[byte] = static_cast<char>(whole.bytes[byte] ^ bit);
      const ContentFingerprint after = i % 50 == 0 ? Over(whole, layout, random) : OnOne(whole);
      // Either half sees it by itself.
      CHECK((after.low != before.low && after.high != before.high));
      whole.bytes[byte] = static_cast<char>(whole.bytes[byte] ^ bit);
    }
    CHECK(OnOne(whole) == before);
  }
}

// A tensor of zeros with ones of one element on the places given: what differs is only where they are.
ContentFingerprint WithOnes(DType dtype, const std::vector<int64_t>& shape, const std::vector<int64_t>& places,
                            char content) {
  Whole whole{"identity", dtype, shape, {}};
  int64_t elements = 1;
  for (const int64_t n : shape) elements *= n;
  whole.bytes.assign(static_cast<size_t>(elements * whole.element()), 0);
  // The most significant byte: its changes are the ones that a product modulo 2^64 could lose.
  for (const int64_t place : places) {
    whole.bytes[(place + 1) * whole.element() - 1] = content;
  }
  return OnOne(whole);
}

TEST_CASE("elements and rows that change places are seen") {
  Random random(testing::Seed());
  for (const DType dtype : kDTypes) {
    Whole whole = RandomWhole(random, dtype, {9, 1100});
    const ContentFingerprint before = OnOne(whole);
    const auto element = static_cast<size_t>(whole.element());
    const auto swap_back_and_forth = [&](size_t a, size_t b, size_t bytes) {
      if (std::memcmp(&whole.bytes[a], &whole.bytes[b], bytes) == 0) return;
      const auto swap = [&] {
        std::swap_ranges(whole.bytes.begin() + static_cast<std::ptrdiff_t>(a),
                         whole.bytes.begin() + static_cast<std::ptrdiff_t>(a + bytes),
                         whole.bytes.begin() + static_cast<std::ptrdiff_t>(b));
      };
      swap();
      const ContentFingerprint after = OnOne(whole);
      CHECK((after.low != before.low && after.high != before.high));
      swap();
    };
    for (int i = 0; i < 100; ++i) swap_back_and_forth(random() % 9900 * element, random() % 9900 * element, element);
    // Also by exactly one or more blocks, and rows as wholes.
    const size_t block = static_cast<size_t>(fingerprint::kBlockBytes);
    for (size_t at = 0; at + block + element <= whole.bytes.size(); at += 256) {
      swap_back_and_forth(at, at + block, element);
    }
    const size_t row = 1100 * element;
    for (size_t r = 1; r < 9; ++r) swap_back_and_forth(0, r * row, row);
  }
  // Rows of an identity matrix, one block each, change places: four corners of a rectangle.
  for (const char content : {char{1}, static_cast<char>(0x80)}) {
    const std::vector<int64_t> shape = {8, 1024};
    std::set<std::string> seen;
    for (int64_t a = 0; a < 8; ++a) {
      for (int64_t b = a; b < 8; ++b) {
        std::vector<int64_t> places;
        for (int64_t row = 0; row < 8; ++row) places.push_back(row * 1024 + (row == a ? b : row == b ? a : row));
        seen.insert(ToString(WithOnes(DType::kF32, shape, places, content)));
      }
    }
    CHECK(seen.size() == 1 + 8 * 7 / 2);
  }
}

TEST_CASE("name, dtype and shape count, and a tensor without elements does") {
  Random random(testing::Seed());
  const Whole whole = RandomWhole(random, DType::kF32, {4, 6});
  const ContentFingerprint before = OnOne(whole);
  Whole other = whole;
  other.name = "layers.1.weight";
  CHECK(OnOne(other) != before);
  other = whole;
  other.dtype = DType::kI32;
  CHECK(OnOne(other) != before);
  other = whole;
  other.shape = {6, 4};
  CHECK(OnOne(other) != before);
  Whole none{"empty", DType::kF32, {0}, {}};
  CHECK(OnOne(none) != ContentFingerprint());
  none.shape = {0, 2};
  CHECK(OnOne(none) != OnOne(Whole{"empty", DType::kF32, {0}, {}}));
  // All zeros of one length and of another.
  const Whole zeros{"zeros", DType::kU8, {5}, std::vector<char>(5, 0)};
  const Whole more{"zeros", DType::kU8, {6}, std::vector<char>(6, 0)};
  CHECK(OnOne(zeros) != OnOne(more));
}

TEST_CASE("a fingerprint is the same on every machine and in every version") {
  Whole whole{"w", DType::kBF16, {3, 2000}, {}};
  for (int i = 0; i < 12000; ++i) whole.bytes.push_back(static_cast<char>(i * 7));
  CHECK(ToString(OnOne(whole)) == "18f66b8ccad0d57c9d77047214123601");
}

TEST_CASE("the keys of a block's chunks are odd and all different") {
  for (const auto& keys : {fingerprint::kChunkKeys.low, fingerprint::kChunkKeys.high}) {
    const std::set<uint32_t> all(keys, keys + fingerprint::kBlockChunks);
    CHECK(all.size() == static_cast<size_t>(fingerprint::kBlockChunks));
    CHECK(std::all_of(all.begin(), all.end(), [](uint32_t key) { return key % 2 == 1; }));
  }
}

TEST_CASE("what has no fingerprint is refused") {
  const std::vector<float> data(64);
  const auto of = [&](const std::string& text, std::vector<int64_t> shape, int64_t position) {
    const Layout layout = ParseLayout(text, std::string("{X:4}")).value();
    return FingerprintOf("w", DenseView(static_cast<const void*>(data.data()), DType::kF32, shape), layout, position)
        .status();
  };
  CHECK(of("[<X>8, 4]", {2, 4}, 3).ok());
  CHECK(of("[8, 4] sum<X>", {8, 4}, 0).message().find("partial") != std::string::npos);
  CHECK(of("[<X>8, 4]", {4, 2}, 0).message().find("[4, 2]") != std::string::npos);
  CHECK_FALSE(of("[<X>8, 4]", {8}, 0).ok());
  CHECK_FALSE(of("[<X>8, 4]", {2, 4}, 4).ok());
  CHECK_FALSE(of("[<X>8, 4]", {2, 4}, -1).ok());
  CHECK(of("[<X>2]", {0}, 3).ok());
  const Layout huge = ParseLayout("[<X>4, 1152921504606846976]", std::string("{X:4}")).value();
  const auto view = DenseView(static_cast<const void*>(nullptr), DType::kF32, std::vector<int64_t>{1, 0});
  CHECK(FingerprintOf("w", view, huge, 0).status().message().find("too large") != std::string::npos);
  ConstTensorView elsewhere = DenseView(static_cast<const void*>(data.data()), DType::kF32, std::vector<int64_t>{2, 4});
  elsewhere.memory = MemoryKind::kCuda;
  const Layout layout = ParseLayout("[<X>8, 4]", std::string("{X:4}")).value();
  CHECK(FingerprintOf("w", elsewhere, layout, 0).status().code() == absl::StatusCode::kUnimplemented);
}

}  // namespace
}  // namespace reshard
