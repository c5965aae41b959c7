#include "planner/relabel/assignment.h"

#include <algorithm>
#include <limits>
#include <numeric>

namespace reshard::relabel {
namespace {

// State: a flow, and duals u (rows) and v (columns). Invariants, which make the flow the cheapest of those that send as
// much from each row, and as much to each column:
//   AddCost(r, c) >= u[r] + v[c] for all r, c;   RemoveGain(r, c) <= u[r] + v[c] where flow(r, c) > 0.
// Int is wide enough for the sum of all costs.
template <typename Int>
class Solver {
 public:
  Solver(const Transportation& problem, int64_t divisor)
      : problem_(problem),
        rows_(problem.supply.size()),
        columns_(problem.demand.size()),
        left_(problem.supply),
        open_(problem.demand),
        flow_(rows_ * columns_, 0),
        u_(rows_, 0),
        v_(columns_, 0) {
    // One unit of weight is worth more than all devices that could stay.
    const Int scale = 1 + std::accumulate(problem.supply.begin(), problem.supply.end(), int64_t{0});
    cost_.reserve(problem.weight.size());
    for (int64_t weight : problem.weight) cost_.push_back(-static_cast<Int>(weight / divisor) * scale);
  }

  std::vector<int64_t> Solve() {
    StartDuals();
    StartGreedily();
    for (size_t r = 0; r < rows_; ++r) {
      while (left_[r] > 0) Augment(r);
    }
    return std::move(flow_);
  }

 private:
  static constexpr Int kFar = std::numeric_limits<Int>::max();
  size_t At(size_t r, size_t c) const { return r * columns_ + c; }
  Int AddCost(size_t at) const { return cost_[at] - (flow_[at] < problem_.stay[at] ? 1 : 0); }
  Int RemoveGain(size_t at) const { return cost_[at] - (flow_[at] <= problem_.stay[at] ? 1 : 0); }
  // Devices that can follow at the same cost.
  int64_t AddRoom(size_t at) const {
    return flow_[at] < problem_.stay[at] ? problem_.stay[at] - flow_[at] : std::numeric_limits<int64_t>::max();
  }
  int64_t RemoveRoom(size_t at) const {
    return flow_[at] > problem_.stay[at] ? flow_[at] - problem_.stay[at] : flow_[at];
  }

  void StartDuals() {
    for (size_t c = 0; c < columns_; ++c) {
      v_[c] = kFar;
      for (size_t r = 0; r < rows_; ++r) v_[c] = std::min(v_[c], AddCost(At(r, c)));
    }
    for (size_t r = 0; r < rows_; ++r) {
      u_[r] = kFar;
      for (size_t c = 0; c < columns_; ++c) u_[r] = std::min(u_[r], AddCost(At(r, c)) - v_[c]);
    }
  }

  // Sends at once whatever costs what the duals say. Devices that stay come first: they are the best of their weight.
  void StartGreedily() {
    for (const bool staying : {true, false}) {
      for (size_t r = 0; r < rows_; ++r) {
        for (size_t c = 0; c < columns_ && left_[r] > 0; ++c) {
          const size_t at = At(r, c);
          if (staying && flow_[at] >= problem_.stay[at]) continue;
          if (AddCost(at) != u_[r] + v_[c]) continue;
          const int64_t sent = std::min({left_[r], open_[c], AddRoom(at)});
          flow_[at] += sent;
          left_[r] -= sent;
          open_[c] -= sent;
        }
      }
    }
  }

