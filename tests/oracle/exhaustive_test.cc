#include "tests/oracle/exhaustive.h"

#include <algorithm>
#include <cmath>

#include "tests/catch.h"

namespace oracle {
namespace {

struct Table {
  int64_t pairs = 0;
  double geomean = 0;
  double max = 0;
  double at_bound = 0;
};

// Over every ordered pair of box layouts in which some byte must move.
Table Measure(const Exhaustive& all) {
  Table table;
  double log_sum = 0;
  for (size_t s = 0; s < all.states().size(); ++s) {
    for (size_t t = 0; t < all.states().size(); ++t) {
      if (!all.states()[s].is_box || !all.states()[t].is_box || all.Bound(s, t) == 0) continue;
      const int64_t optimum = all.Optimum(s, t);
      REQUIRE(optimum >= all.Bound(s, t));
      const double ratio = static_cast<double>(optimum) / static_cast<double>(all.Bound(s, t));
      ++table.pairs;
      log_sum += std::log(ratio);
      table.max = std::max(table.max, ratio);
      table.at_bound += optimum == all.Bound(s, t) ? 1 : 0;
    }
  }
  table.geomean = std::exp(log_sum / static_cast<double>(table.pairs));
  table.at_bound /= static_cast<double>(table.pairs);
  return table;
}

}  // namespace

TEST_CASE("the exhaustive optimum with digit-level intermediates is the published one") {
  const Exhaustive all(3, 3, 8, false);
  REQUIRE(all.states().size() == 748);
  const Table table = Measure(all);
  CHECK(table.pairs == 10755);
  CHECK(table.geomean == Approx(1.0540).margin(0.00005));
  CHECK(table.max == 1.5);
  CHECK(table.at_bound == Approx(0.799).margin(0.0005));
}

// planning.md found its figure for boxes with the axes outside a group staying where they are.
TEST_CASE("the exhaustive optimum with boxes alone is the published one") {
  const Exhaustive boxes(3, 3, 8, true, Exhaustive::Steps::kOthersStay);
  REQUIRE(boxes.states().size() == 106);
  const Table table = Measure(boxes);
  CHECK(table.pairs == 10755);
  CHECK(table.geomean == Approx(1.1067).margin(0.00005));
  CHECK(table.max == 1.75);
  CHECK(table.at_bound == Approx(0.598).margin(0.0005));
}

TEST_CASE("boxes gain, digits do not, when the axes outside a group may change places") {
  const Table boxes = Measure(Exhaustive(3, 3, 8, true));
  CHECK(boxes.geomean == Approx(1.1036).margin(0.00005));
  CHECK(boxes.max == 1.75);
  CHECK(boxes.at_bound == Approx(0.615).margin(0.0005));

  const Exhaustive free(3, 3, 8, false);
  const Exhaustive staying(3, 3, 8, false, Exhaustive::Steps::kOthersStay);
  int64_t better = 0;
  for (size_t s = 0; s < free.states().size(); ++s) {
    for (size_t t = 0; t < free.states().size(); ++t) better += free.Optimum(s, t) < staying.Optimum(s, t) ? 1 : 0;
  }
  CHECK(better == 0);
}

}  // namespace oracle
