// Counts the calls of an interface that tests put below the library, and makes chosen ones fail.
#ifndef RESHARD_TESTS_FAKES_FAKE_CALLS_H_
#define RESHARD_TESTS_FAKES_FAKE_CALLS_H_

#include <cstdint>
#include <map>
#include <string>
#include <utility>

#include "tests/fakes/fake_streams.h"

namespace reshard::testing::fake {

// Guarded by the lock of the world.
class CallBook {
 public:
  void Clear() { *this = CallBook(); }

  // One more call, by the thread's rank or else `rank`. What it is to return instead of doing anything; 0: go on.
  int Count(const std::string& function, int rank, bool numbered = true) {
    const int bound = BoundRank();
    if (bound >= 0) rank = bound;
    int out = 0;
    const auto take = [&](auto& failures, const auto& key) {
      const auto it = failures.find(key);
      if (it != failures.end() && out == 0) out = it->second;
    };
    take(nth_failures_, std::make_pair(std::make_pair(rank, function), functions_[{rank, function}]++));
    if (numbered && bound >= 0) take(failures_, std::make_pair(rank, calls_[rank]++));
    return out;
  }
  void FailAt(int rank, int64_t call, int result) { failures_[{rank, call}] = result; }
  void FailAt(int rank, const std::string& function, int64_t nth, int result) {
    nth_failures_[{{rank, function}, nth}] = result;
  }
  int64_t Calls(int rank) const {
    const auto it = calls_.find(rank);
    return it == calls_.end() ? 0 : it->second;
  }
  int64_t Calls(int rank, const std::string& function) const {
    const auto it = functions_.find({rank, function});
    return it == functions_.end() ? 0 : it->second;
  }

 private:
  std::map<int, int64_t> calls_;
  std::map<std::pair<int, std::string>, int64_t> functions_;
  std::map<std::pair<int, int64_t>, int> failures_;
  std::map<std::pair<std::pair<int, std::string>, int64_t>, int> nth_failures_;
};

}  // namespace reshard::testing::fake

#endif  // RESHARD_TESTS_FAKES_FAKE_CALLS_H_
