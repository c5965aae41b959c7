#include "planner/transfers/slot_atoms.h"

#include <algorithm>
#include <numeric>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace reshard::transfers {
namespace {

constexpr int64_t kMostPairs = int64_t{1} << 24;

// Where atoms begin, ascending, with the end of the last one, and the number of the one that begins at an index.
class Borders {
 public:
  Borders(const DimShards& from, const DimShards& to) {
    const auto intervals = static_cast<int64_t>(from.intervals.size() + to.intervals.size());
    if (from.size <= kDirect * (intervals + 1)) number_.assign(static_cast<size_t>(from.size) + 1, -1);
    Add(0);
    Add(from.size);
    for (const DimShards* side : {&from, &to}) {
      for (const Interval& interval : side->intervals) {
        Add(interval.begin);
        Add(interval.end);
      }
    }
    if (number_.empty()) {
      std::sort(begins_.begin(), begins_.end());
      begins_.erase(std::unique(begins_.begin(), begins_.end()), begins_.end());
      return;
    }
    for (size_t index = 0; index < number_.size(); ++index) {
      if (number_[index] < 0) continue;
      number_[index] = static_cast<int64_t>(begins_.size());
      begins_.push_back(static_cast<int64_t>(index));
    }
  }

  const std::vector<int64_t>& begins() const { return begins_; }
  int64_t At(int64_t index) const {
    if (!number_.empty()) return number_[index];
    return std::lower_bound(begins_.begin(), begins_.end(), index) - begins_.begin();
  }

 private:
  // Indices per interval up to which a number is kept for each, which is what few indices in many slots need.
  static constexpr int64_t kDirect = 16;

  void Add(int64_t index) {
    if (number_.empty()) {
      begins_.push_back(index);
    } else {
      number_[index] = 0;
    }
  }

  std::vector<int64_t> begins_;
  std::vector<int64_t> number_;  // by index; empty: looked up
};

// Calls visit(row, local, first atom, end atom) for every interval of a table, row by row in local order.
template <typename Visit>
void ForEachInterval(const DimShards& shards, const Borders& borders, const Visit& visit) {
  for (int64_t row = 0; row < shards.num_rows(); ++row) {
    int64_t local = 0;
    for (int64_t i = shards.first[row]; i < shards.first[static_cast<size_t>(row) + 1]; ++i) {
      const Interval& interval = shards.intervals[i];
      visit(row, local, borders.At(interval.begin), borders.At(interval.end));
      local += interval.length();
    }
  }
}

}  // namespace

absl::StatusOr<SlotAtoms> SlotAtoms::Create(const DimShards& from, const DimShards& to) {
  SlotAtoms out;
  const Borders borders(from, to);
  const std::vector<int64_t>& begins = borders.begins();
  for (size_t a = 0; a + 1 < begins.size(); ++a) out.atoms_.push_back({begins[a], begins[a + 1]});

  int64_t pairs = 0;
  for (const DimShards* side : {&from, &to}) {
    ForEachInterval(*side, borders, [&](int64_t, int64_t, int64_t first, int64_t end) { pairs += end - first; });
  }
  if (pairs > kMostPairs) {
    return absl::ResourceExhaustedError(absl::StrCat("a slot table and what it meets make more than ", kMostPairs,
                                                     " pairs of a run of indices and a device"));
  }
  // Calls visit(row, local, atom) where a row holds an atom for the first time.
  const auto for_each_holder = [&](const auto& visit) {
    std::vector<int64_t> last_row(out.atoms_.size(), -1);
    ForEachInterval(from, borders, [&](int64_t row, int64_t local, int64_t first, int64_t end) {
      for (int64_t a = first; a < end; ++a) {
        if (last_row[a] != row) visit(row, local + begins[a] - begins[first], a);
        last_row[a] = row;
      }
    });
  };
  out.first_holder_.assign(out.atoms_.size() + 1, 0);
  for_each_holder([&](int64_t, int64_t, int64_t a) { ++out.first_holder_[static_cast<size_t>(a) + 1]; });
  std::partial_sum(out.first_holder_.begin(), out.first_holder_.end(), out.first_holder_.begin());
  out.holders_.resize(out.first_holder_.back());
  std::vector<int64_t> next = out.first_holder_;
  for_each_holder([&](int64_t row, int64_t local, int64_t a) {
    out.holders_[next[a]++] = {static_cast<int32_t>(row), local};
  });

  out.first_need_.assign(static_cast<size_t>(to.num_rows()) + 1, 0);
  ForEachInterval(to, borders, [&](int64_t row, int64_t local, int64_t first, int64_t end) {
    for (int64_t a = first; a < end; ++a) out.needs_.push_back({a, local + begins[a] - begins[first]});
    out.first_need_[static_cast<size_t>(row) + 1] = static_cast<int64_t>(out.needs_.size());
  });
  for (size_t row = 1; row < out.first_need_.size(); ++row) {
    out.first_need_[row] = std::max(out.first_need_[row], out.first_need_[row - 1]);
  }
  return out;
}

std::vector<std::vector<int64_t>> SlotAtoms::HeldByRow(int64_t rows) const {
  std::vector<std::vector<int64_t>> out(static_cast<size_t>(rows));
  for (int64_t a = 0; a < size(); ++a) {
    for (const AtomHolder& holder : Holders(a)) out[holder.row].push_back(a);
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
