// Bad input through the C++ API: a status with a one-line reason, never a crash, never a wrap-around.
#include <limits>
#include <memory>
#include <random>

#include "absl/strings/str_cat.h"
#include "reshard/layout/notation.h"
#include "reshard/layout/text.h"
#include "reshard/planner/planner.h"
#include "reshard/planner/report.h"
#include "reshard/planner/traffic.h"
#include "tests/catch.h"
#include "tests/layouts.h"

namespace reshard {
namespace {

using testing::LayoutOf;
using testing::MeshOf;

constexpr int64_t kHuge = std::numeric_limits<int64_t>::max();

void Refused(const absl::Status& status, absl::StatusCode code = absl::StatusCode::kInvalidArgument) {
  INFO(status);
  CHECK(status.code() == code);
  const std::string message(status.message());
  CHECK(message.substr(0, message.find('\n')).size() > 5);
  CHECK(message.size() < 4000);
}

Factor AxisFactor(int axis, int64_t pre, int64_t size) {
  Factor factor;
  factor.axis = {axis, pre, size};
  return factor;
}

Factor DigitFactor(int64_t digit) {
  Factor factor;
  factor.kind = Factor::Kind::kBlocks;
  factor.blocks = digit;
  return factor;
}

Factor SizesFactor(int axis, int64_t size, std::vector<int64_t> sizes) {
  Factor factor = AxisFactor(axis, 1, size);
  factor.kind = Factor::Kind::kSizes;
  factor.sizes = std::move(sizes);
  return factor;
}

}  // namespace

TEST_CASE("meshes that cannot be are refused") {
  using Axes = std::vector<Mesh::Axis>;
  for (const Axes& axes : std::vector<Axes>{{{"X", 0}},
                                            {{"X", -1}},
                                            {{"X", kHuge}},
                                            {{"X", kHuge}, {"Y", kHuge}},
                                            {{"X", 2}, {"X", 2}},
                                            {{"", 2}},
                                            {{"2X", 2}},
                                            {{"X Y", 2}},
                                            {{std::string("X\0", 2), 2}},
                                            {{"\xff", 2}},
                                            {{"X", kMaxDevices}, {"Y", 2}}}) {
    Refused(Mesh::Create(axes).status());
  }
  Refused(Mesh::Create({{"X", 2}}, -1).status());
  Refused(Mesh::Create({{"X", 2}}, kHuge).status());
  Refused(Mesh::Create({{"X", 2}}, kMaxDeviceId - 1).status());
  CHECK(Mesh::Create({{"X", 2}}, kMaxDeviceId - 2).ok());
  for (const std::vector<int64_t>& ids :
       std::vector<std::vector<int64_t>>{{}, {0}, {0, 1, 2}, {0, 0}, {0, -1}, {0, kHuge}}) {
    Refused(Mesh::Create({{"X", 2}}, ids).status());
  }
}

TEST_CASE("layouts that cannot be are refused") {
  const auto mesh = MeshOf("{X:4,Y:2}");
  const auto refused = [&](std::vector<DimLayout> dims, std::optional<Partial> partial = std::nullopt) {
    Refused(Layout::Create(mesh, std::move(dims), std::move(partial)).status());
  };
  refused({{-1, {}}});
  refused({{std::numeric_limits<int64_t>::min(), {}}});
  refused({{kHuge, {}}, {2, {}}});
  refused({{int64_t{1} << 32, {}}, {int64_t{1} << 32, {}}});
  refused(std::vector<DimLayout>(kMaxRank + 1, DimLayout{1, {}}));
  for (const int axis : {-1, 2, std::numeric_limits<int>::max(), std::numeric_limits<int>::min()}) {
    refused({{4, {AxisFactor(axis, 1, 4)}}});
    refused({{4, {}}}, Partial{ReduceOp::kSum, {{axis, 1, 4}}});
  }
  for (const int64_t pre : {int64_t{0}, int64_t{-1}, int64_t{3}, int64_t{4}, kHuge})
    refused({{4, {AxisFactor(0, pre, 2)}}});
  for (const int64_t size : {int64_t{0}, int64_t{-2}, int64_t{3}, int64_t{8}, kHuge})
    refused({{4, {AxisFactor(0, 1, size)}}});
  refused({{4, {AxisFactor(0, 1, 4), AxisFactor(0, 1, 4)}}});
  refused({{4, {AxisFactor(0, 1, 4)}}, {4, {AxisFactor(0, 2, 2)}}});
  refused({{4, {AxisFactor(0, 1, 4)}}}, Partial{ReduceOp::kSum, {{0, 1, 2}}});
  refused({{4, {}}}, Partial{ReduceOp::kSum, {{0, 1, 4}, {0, 1, 4}}});
  refused({{4, {DigitFactor(0)}}});
  refused({{4, {DigitFactor(-1)}}});
  refused({{4, {DigitFactor(kHuge)}}});
  refused({{kHuge, {DigitFactor(1 << 20), DigitFactor(2)}}});
  refused({{kHuge, {DigitFactor(int64_t{1} << 32), DigitFactor(int64_t{1} << 32)}}});
  refused({{4, {SizesFactor(0, 4, {})}}});
  refused({{4, {SizesFactor(0, 4, {1, 1, 1})}}});
  refused({{4, {SizesFactor(0, 4, {1, 1, 1, 2})}}});
  refused({{4, {SizesFactor(0, 4, {-1, 3, 1, 1})}}});
  refused({{4, {SizesFactor(0, 4, {kHuge, kHuge, 3, 3})}}});
  const auto nothing_partial = Layout::Create(mesh, {{4, {}}}, Partial{ReduceOp::kSum, {}});
  REQUIRE(nothing_partial.ok());
  CHECK(ToString(*nothing_partial) == "[4]");
}

TEST_CASE("the largest legal sizes are no trouble") {
  const auto mesh = MeshOf("{X:4,Y:2}");
  const Layout layout = LayoutOf("[<X>9223372036854775807]", "{X:4,Y:2}");
  CHECK(layout.num_elements() == kHuge);
  CHECK(layout.LocalShape(0) == std::vector<int64_t>{int64_t{1} << 61});
  CHECK(layout.LocalShape(7) == std::vector<int64_t>{(int64_t{1} << 61) - 1});
  CHECK(ParseLayout(ToString(layout), layout.mesh()).ok());
  Refused(MakePlan({layout, LayoutOf("[9223372036854775807]", "{X:4,Y:2}"), DType::kC128}).status());
  Refused(MakePlan({layout, LayoutOf("[9223372036854775807]", "{X:4,Y:2}"), DType::kI8}).status());
}

TEST_CASE("problems that cannot be are refused") {
  const Layout one = LayoutOf("[<X>4]", "{X:2}");
  Refused(MakePlan({one, LayoutOf("[5]", "{X:2}"), DType::kI8}).status());
  Refused(MakePlan({one, LayoutOf("[4, 1]", "{X:2}"), DType::kI8}).status());
  Refused(MakePlan({one, LayoutOf("[]", "{X:2}"), DType::kI8}).status());
  Refused(MakePlan({one, LayoutOf("[4] sum<X>", "{X:2}"), DType::kI8}).status(), absl::StatusCode::kUnimplemented);
  PlanOptions options;
  options.memory_limit_bytes = 1;
  Refused(MakePlan({one, LayoutOf("[4]", "{X:2}"), DType::kI8}, options).status(),
          absl::StatusCode::kResourceExhausted);
  options.memory_limit_bytes = -1;
  CHECK(!MakePlan({one, LayoutOf("[4]", "{X:2}"), DType::kI8}, options).ok());
  options = {};
  options.ops = OpSet::None();
  Refused(MakePlan({one, LayoutOf("[4]", "{X:2}"), DType::kI8}, options).status(),
          absl::StatusCode::kFailedPrecondition);
  options = {};
  options.topology.levels.clear();
  CHECK(!MakePlan({one, LayoutOf("[4]", "{X:2}"), DType::kI8}, options).ok());
  for (const int64_t nics : {int64_t{-1}, int64_t{3}}) {  // of domains of 2
    options.topology.levels = {{2, 1'000'000'000, 1000, 0}, {0, 1'000'000'000, 1000, nics}};
    Refused(MakePlan({one, LayoutOf("[4]", "{X:2}"), DType::kI8}, options).status(),
            absl::StatusCode::kInvalidArgument);
  }
  for (const Op op : {Op::kReduceScatter, Op::kAllReduce}) {
    Refused(TransferSchedule::Create(op, one, LayoutOf("[4]", "{X:2}@2")).status());
  }
  Refused(TransferSchedule::Create(Op::kExchange, one, LayoutOf("[5]", "{X:2}")).status());
}

TEST_CASE("long and strange text is refused in one short message") {
  const auto mesh = MeshOf("{X:4,Y:2}");
  for (const std::string& text : std::vector<std::string>{
           std::string(size_t{1} << 20, '<'), std::string(size_t{1} << 20, '['), std::string(size_t{1} << 20, ' '),
           std::string(size_t{1} << 20, '9'), std::string(size_t{1} << 20, '\0'), std::string(size_t{1} << 20, '\xff'),
           "[" + std::string(size_t{1} << 20, '<'), "{" + std::string(size_t{1} << 20, '{'), std::string("[4]\0", 4),
           std::string("{X:2}\0", 6), "\n\n\n[Q", "[4]\r\n]"}) {
    Refused(ParseMesh(text).status());
    Refused(ParseLayout(text, mesh).status());
    Refused(ParseLayoutRule(text, mesh, {4}).status());
    Refused(Topology::FromJson(text, "t").status());
    for (const Notation notation : {Notation::kDTensor, Notation::kJax, Notation::kShardy, Notation::kHlo}) {
      const absl::Status status = ImportLayout(notation, text, mesh, {4}).status();
      Refused(status,
              absl::IsUnimplemented(status) ? absl::StatusCode::kUnimplemented : absl::StatusCode::kInvalidArgument);
    }
  }
  Refused(ParseLayoutRule("[*, *]", mesh, {4}).status());
  Refused(ParseLayoutRule("[5]", mesh, {4}).status());
  Refused(ParseLayoutRule("[*]", mesh, {-4}).status());
  Refused(ParseLayoutRule("[..., ...]", mesh, {4}).status());
  Refused(ErrorAt(std::string(size_t{1} << 20, '<'), size_t{1} << 19, "an error in the middle"));
  Refused(ErrorAt("", 1000, "an error behind the end"));
}

namespace {

// Valid text with a few bytes changed, dropped, doubled or swapped.
std::string Mutated(std::string text, std::mt19937_64& random) {
  static const std::string alphabet = "[]<>{}(),:@=~* 0123456789XYZsumavg.\xff\n";
  const auto below = [&](size_t n) { return static_cast<size_t>(random() % n); };
  for (size_t edits = 1 + below(3); edits > 0; --edits) {
    const size_t at = below(text.size() + 1);
    switch (below(5)) {
      case 0:
        text.insert(at, 1, alphabet[below(alphabet.size())]);
        break;
      case 1:
        if (at < text.size()) text.erase(at, 1 + below(3));
        break;
      case 2:
        if (at < text.size()) text[at] = alphabet[below(alphabet.size())];
        break;
      case 3:
        text.insert(at, text.substr(below(text.size() + 1), 8));
        break;
      default:
        if (at < text.size()) std::swap(text[at], text[below(text.size())]);
    }
  }
  return text;
}

}  // namespace

TEST_CASE("damaged text is refused or means what it prints") {
  std::mt19937_64 random(testing::Seed());
  const auto mesh = MeshOf("{X:4,Y:2,Z:3}");
  const std::vector<std::string> meshes = {"{X:4,Y:2}", "{X:2}@7", "{X:2,Y:2}@[3,1,0,2]", "{}", "{a.b:4}"};
  const std::vector<std::string> layouts = {"[32<X,Y>256, 128]",          "[<X:(2)2,2,~Y>64]",
                                            "[<Z=[1,2,3]>6, 4] sum<X>",   "[]",
                                            "[<2,~X>7, 0] max<Y,X:(1)2>", "[{X}8, <>4]"};
  int accepted = 0;
  for (int i = 0; i < 20000; ++i) {
    const std::string mesh_text = Mutated(meshes[static_cast<size_t>(i) % meshes.size()], random);
    const std::string layout_text = Mutated(layouts[static_cast<size_t>(i) % layouts.size()], random);
    INFO(mesh_text << " | " << layout_text);
    if (const auto parsed = ParseMesh(mesh_text); parsed.ok()) {
      const auto again = ParseMesh(ToString(*parsed));
      REQUIRE(again.ok());
      REQUIRE(*again == *parsed);
      ++accepted;
    } else {
      REQUIRE(absl::IsInvalidArgument(parsed.status()));
    }
    if (const auto parsed = ParseLayout(layout_text, mesh); parsed.ok()) {
      const auto again = ParseLayout(ToString(*parsed), mesh);
      REQUIRE(again.ok());
      REQUIRE(*again == *parsed);
      ++accepted;
    } else {
      REQUIRE(absl::IsInvalidArgument(parsed.status()));
    }
  }
  CHECK(accepted > 1000);
}

}  // namespace reshard
