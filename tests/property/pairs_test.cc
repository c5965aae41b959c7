// A fixed sample of ordered layout pairs through the planner, every plan executed and counted again by the oracle. The
// full sweep over plain layouts is the test tagged [slow].
#include <map>
#include <memory>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "tests/catch.h"
#include "tests/property/problems.h"

namespace reshard::testing {
namespace {

// Judges `count` problems; the first that fails is shrunk and shown. At least `planned` of them must have a plan.
void Sample(const Flavour& flavour, uint64_t stream, int count, int planned) {
  int plans = 0;
  for (int i = 0; i < count; ++i) {
    Choices choices(Seed() + stream * 1000003 + static_cast<uint64_t>(i));
    const Verdict verdict = Judge(MakeProblem(choices, flavour));
    if (verdict.outcome == Outcome::kPlanned) ++plans;
    if (verdict.outcome != Outcome::kWrong) continue;
    const auto fails = [&](const std::vector<uint8_t>& bytes) {
      Choices again(bytes);
      return Judge(MakeProblem(again, flavour)).outcome == Outcome::kWrong;
    };
    Choices simplest(Shrink(choices.taken(), fails));
    const RandomProblem problem = MakeProblem(simplest, flavour);
    FAIL("seed " << Seed() << ", problem " << i << ", shrunk:\n" << problem.Text() << "\n" << Judge(problem).text);
  }
  INFO(plans << " of " << count << " problems have a plan");
  CHECK(plans >= planned);
}

}  // namespace

TEST_CASE("sampled pairs of plain layouts, even and uneven") {
  Sample({}, 1, 5000, 5000);
  Sample({.uneven = true}, 2, 10000, 10000);
}

TEST_CASE("sampled pairs of layouts with sub-axes, digits, reflected axes and explicit sizes") {
  Sample({.uneven = true, .sub_axes = true, .digits = true, .sizes = true}, 3, 15000, 15000);
}

TEST_CASE("sampled pairs with partial values in the source") {
  Sample({.partial = true}, 4, 5000, 4800);
  Sample({.uneven = true, .sub_axes = true, .digits = true, .sizes = true, .partial = true}, 5, 5000, 4800);
}

TEST_CASE("sampled pairs between meshes") {
  Sample({.uneven = true, .sub_axes = true, .digits = true, .sizes = true, .two_meshes = true}, 6, 10000, 10000);
}

TEST_CASE("sampled pairs with slot tables on either side") {
  Sample({.uneven = true, .slots = true}, 18, 5000, 5000);
  Sample({.uneven = true, .sub_axes = true, .digits = true, .sizes = true, .slots = true, .two_meshes = true}, 19, 5000,
         5000);
}

TEST_CASE("sampled pairs with flattened dimensions on either side") {
  Sample({.flattened = true}, 30, 3000, 3000);
  Sample({.uneven = true, .sub_axes = true, .digits = true, .sizes = true, .two_meshes = true, .flattened = true}, 31,
         5000, 5000);
  Sample({.uneven = true, .sizes = true, .partial = true, .flattened = true}, 32, 3000, 2000);
  Sample({.uneven = true, .sizes = true, .slots = true, .two_meshes = true, .flattened = true}, 33, 3000, 2000);
}

TEST_CASE("sampled pairs with restricted ops, other objectives and memory limits") {
  Sample({.options = true}, 7, 2000, 1600);
  Sample(Flavour::Everything(), 8, 8000, 5000);
}

TEST_CASE("sampled pairs on larger meshes") {
  Sample({.large = true}, 9, 1000, 1000);
  Flavour flavour = Flavour::Everything();
  flavour.large = true;
  Sample(flavour, 10, 2000, 1200);
}

namespace {

// Every layout that puts whole axes in some order into dimensions.
std::vector<std::string> PlainLayouts(const std::vector<std::string>& axes, const std::vector<int64_t>& shape) {
  std::vector<std::vector<std::string>> layouts = {std::vector<std::string>(shape.size())};
  std::set<std::vector<std::string>> seen;
  std::vector<size_t> order(axes.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = i;
  do {
    std::vector<std::vector<std::string>> partial = {std::vector<std::string>(shape.size())};
    for (const size_t a : order) {
      std::vector<std::vector<std::string>> longer = partial;  // replicated
      for (const auto& layout : partial) {
        for (size_t d = 0; d < shape.size(); ++d) {
          longer.push_back(layout);
          std::string& dim = longer.back()[d];
          absl::StrAppend(&dim, dim.empty() ? "" : ",", axes[a]);
        }
      }
      partial = std::move(longer);
    }
    seen.insert(partial.begin(), partial.end());
  } while (std::next_permutation(order.begin(), order.end()));
  std::vector<std::string> texts;
  for (const auto& dims : seen) {
    std::vector<std::string> parts;
    for (size_t d = 0; d < shape.size(); ++d) {
      parts.push_back(dims[d].empty() ? absl::StrCat(shape[d]) : absl::StrCat("<", dims[d], ">", shape[d]));
    }
    texts.push_back(absl::StrCat("[", absl::StrJoin(parts, ", "), "]"));
  }
  return texts;
}

void Sweep(const std::vector<int64_t>& sizes, const std::vector<int64_t>& shape) {
  static const std::vector<std::string> names = {"X", "Y", "Z"};
  std::vector<std::string> mesh;
  for (size_t a = 0; a < sizes.size(); ++a) mesh.push_back(absl::StrCat(names[a], ":", sizes[a]));
  RandomProblem problem;
  problem.mesh = problem.target_mesh = absl::StrCat("{", absl::StrJoin(mesh, ","), "}");
  problem.dtype = DType::kBF16;
  const auto layouts = PlainLayouts({names.begin(), names.begin() + static_cast<std::ptrdiff_t>(sizes.size())}, shape);
  size_t judged = 0;
  for (const std::string& from : layouts) {
    for (const std::string& to : layouts) {
      problem.from = from;
      problem.to = to;
      problem.options.objective = problem.options.objective == Objective::kTime ? Objective::kBytes : Objective::kTime;
      const Verdict verdict = Judge(problem);
      if (verdict.outcome != Outcome::kPlanned) FAIL(problem.Text() << "\n" << verdict.text);
      ++judged;
    }
  }
  CHECK(judged == layouts.size() * layouts.size());
}

}  // namespace

TEST_CASE("every ordered pair of plain layouts on every mesh of up to 8 devices", "[slow]") {
  const std::vector<std::vector<int64_t>> meshes = {{},  {2},    {3},    {4},    {5},    {6},    {7},
                                                    {8}, {2, 2}, {2, 3}, {3, 2}, {2, 4}, {4, 2}, {2, 2, 2}};
  const std::vector<std::vector<int64_t>> shapes = {{},       {24},      {7},       {5},       {1},        {0},
                                                    {24, 24}, {5, 9},    {3, 8},    {8, 0},    {6, 4},     {7, 2},
                                                    {12, 1},  {8, 8, 8}, {6, 5, 7}, {4, 1, 9}, {24, 4, 6}, {3, 3, 3}};
  for (const auto& mesh : meshes) {
    for (const auto& shape : shapes) Sweep(mesh, shape);
  }
}

}  // namespace reshard::testing
