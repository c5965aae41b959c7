// How shards of two layouts meet along a dimension, against the oracle's spans, and the sums that tell what is
// contiguous, against every single product.
#include "planner/transfers/overlap.h"

#include <algorithm>
#include <map>
#include <random>
#include <set>
#include <string>

#include "reshard/layout/shard_map.h"
#include "tests/catch.h"
#include "tests/layouts.h"
#include "tests/oracle_of.h"

namespace reshard {
namespace {

using testing::LayoutOf;
using transfers::Contiguity;
using transfers::DimOverlap;
using transfers::Pair;
using transfers::Spread;
using transfers::SpreadSums;

using Indices = std::vector<int64_t>;

// The elements of every row, by the positions that hold it.
std::map<int64_t, Indices> RowsByOracle(const Layout& layout, const ShardMap& shards) {
  const oracle::Layout read = testing::OracleLayout(layout);
  std::map<int64_t, Indices> rows;
  for (int64_t p = 0; p < layout.mesh().size(); ++p) {
    Indices held;
    for (const oracle::Span& span : oracle::Spans(read, 0, p)) {
      for (int64_t i = span.begin; i < span.end; ++i) held.push_back(i);
    }
    const auto [row, added] = rows.try_emplace(shards.Row(p, 0), held);
    CHECK(row->second == held);
  }
  return rows;
}

int64_t LocalOffset(const Indices& row, int64_t index) {
  return std::lower_bound(row.begin(), row.end(), index) - row.begin();
}

// Of the shared elements within a row, by what the names say.
Spread SpreadOf(const Indices& shared, const Indices& row) {
  if (shared.size() == row.size()) return row.size() == 1 ? Spread::kWholeOne : Spread::kWhole;
  if (shared.size() == 1) return Spread::kOne;
  const int64_t reach = LocalOffset(row, shared.back()) - LocalOffset(row, shared.front());
  return reach + 1 == std::ssize(shared) ? Spread::kRun : Spread::kScattered;
}

// Runs of elements that are neighbours in both rows and in the tensor.
std::vector<Run> RunsOf(const Indices& shared, const Indices& from, const Indices& to) {
  std::vector<Run> runs;
  for (const int64_t index : shared) {
    const Run one{LocalOffset(from, index), LocalOffset(to, index), index, 1};
    const bool goes_on = !runs.empty() && runs.back().from + runs.back().length == one.from &&
                         runs.back().to + runs.back().length == one.to &&
                         runs.back().global + runs.back().length == one.global;
    if (goes_on) {
      ++runs.back().length;
    } else {
      runs.push_back(one);
    }
  }
  return runs;
}

}  // namespace

TEST_CASE("shards of one dimension meet as their elements do") {
  const std::string mesh = "{X:4,Y:3}";
  const std::vector<std::string> cuts = {
      "24",        "<X>24",         "<Y>24",   "<X,Y>24",           "<Y,X>24",          "<2,X>24",
      "<2,~X>24",  "<X:(2)2>24",    "<3,Y>24", "<X:(2)2,X:(1)2>24", "<X=[1,0,20,3]>24", "<Y,2>24",
      "<X,2,Y>24", "<Y=[1,22,1]>24"};
  std::set<Spread> seen;
  for (const char* size : {"24", "7", "1", "0"}) {
    for (const std::string& a : cuts) {
      for (const std::string& b : cuts) {
        const auto sized = [&](const std::string& cut) {
          return ParseLayout("[" + cut.substr(0, cut.size() - 2) + size + "]", mesh);
        };
        const auto from = sized(a), to = sized(b);
        if (!from.ok() || !to.ok()) continue;  // explicit sizes of another length
        INFO(ToString(*from) << " -> " << ToString(*to));
        const ShardMap from_shards = ShardMap::Create(*from).value(), to_shards = ShardMap::Create(*to).value();
        const DimOverlap overlap = transfers::Overlap(from_shards.dim(0), to_shards.dim(0), transfers::Detail::kRuns);
        // The same without runs.
        const DimOverlap sizes = transfers::Overlap(from_shards.dim(0), to_shards.dim(0), transfers::Detail::kSizes);
        CHECK(sizes.runs.empty());
        CHECK(sizes.by_from == overlap.by_from);
        const auto same = [](const Pair& x, const Pair& y) {
          return x.from_row == y.from_row && x.to_row == y.to_row && x.elements == y.elements &&
                 x.in_from == y.in_from && x.in_to == y.in_to && x.num_runs == 0;
        };
        CHECK(std::equal(sizes.pairs.begin(), sizes.pairs.end(), overlap.pairs.begin(), overlap.pairs.end(), same));
        REQUIRE(overlap.from_rows == from_shards.dim(0).num_rows());
        REQUIRE(overlap.to_rows == to_shards.dim(0).num_rows());
        size_t pairs = 0;
        for (const auto& [t, to_row] : RowsByOracle(*to, to_shards)) {
          const auto begin = static_cast<size_t>(overlap.first_of_to[t]);
          const auto end = static_cast<size_t>(overlap.first_of_to[static_cast<size_t>(t) + 1]);
          size_t at = begin;
          for (const auto& [f, from_row] : RowsByOracle(*from, from_shards)) {
            Indices shared;
            std::set_intersection(from_row.begin(), from_row.end(), to_row.begin(), to_row.end(),
                                  std::back_inserter(shared));
            const Pair* found = overlap.Find(f, t);
            REQUIRE((found != nullptr) == !shared.empty());
            if (found == nullptr) continue;
            REQUIRE(at < end);
            CHECK(found == &overlap.pairs[at++]);
            CHECK(found->elements == std::ssize(shared));
            CHECK(found->in_from == SpreadOf(shared, from_row));
            CHECK(found->in_to == SpreadOf(shared, to_row));
            const auto first = overlap.runs.begin() + found->first_run;
            CHECK(std::vector<Run>(first, first + found->num_runs) == RunsOf(shared, from_row, to_row));
            seen.insert(found->in_from);
            ++pairs;
          }
          CHECK(at == end);
        }
        CHECK(overlap.pairs.size() == pairs);
      }
    }
  }
  CHECK(seen.size() == transfers::kNumSpreads);
}

// Few rows of many are looked up, many are found by walking along: both must find the same.
TEST_CASE("what some rows share is what all rows share, without the others") {
  const uint64_t seed = testing::Seed();
  std::mt19937_64 random(seed);
  const std::string mesh = "{X:16,Y:9}";
  const std::vector<std::string> cuts = {"",      "<X>",   "<Y>",        "<X,Y>",        "<Y,X>",
                                         "<2,X>", "<X,3>", "<4,~X,2,Y>", "<X:(4)4,5,Y>", "<6,X:(2)8,X:(1)2>"};
  for (const int64_t size : {0, 1, 100, 10007}) {
    for (const std::string& a : cuts) {
      for (const std::string& b : cuts) {
        const ShardMap from = ShardMap::Create(LayoutOf("[" + a + std::to_string(size) + "]", mesh)).value();
        const ShardMap to = ShardMap::Create(LayoutOf("[" + b + std::to_string(size) + "]", mesh)).value();
        transfers::SomeRows some(from.dim(0), to.dim(0));
        const size_t most = 1 + random() % 4;
        for (size_t i = 0; i < most; ++i) {
          some.from.Add(static_cast<int64_t>(random() % from.dim(0).length.size()));
          some.to.Add(static_cast<int64_t>(random() % to.dim(0).length.size()));
        }
        INFO("seed " << seed << ": " << a << " -> " << b << ", " << size << " elements, " << most << " rows");
        const DimOverlap all = transfers::Overlap(from.dim(0), to.dim(0), transfers::Detail::kRuns);
        const DimOverlap found = transfers::Overlap(from.dim(0), to.dim(0), transfers::Detail::kRuns, &some);
        size_t concerned = 0;
        for (const Pair& pair : all.pairs) {
          if (!some.Concern(pair.from_row, pair.to_row)) continue;
          ++concerned;
          const Pair* one = found.Find(pair.from_row, pair.to_row);
          REQUIRE(one != nullptr);
          CHECK(one->elements == pair.elements);
          CHECK(one->in_from == pair.in_from);
          CHECK(one->in_to == pair.in_to);
          const auto runs = [](const DimOverlap& overlap, const Pair& of) {
            const auto first = overlap.runs.begin() + of.first_run;
            return std::vector<Run>(first, first + of.num_runs);
          };
          CHECK(runs(found, *one) == runs(all, pair));
        }
        CHECK(found.pairs.size() == concerned);
      }
    }
  }
}

TEST_CASE("rows of a mesh are those of its positions") {
  const Layout layout = LayoutOf("[<Y,X>24]", "{X:4,Y:3}");
  const ShardMap shards = ShardMap::Create(layout).value();
  const std::vector<int32_t> rows = transfers::RowsOf(layout.mesh(), shards.dim(0));
  REQUIRE(rows.size() == 12);
  for (int64_t p = 0; p < 12; ++p) CHECK(rows[p] == shards.Row(p, 0));
}

TEST_CASE("sums over spreads count elements and messages") {
  SpreadSums sums;
  CHECK(sums.total_elements() == 0);
  sums.Add(Spread::kRun, 3);
  sums.Add(Spread::kRun, 4);
  sums.Add(Spread::kScattered, 10);
  CHECK(sums.total_elements() == 17);
  CHECK(sums.total_count() == 3);
}

TEST_CASE("what is contiguous is what is so product by product") {
  // Per dimension a row of this length and the shared elements of some pairs, as bits of local offsets.
  struct Dim {
    int64_t length = 0;
    std::vector<unsigned> pairs;
  };
  const uint64_t seed = testing::Seed();
  std::mt19937_64 random(seed);
  int contiguous = 0, scattered = 0;
  for (int i = 0; i < 2000; ++i) {
    std::vector<Dim> dims(random() % 4);
    for (Dim& dim : dims) {
      dim.length = 1 + static_cast<int64_t>(random() % 4);
      const size_t count = 1 + random() % 3;
      for (size_t k = 0; k < count; ++k)
        dim.pairs.push_back(1 + static_cast<unsigned>(random() % ((1u << dim.length) - 1)));
    }
    // Every product, as the row-major offsets of its elements: contiguous when they are neighbours.
    std::vector<Indices> products = {{0}};
    for (const Dim& dim : dims) {
      std::vector<Indices> longer;
      for (const Indices& so_far : products) {
        for (const unsigned bits : dim.pairs) {
          Indices& next = longer.emplace_back();
          for (const int64_t offset : so_far) {
            for (int64_t j = 0; j < dim.length; ++j) {
              if ((bits >> j & 1) != 0) next.push_back(offset * dim.length + j);
            }
          }
        }
      }
      products = std::move(longer);
    }
    Contiguity::Sum all, broken;
    for (const Indices& product : products) {
      const auto elements = std::ssize(product);
      all.elements += elements;
      ++all.count;
      if (product.back() - product.front() + 1 == elements) continue;
      broken.elements += elements;
      ++broken.count;
    }
    Contiguity folded;
    for (auto dim = dims.rbegin(); dim != dims.rend(); ++dim) {
      Indices row(static_cast<size_t>(dim->length));
      for (size_t j = 0; j < row.size(); ++j) row[j] = static_cast<int64_t>(j);
      SpreadSums sums;
      for (const unsigned bits : dim->pairs) {
        Indices shared;
        for (const int64_t j : row) {
          if ((bits >> j & 1) != 0) shared.push_back(j);
        }
        sums.Add(SpreadOf(shared, row), std::ssize(shared));
      }
      folded.AddDim(sums);
    }
    INFO("seed " << seed << ", " << i);
    REQUIRE(folded.all().elements == all.elements);
    REQUIRE(folded.all().count == all.count);
    REQUIRE(folded.scattered().elements == broken.elements);
    REQUIRE(folded.scattered().count == broken.count);
    contiguous += broken.count == 0 ? 1 : 0;
    scattered += broken.count == all.count ? 1 : 0;
  }
  CHECK(contiguous > 100);
  CHECK(scattered > 100);
}

}  // namespace reshard