  // Sends devices of row `first` along the cheapest way to a column with places left. A way goes from row to column by
  // sending more, and from column to row by taking back what that row sends there.
  void Augment(size_t first) {
    row_distance_.assign(rows_, kFar);
    column_distance_.assign(columns_, kFar);
    row_done_.assign(rows_, false);
    column_done_.assign(columns_, false);
    row_before_.assign(rows_, columns_);
    column_before_.assign(columns_, rows_);
    row_distance_[first] = 0;
    size_t last = columns_;
    while (last == columns_) {
      const size_t r = Nearest(row_distance_, row_done_), c = Nearest(column_distance_, column_done_);
      // Columns first: one of them may be the end.
      if (c < columns_ && (r == rows_ || column_distance_[c] <= row_distance_[r])) {
        column_done_[c] = true;
        if (open_[c] > 0) {
          last = c;
        } else {
          TakeBackFrom(c);
        }
      } else {
        row_done_[r] = true;
        SendFrom(r);
      }
    }
    const Int end = column_distance_[last];
    for (size_t r = 0; r < rows_; ++r) {
      if (row_done_[r]) u_[r] += end - row_distance_[r];
    }
    for (size_t c = 0; c < columns_; ++c) {
      if (column_done_[c]) v_[c] -= end - column_distance_[c];
    }

    int64_t sent = std::min(left_[first], open_[last]);
    for (size_t c = last;;) {
      const size_t r = column_before_[c];
      sent = std::min(sent, AddRoom(At(r, c)));
      if (r == first) break;
      c = row_before_[r];
      sent = std::min(sent, RemoveRoom(At(r, c)));
    }
    left_[first] -= sent;
    open_[last] -= sent;
    for (size_t c = last;;) {
      const size_t r = column_before_[c];
      flow_[At(r, c)] += sent;
      if (r == first) break;
      c = row_before_[r];
      flow_[At(r, c)] -= sent;
    }
  }

  // The nearest that is not done, or the number of all when none can be reached.
  static size_t Nearest(const std::vector<Int>& distance, const std::vector<char>& done) {
    size_t best = distance.size();
    Int least = kFar;
    for (size_t i = 0; i < distance.size(); ++i) {
      if (!done[i] && distance[i] < least) {
        least = distance[i];
        best = i;
      }
    }
    return best;
  }

  void SendFrom(size_t r) {
    for (size_t c = 0; c < columns_; ++c) {
      if (column_done_[c]) continue;
      const Int distance = row_distance_[r] + AddCost(At(r, c)) - u_[r] - v_[c];
      if (distance < column_distance_[c]) {
        column_distance_[c] = distance;
        column_before_[c] = r;
      }
    }
  }

  void TakeBackFrom(size_t c) {
    for (size_t r = 0; r < rows_; ++r) {
      const size_t at = At(r, c);
      if (row_done_[r] || flow_[at] == 0) continue;
      const Int distance = column_distance_[c] + u_[r] + v_[c] - RemoveGain(at);
      if (distance < row_distance_[r]) {
        row_distance_[r] = distance;
        row_before_[r] = c;
      }
    }
  }

  const Transportation& problem_;
  const size_t rows_, columns_;
  std::vector<int64_t> left_, open_;  // devices not sent yet, places not taken yet
  std::vector<Int> cost_;             // of a device that does not stay
  std::vector<int64_t> flow_;
  std::vector<Int> u_, v_;
  // Of one search.
  std::vector<Int> row_distance_, column_distance_;
  std::vector<char> row_done_, column_done_;
  std::vector<size_t> row_before_, column_before_;
};

}  // namespace

std::vector<int64_t> BestFlow(const Transportation& problem) {
  // Overlaps are multiples of a large number more often than not; without it 64 bits do.
  int64_t divisor = 0, largest = 0;
  for (int64_t weight : problem.weight) {
    divisor = std::gcd(divisor, weight);
    largest = std::max(largest, weight);
  }
  divisor = std::max<int64_t>(divisor, 1);
  const auto devices = static_cast<__int128>(std::accumulate(problem.supply.begin(), problem.supply.end(), int64_t{0}));
  const __int128 sum = (static_cast<__int128>(largest / divisor) + 1) * (devices + 1) * (devices + 1) * 4;
  if (sum < std::numeric_limits<int64_t>::max()) return Solver<int64_t>(problem, divisor).Solve();
  return Solver<__int128>(problem, divisor).Solve();
}

}  // namespace reshard::relabel
