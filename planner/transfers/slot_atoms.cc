#include "planner/transfers/slot_atoms.h"

#include <algorithm>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace reshard::transfers {
namespace {

constexpr int64_t kMostPairs = int64_t{1} << 24;

// Calls visit(row, local, first atom, end atom) for every interval of a table, row by row in local order. `begins` are
// the beginnings of the atoms, ascending, and the end of the last one.
template <typename Visit>
void ForEachInterval(const DimShards& shards, const std::vector<int64_t>& begins, const Visit& visit) {
  const auto at = [&](int64_t index) { return std::lower_bound(begins.begin(), begins.end(), index) - begins.begin(); };
  for (int64_t row = 0; row < shards.num_rows(); ++row) {
    int64_t local = 0;
    for (int64_t i = shards.first[row]; i < shards.first[static_cast<size_t>(row) + 1]; ++i) {
      const Interval& interval = shards.intervals[i];
      visit(row, local, at(interval.begin), at(interval.end));
      local += interval.length();
    }
  }
}

}  // namespace

absl::StatusOr<SlotAtoms> SlotAtoms::Create(const DimShards& from, const DimShards& to) {
  SlotAtoms out;
  std::vector<int64_t> begins = {0, from.size};
  for (const DimShards* side : {&from, &to}) {
    for (const Interval& interval : side->intervals) {
      begins.push_back(interval.begin);
      begins.push_back(interval.end);
    }
  }
  std::sort(begins.begin(), begins.end());
  begins.erase(std::unique(begins.begin(), begins.end()), begins.end());
  for (size_t a = 0; a + 1 < begins.size(); ++a) out.atoms_.push_back({begins[a], begins[a + 1]});

  int64_t pairs = 0;
  for (const DimShards* side : {&from, &to}) {
    ForEachInterval(*side, begins, [&](int64_t, int64_t, int64_t first, int64_t end) { pairs += end - first; });
  }
  if (pairs > kMostPairs) {
    return absl::ResourceExhaustedError(absl::StrCat("a slot table and what it meets make more than ", kMostPairs,
                                                     " pairs of a run of indices and a device"));
  }
  std::vector<std::vector<AtomHolder>> holders(out.atoms_.size());
  ForEachInterval(from, begins, [&](int64_t row, int64_t local, int64_t first, int64_t end) {
    const int64_t begin = first < end ? begins[first] : 0;
    for (int64_t a = first; a < end; ++a) {
      if (!holders[a].empty() && holders[a].back().row == row) continue;  // held in an earlier slot
      holders[a].push_back({static_cast<int32_t>(row), local + begins[a] - begin});
    }
  });
  out.first_holder_.push_back(0);
  for (const std::vector<AtomHolder>& of_one : holders) {
    out.holders_.insert(out.holders_.end(), of_one.begin(), of_one.end());
    out.first_holder_.push_back(static_cast<int64_t>(out.holders_.size()));
  }
  out.first_need_.assign(static_cast<size_t>(to.num_rows()) + 1, 0);
  ForEachInterval(to, begins, [&](int64_t row, int64_t local, int64_t first, int64_t end) {
    for (int64_t a = first; a < end; ++a) out.needs_.push_back({a, local + begins[a] - begins[first]});
    out.first_need_[static_cast<size_t>(row) + 1] = static_cast<int64_t>(out.needs_.size());
  });
  for (size_t row = 1; row < out.first_need_.size(); ++row) {
    out.first_need_[row] = std::max(out.first_need_[row], out.first_need_[row - 1]);
  }
  return out;
}

const AtomHolder* SlotAtoms::Find(int64_t a, int64_t from_row) const {
  const absl::Span<const AtomHolder> all = Holders(a);
  const auto it = std::lower_bound(all.begin(), all.end(), from_row,
                                   [](const AtomHolder& holder, int64_t row) { return holder.row < row; });
  return it != all.end() && it->row == from_row ? &*it : nullptr;
}

}  // namespace reshard::transfers
