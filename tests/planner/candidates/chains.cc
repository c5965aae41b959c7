#include "tests/planner/candidates/chains.h"

#include <numeric>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "reshard/layout/text.h"
#include "tests/catch.h"
#include "tests/oracle/holdings.h"
#include "tests/oracle/plan_check.h"
#include "tests/oracle_of.h"
#include "tests/property/facts.h"

namespace reshard::testing {

Plan PlanOf(const Layout& source, const Layout& target, const Chain& chain, const PlanOptions& options) {
  Plan plan;
  plan.source = source;
  plan.target = target;
  plan.dtype = DType::kI8;
  plan.options = options;
  auto priced = cost::Price(source, chain, plan.dtype, options);
  INFO(Text(source, chain) << priced.status());
  REQUIRE(priced.ok());
  plan.steps = std::move(priced->steps);
  plan.totals = priced->totals;
  // Not the chain's to know: the oracle's own, so that nothing is found there.
  const oracle::LowerBounds bounds = oracle::Bounds(OracleLayout(source), OracleLayout(target), 1);
  plan.bounds.recv_bytes_max = bounds.recv_max;
  plan.bounds.recv_bytes_total = bounds.recv_total;
  plan.bounds.intermediate_bytes_max = bounds.local_max;
  return plan;
}

std::string WrongWith(const Layout& source, const Layout& target, const Chain& chain, const PlanOptions& options) {
  if (chain.empty() || !(chain.back().to == target)) return "it does not end at the target";
  const Plan plan = PlanOf(source, target, chain, options);
  auto facts = FactsOf(plan);
  if (!facts.ok()) return std::string(facts.status().message());
  facts->flat_topology = false;  // whether a chain is the best is the choice's business
  return absl::StrJoin(oracle::Check(*facts), "\n");
}

std::string Text(const Layout& source, const Chain& chain) {
  std::string text = absl::StrCat(ToString(source.mesh()), " ", ToString(source), "\n");
  for (const cost::ChainStep& step : chain)
    absl::StrAppend(&text, ToString(step.to.mesh()), " ", ToString(step.to), "\n");
  return text;
}

std::string MeshText(const std::vector<Axis>& axes, int64_t first_device) {
  const auto one = [](std::string* out, const Axis& axis) { absl::StrAppend(out, axis.name, ":", axis.size); };
  const std::string text = absl::StrCat("{", absl::StrJoin(axes, ",", one), "}");
  return first_device == 0 ? text : absl::StrCat(text, "@", first_device);
}

std::string RandomLayout(std::mt19937_64& random, const std::vector<Axis>& axes, const std::vector<int64_t>& shape,
                         const LayoutKinds& kinds) {
  std::vector<std::vector<std::string>> cuts(shape.size());
  std::vector<std::string> sum;
  for (const Axis& axis : axes) {
    const size_t where = random() % (shape.size() + 1 + (kinds.partial ? 1 : 0));
    if (where < shape.size()) {
      auto& cut = cuts[where];
      cut.insert(cut.begin() + static_cast<std::ptrdiff_t>(random() % (cut.size() + 1)), axis.name);
    } else if (where > shape.size()) {
      sum.push_back(axis.name);
    }
  }
  for (auto& cut : cuts) {
    if (!kinds.blocks || cut.empty() || random() % 3 != 0) continue;
    cut.insert(cut.begin() + static_cast<std::ptrdiff_t>(random() % (cut.size() + 1)), random() % 2 == 0 ? "2" : "4");
  }
  std::vector<std::string> dims;
  for (size_t d = 0; d < shape.size(); ++d) {
    dims.push_back(cuts[d].empty() ? absl::StrCat(shape[d])
                                   : absl::StrCat("<", absl::StrJoin(cuts[d], ","), ">", shape[d]));
  }
  return absl::StrCat("[", absl::StrJoin(dims, ", "), "]",
                      sum.empty() ? "" : absl::StrCat(" sum<", absl::StrJoin(sum, ","), ">"));
}

std::vector<int64_t> RandomShape(std::mt19937_64& random, bool uneven) {
  static const std::vector<std::vector<int64_t>> even = {{48}, {24, 12}, {12, 24}, {12, 4, 12}};
  static const std::vector<std::vector<int64_t>> odd = {{13}, {10, 7}, {5, 12}, {3, 9, 2}};
  const auto& shapes = uneven ? odd : even;
  return shapes[random() % shapes.size()];
}

}  // namespace reshard::testing
