// Boxes of layouts, cut and shared out, and finding chunks by box: against counting element by element.
#include "checkpoint/catalog/boxes.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <numeric>
#include <vector>

#include "checkpoint/catalog/catalog_builder.h"
#include "checkpoint/formats/dcp/format.h"
#include "checkpoint/source/chunk_index.h"
#include "reshard/layout/text.h"
#include "tests/catch.h"
#include "tests/property.h"

namespace reshard {
namespace {

Layout Parse(const std::string& mesh, const std::string& layout) {
  return ParseLayout(layout, ParseMesh(mesh).value()).value();
}

int64_t Elements(const std::vector<int64_t>& size) {
  return std::accumulate(size.begin(), size.end(), int64_t{1}, std::multiplies<>());
}

// Row-major numbers of the elements of a box.
std::vector<int64_t> Numbers(const std::vector<int64_t>& offset, const std::vector<int64_t>& size,
                             const std::vector<int64_t>& shape) {
  std::vector<int64_t> numbers;
  for (int64_t n = 0; n < Elements(size); ++n) {
    int64_t rest = n;
    int64_t number = 0;
    int64_t stride = 1;
    for (size_t d = shape.size(); d-- > 0;) {
      number += (offset[d] + rest % size[d]) * stride;
      rest /= size[d];
      stride *= shape[d];
    }
    numbers.push_back(number);
  }
  return numbers;
}

bool Holds(const Layout& layout, int64_t device, const catalog::StoredBox& box) {
  const int64_t position = layout.mesh().Position(device).value();
  for (int d = 0; d < layout.rank(); ++d) {
    const auto k = static_cast<size_t>(d);
    const std::vector<Interval> intervals = layout.Intervals(position, d);
    if (std::none_of(intervals.begin(), intervals.end(), [&](const Interval& interval) {
          return interval.begin <= box.offset[k] && box.offset[k] + box.size[k] <= interval.end;
        })) {
      return false;
    }
  }
  return true;
}

struct Case {
  const char* mesh;
  const char* layout;
  size_t boxes;
};

const Case kCases[] = {
    {"{X:4}", "[<X>8, 3]", 4},           {"{X:4}", "[8, 3]", 1},
    {"{X:2,Y:3}", "[<Y,X>13, <2>5]", 6}, {"{X:2,Y:3}", "[<Y>13, <X>5]", 6},
    {"{X:4}", "[<2,~X>16]", 7},  // the middle chunks of a zigzag are neighbours on one device
    {"{X:8}", "[<X:(2)2>9, 4]", 2},      {"{X:4}", "[<X>3]", 3},
    {"{X:4}@[7,5,3,1]", "[<X>4, 2]", 4}, {"{X:4}", "[]", 1},
    {"{X:4}", "[<X>0, 5]", 1},           {"{X:2,Y:2,Z:2}", "[<X=[1,6]>7, <2,Y>6]", 8},
};

TEST_CASE("the boxes of a layout hold every element once, at devices that hold them") {
  for (const Case& c : kCases) {
    INFO(c.mesh << " " << c.layout);
    const Layout layout = Parse(c.mesh, c.layout);
    catalog::BoxMaker maker;
    std::vector<catalog::StoredBox> boxes;
    REQUIRE(maker.Add(layout, DType::kF32, &boxes).ok());
    CHECK(boxes.size() == c.boxes);
    std::vector<int> seen(static_cast<size_t>(layout.num_elements()), 0);
    for (const catalog::StoredBox& box : boxes) {
      for (const int64_t number : Numbers(box.offset, box.size, layout.shape())) ++seen[number];
      if (layout.num_elements() > 0) CHECK(Holds(layout, box.device, box));
    }
    CHECK(std::all_of(seen.begin(), seen.end(), [](int n) { return n == 1; }));
    CHECK(std::is_sorted(boxes.begin(), boxes.end(),
                         [](const catalog::StoredBox& a, const catalog::StoredBox& b) { return a.offset < b.offset; }));
  }
}

TEST_CASE("replicas share the storing") {
  catalog::BoxMaker maker;
  std::map<int64_t, int64_t> bytes;
  for (int i = 0; i < 40; ++i) {
    std::vector<catalog::StoredBox> boxes;
    REQUIRE(maker.Add(Parse("{X:2,Y:4}", "[<X>64]"), DType::kF32, &boxes).ok());
    for (const catalog::StoredBox& box : boxes) bytes[box.device] += 4 * Elements(box.size);
  }
  REQUIRE(bytes.size() == 8);
  for (const auto& [device, stored] : bytes) CHECK(stored == 40 * 64 * 4 / 8);
}

TEST_CASE("what cannot be stored is refused") {
  catalog::BoxMaker maker;
  std::vector<catalog::StoredBox> boxes;
  CHECK(absl::IsInvalidArgument(maker.Add(Parse("{X:2}", "[4] sum<X>"), DType::kF32, &boxes)));
  const Layout many = Parse("{X:2,Y:2}", "[<65536,X>131072, <65536,Y>131072]");
  CHECK(absl::IsResourceExhausted(maker.Add(many, DType::kU8, &boxes)));
}

TEST_CASE("large boxes are cut into runs of rows") {
  const catalog::StoredBox box{{3, 5, 7}, {4, 6, 10}, 2};
  for (const int64_t most : {1, 4, 39, 40, 41, 120, 239, 240, 500, 959, 960, 5000}) {
    INFO("at most " << most);
    const std::vector<catalog::StoredBox> parts = catalog::CutBox(box, 4, most);
    std::vector<int64_t> numbers;
    for (const catalog::StoredBox& part : parts) {
      CHECK((4 * Elements(part.size) <= most || Elements(part.size) == 1));
      CHECK(part.device == 2);
      for (const int64_t number : Numbers(part.offset, part.size, {20, 20, 20})) numbers.push_back(number);
    }
    CHECK(numbers == Numbers(box.offset, box.size, {20, 20, 20}));
    CHECK((most < 960 || parts.size() == 1));
  }
}

TEST_CASE("chunks are found by box") {
  rc::prop("every chunk that overlaps the box, and no other", [] {
    const auto pick = [](int64_t n) { return *rc::gen::inRange<int64_t>(0, n); };
    const auto rank = static_cast<size_t>(pick(4));
    std::vector<int64_t> shape;
    std::vector<std::vector<int64_t>> cuts;
    for (size_t d = 0; d < rank; ++d) {
      shape.push_back(1 + pick(12));
      cuts.push_back({0, shape.back()});
      for (int64_t i = pick(4); i > 0; --i) cuts.back().push_back(pick(shape.back() + 1));
      std::sort(cuts.back().begin(), cuts.back().end());
    }
    catalog::CatalogBuilder builder(dcp::kFormat, RESHARD_SOURCE_DIR);
    RC_ASSERT(builder.AddFile("README.md").ok());
    RC_ASSERT(builder.AddTensor("t", "torch.float32", DType::kF32, shape, false).ok());
    std::vector<std::pair<std::vector<int64_t>, std::vector<int64_t>>> boxes;
    std::vector<size_t> at(rank, 0);
    for (bool more = true; more;) {
      std::vector<int64_t> offset(rank);
      std::vector<int64_t> size(rank);
      for (size_t d = 0; d < rank; ++d) {
        offset[d] = cuts[d][at[d]];
        size[d] = cuts[d][at[d] + 1] - offset[d];
      }
      boxes.emplace_back(offset, size);
      more = false;
      for (size_t d = rank; d-- > 0 && !more;) {
        more = ++at[d] + 1 < cuts[d].size();
        if (!more) at[d] = 0;
      }
    }
    for (size_t i = boxes.size(); i > 1; --i) std::swap(boxes[i - 1], boxes[pick(static_cast<int64_t>(i))]);
    for (size_t i = 0; i < boxes.size(); ++i) {
      RC_ASSERT(builder.AddChunk(boxes[i].first, boxes[i].second, {0, static_cast<int64_t>(i), 0}).ok());
    }
    const absl::StatusOr<Catalog> catalog = std::move(builder).Build();
    RC_ASSERT(catalog.ok());
    const Catalog::Tensor& tensor = catalog->tensors()[0];
    const source::ChunkIndex index(*catalog, tensor);
    std::vector<int64_t> offset(rank);
    std::vector<int64_t> size(rank);
    for (size_t d = 0; d < rank; ++d) {
      offset[d] = pick(shape[d]);
      size[d] = 1 + pick(shape[d] - offset[d]);
    }
    std::vector<int64_t> wanted;
    for (int64_t i = 0; i < tensor.num_chunks; ++i) {
      const Catalog::Chunk chunk = catalog->chunk(tensor, i);
      bool overlaps = true;
      for (size_t d = 0; d < rank; ++d) {
        overlaps = overlaps && std::max(offset[d], chunk.offset[d]) <
                                   std::min(offset[d] + size[d], chunk.offset[d] + chunk.size[d]);
      }
      if (overlaps) wanted.push_back(i);
    }
    std::vector<int64_t> found = index.Overlapping(offset, size);
    std::sort(found.begin(), found.end());
    RC_ASSERT(found == wanted);
  });
}

}  // namespace
}  // namespace reshard
