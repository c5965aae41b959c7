// How the shards of one dimension in one layout overlap those in another: for every pair of rows that share elements,
// the runs that they share, with the local offsets on both sides.
#ifndef RESHARD_PLANNER_TRANSFERS_OVERLAP_H_
#define RESHARD_PLANNER_TRANSFERS_OVERLAP_H_

#include <array>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "reshard/layout/shard_map.h"
#include "reshard/planner/traffic.h"

namespace reshard::transfers {

// How a pair's shared elements lie within one side's row. This decides whether a product over dimensions is one
// contiguous stretch of the dense local fragment.
enum class Spread : uint8_t {
  kWholeOne,   // the whole row, one element
  kWhole,      // the whole row, several elements
  kOne,        // one element of several
  kRun,        // consecutive elements, but not the whole row
  kScattered,  // anything else
};
inline constexpr int kNumSpreads = 5;

// There may be a pair for each of 2^24 intervals, so pairs are small.
struct Pair {
  int32_t from_row = 0;
  int32_t to_row = 0;
  int64_t elements = 0;
  int32_t first_run = 0;  // into DimOverlap::runs
  int32_t num_runs = 0;
  Spread in_from = Spread::kWhole;
  Spread in_to = Spread::kWhole;
};

struct DimOverlap {
  std::vector<Pair> pairs;           // by (to_row, from_row)
  std::vector<int64_t> first_of_to;  // pairs of to_row t: pairs[first_of_to[t] .. first_of_to[t+1])
  std::vector<Run> runs;             // runs that touch in the tensor and on both sides are merged; see Overlap
  int64_t from_rows = 0;
  int64_t to_rows = 0;
  // Pairs of from_row s: those at by_from[first_of_from[s] .. first_of_from[s+1]), by to_row.
  std::vector<int32_t> by_from;
  std::vector<int64_t> first_of_from;

  // The pair of these rows, or nullptr if they share no element.
  const Pair* Find(int64_t from_row, int64_t to_row) const;
};

// Whether an overlap says where in its rows a pair's elements lie, or only how many there are.
enum class Detail { kSizes, kRuns };

// Some rows of one side.
class RowSet {
 public:
  explicit RowSet(const DimShards& dim) : has_(dim.length.size(), 0) {}
  void Add(int64_t row) {
    if (Has(row)) return;
    has_[static_cast<size_t>(row)] = 1;
    rows_.push_back(row);
  }
  bool Has(int64_t row) const { return has_[static_cast<size_t>(row)] != 0; }
  const std::vector<int64_t>& rows() const { return rows_; }  // in the order in which they came

 private:
  std::vector<uint8_t> has_;  // per row
  std::vector<int64_t> rows_;
};

// The rows of some devices on both sides.
struct SomeRows {
  // Of these tables; none yet.
  SomeRows(const DimShards& from_dim, const DimShards& to_dim) : from(from_dim), to(to_dim) {}
  RowSet from, to;
  bool Concern(int64_t from_row, int64_t to_row) const { return from.Has(from_row) || to.Has(to_row); }
};

// With kSizes, pairs have no runs. `some`: leaves out the pairs that concern none of these rows. Requires that no slot
// table cuts either side.
DimOverlap Overlap(const DimShards& from, const DimShards& to, Detail detail, const SomeRows* some = nullptr);

// How `elements` of a row of `row_length` lie in it.
Spread SpreadOf(bool contiguous, int64_t elements, int64_t row_length);

// The row that every position of a mesh holds in one dimension's table.
std::vector<int32_t> RowsOf(const Mesh& mesh, const DimShards& shards);

// Number of elements and of messages of a set of pairs, by spread. The product of these sums over dimensions tells how
// much of a device's transfers is contiguous, without looking at single messages.
struct SpreadSums {
  std::array<int64_t, kNumSpreads> elements{};
  std::array<int64_t, kNumSpreads> count{};
  void Add(Spread spread, int64_t n) {
    elements[static_cast<size_t>(spread)] += n;
    count[static_cast<size_t>(spread)] += 1;
  }
  int64_t total_elements() const { return elements[0] + elements[1] + elements[2] + elements[3] + elements[4]; }
  int64_t total_count() const { return count[0] + count[1] + count[2] + count[3] + count[4]; }
  bool operator==(const SpreadSums&) const = default;
  template <typename H>
  friend H AbslHashValue(H h, const SpreadSums& sums) {
    return H::combine(std::move(h), sums.elements, sums.count);
  }
};

// Keeps sums, many of which are the same, once each, and numbers them.
class SumsOnce {
 public:
  // The number of `sums`: a new one if they are new.
  int32_t NumberOf(const SpreadSums& sums);
  // The same for one message.
  int32_t NumberOfOne(Spread spread, int64_t elements);
  const SpreadSums& at(int32_t number) const { return sums_[static_cast<size_t>(number)]; }
  int32_t size() const { return static_cast<int32_t>(sums_.size()); }

 private:
  int32_t Find(const SpreadSums& sums);

  std::vector<SpreadSums> sums_;
  absl::flat_hash_map<SpreadSums, int32_t> numbers_;
  int32_t last_ = -1;
  // Single messages are of few kinds: those that came last.
  struct One {
    Spread spread = Spread::kWhole;
    int64_t elements = -1;
    int32_t number = 0;
  };
  std::array<One, 8> ones_;
};

// Folds the sums of dimensions, which are added from the last (fastest) to the first, into those of their product.
class Contiguity {
 public:
  void AddDim(const SpreadSums& sums);
  // The same for one message.
  void AddDim(Spread spread, int64_t elements) {
    SpreadSums sums;
    sums.Add(spread, elements);
    AddDim(sums);
  }
  struct Sum {
    int64_t elements = 0;
    int64_t count = 0;
  };
  Sum all() const { return all_; }
  // Messages that are not one contiguous stretch.
  Sum scattered() const {
    return {all_.elements - whole_.elements - run_.elements, all_.count - whole_.count - run_.count};
  }

 private:
  Sum all_{1, 1};
  Sum whole_{1, 1};  // all dimensions so far whole
  Sum run_{0, 0};    // contiguous, but not whole: every slower dimension must be a single element
};

}  // namespace reshard::transfers

#endif  // RESHARD_PLANNER_TRANSFERS_OVERLAP_H_
