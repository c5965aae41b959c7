#include "planner/transfers/pinned_sums.h"

#include <algorithm>

namespace reshard::transfers {
namespace {

// number[r] = number[r] * size + (r / weight % size).
void AppendDigit(int64_t weight, int64_t size, std::vector<int64_t>& number) {
  int64_t digit = 0, left = weight;
  for (int64_t& one : number) {
    one = one * size + digit;
    if (--left > 0) continue;
    left = weight;
    if (++digit == size) digit = 0;
  }
}

}  // namespace

PinnedSums::PinnedSums(const DimOverlap& overlap, const std::vector<digits::Digit>& digits,
                       const digits::RowDigits& own, const digits::RowDigits& other, absl::Span<const int> fixed_by,
                       bool of_receivers)
    : overlap_(&overlap), of_receivers_(of_receivers) {
  for (size_t j = 0; j < other.digits.size(); ++j) {
    if (fixed_by[j] < 0) continue;
    Condition one{other.weights[j], digits[other.digits[j]].size};
    const auto at = std::find(own.digits.begin(), own.digits.end(), fixed_by[j]);
    if (at != own.digits.end()) {
      one.own_weight = own.weights[at - own.digits.begin()];
      conditions_.push_back(one);
    } else {
      one.fixed_by = fixed_by[j];
      keys_.push_back(one);
      num_keys_ *= one.size;
    }
  }
}

bool PinnedSums::Counts(int64_t mine, int64_t theirs) const {
  bool counts = true;
  for (const Condition& c : conditions_) counts &= c.Of(theirs) == mine / c.own_weight % c.size;
  return counts;
}

void PinnedSums::Tabulate(int64_t asked) {
  const int64_t rows = of_receivers_ ? overlap_->to_rows : overlap_->from_rows;
  if (asked < rows) return;
  const int64_t other_rows = of_receivers_ ? overlap_->from_rows : overlap_->to_rows;
  // Of every row on the other side, the key, and the coordinates that the own row fixes, as one number.
  std::vector<int64_t> key_of(keys_.empty() ? 0 : static_cast<size_t>(other_rows), 0);
  std::vector<int64_t> fixed_of(conditions_.empty() ? 0 : static_cast<size_t>(other_rows), 0);
  for (const Condition& c : keys_) AppendDigit(c.weight, c.size, key_of);
  for (const Condition& c : conditions_) AppendDigit(c.weight, c.size, fixed_of);
  once_ = std::make_unique<SumsOnce>();
  table_.assign(static_cast<size_t>(rows * num_keys_), once_->NumberOf({}));
  // The keys that the row has, with the sums of each, and where each key is among them, or -1.
  std::vector<int64_t> found;
  std::vector<SpreadSums> sums_found;
  sums_found.reserve(static_cast<size_t>(num_keys_));
  std::vector<int32_t> where(static_cast<size_t>(num_keys_), -1);
  const auto key_at = [&](int64_t theirs) { return key_of.empty() ? 0 : key_of[theirs]; };
  for (int64_t row = 0; row < rows; ++row) {
    int64_t fixed = 0;
    for (const Condition& c : conditions_) fixed = fixed * c.size + row / c.own_weight % c.size;
    const auto number = [&](int64_t key) -> int32_t& { return table_[static_cast<size_t>(row * num_keys_ + key)]; };
    const int64_t begin = first()[row], end = first()[static_cast<size_t>(row) + 1];
    for (int64_t i = begin; i < end; ++i) {
      const Pair& pair = PairAt(i);
      const int64_t theirs = OtherRow(pair);
      if (!fixed_of.empty() && fixed_of[theirs] != fixed) continue;
      if (end - begin == 1) {
        number(key_at(theirs)) = once_->NumberOfOne(SpreadIn(pair), pair.elements);
        continue;
      }
      int32_t& at = where[key_at(theirs)];
      if (at < 0) {
        at = static_cast<int32_t>(found.size());
        found.push_back(key_at(theirs));
        sums_found.emplace_back();
      }
      sums_found[static_cast<size_t>(at)].Add(SpreadIn(pair), pair.elements);
    }
    for (size_t i = 0; i < found.size(); ++i) {
      number(found[i]) = once_->NumberOf(sums_found[i]);
      where[found[i]] = -1;
    }
    found.clear();
    sums_found.clear();
  }
}

SpreadSums PinnedSums::At(int64_t row, const int32_t* coordinates) const {
  if (!table_.empty()) return once_->at(table_[IndexOf(row, coordinates)]);
  SpreadSums out;
  for (int64_t i = first()[row]; i < first()[static_cast<size_t>(row) + 1]; ++i) {
    const Pair& pair = PairAt(i);
    bool counts = Counts(row, OtherRow(pair));
    for (const Condition& c : keys_) counts &= c.Of(OtherRow(pair)) == coordinates[c.fixed_by];
    if (counts) out.Add(SpreadIn(pair), pair.elements);
  }
  return out;
}

void PinnedSums::Forget() {
  table_ = std::vector<int32_t>();
  once_.reset();
}

}  // namespace reshard::transfers
