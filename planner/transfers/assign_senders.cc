#include "planner/transfers/assign_senders.h"

#include <algorithm>
#include <numeric>

namespace reshard::transfers {
namespace {

class Assignment {
 public:
  Assignment(const std::vector<Request>& requests, std::vector<int64_t>& loads)
      : requests_(requests), loads_(loads), sender_(requests.size(), -1), of_sender_(loads.size()) {}

  // Requests with the fewest candidates come first, each to its least loaded candidate.
  void Greedy() {
    std::vector<size_t> order(requests_.size());
    std::iota(order.begin(), order.end(), size_t{0});
    std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
      const Request& x = requests_[a];
      const Request& y = requests_[b];
      if (x.candidates.size() != y.candidates.size()) return x.candidates.size() < y.candidates.size();
      return x.elements > y.elements;
    });
    for (const size_t r : order) {
      const SomeDevices& from = requests_[r].candidates;
      const int32_t least =
          *std::min_element(from.begin(), from.end(), [&](int32_t a, int32_t b) { return loads_[a] < loads_[b]; });
      sender_[r] = least;
      loads_[least] += requests_[r].elements;
      of_sender_[least].push_back(static_cast<int32_t>(r));
    }
  }

  // Continues as long as the busiest sender can pass a request on to one that stays below it, directly or by way of
  // others that pass on one of the same size.
  void Improve() {
    const size_t most_moves = 4 * requests_.size();
    for (size_t move = 0; move < most_moves; ++move) {
      const auto busiest = static_cast<int32_t>(std::max_element(loads_.begin(), loads_.end()) - loads_.begin());
      if (!Relieve(busiest)) return;
    }
  }

  std::vector<int32_t> senders() && { return std::move(sender_); }

 private:
  bool Relieve(int32_t busiest) {
    std::vector<int64_t> sizes;
    for (const int32_t r : of_sender_[busiest]) sizes.push_back(requests_[r].elements);
    std::sort(sizes.begin(), sizes.end());
    sizes.erase(std::unique(sizes.begin(), sizes.end()), sizes.end());
    return std::any_of(sizes.rbegin(), sizes.rend(), [&](int64_t size) { return size > 0 && PassOn(busiest, size); });
  }

  // Breadth first over senders; `passed` is the request by which each was reached.
  bool PassOn(int32_t busiest, int64_t size) {
    std::vector<int32_t> passed(loads_.size(), -1);
    std::vector<bool> seen(loads_.size(), false);
    std::vector<int32_t> queue = {busiest};
    seen[busiest] = true;
    for (size_t at = 0; at < queue.size(); ++at) {
      for (const int32_t r : of_sender_[queue[at]]) {
        if (requests_[r].elements != size) continue;
        for (const int32_t other : requests_[r].candidates) {
          if (seen[other]) continue;
          seen[other] = true;
          passed[other] = r;
          if (loads_[other] + size < loads_[busiest]) {
            Shift(other, busiest, passed);
            return true;
          }
          queue.push_back(other);
        }
      }
    }
    return false;
  }

  void Shift(int32_t last, int32_t busiest, const std::vector<int32_t>& passed) {
    for (int32_t to = last; to != busiest;) {
      const int32_t r = passed[to];
      const int32_t from = sender_[r];
      std::erase(of_sender_[from], r);
      of_sender_[to].push_back(r);
      sender_[r] = to;
      loads_[from] -= requests_[r].elements;
      loads_[to] += requests_[r].elements;
      to = from;
    }
  }

  const std::vector<Request>& requests_;
  std::vector<int64_t>& loads_;
  std::vector<int32_t> sender_;
  std::vector<std::vector<int32_t>> of_sender_;
};

}  // namespace

std::vector<int32_t> AssignSenders(const std::vector<Request>& requests, std::vector<int64_t>& loads) {
  Assignment assignment(requests, loads);
  assignment.Greedy();
  assignment.Improve();
  return std::move(assignment).senders();
}

}  // namespace reshard::transfers
