// The golden cases of tests/golden/cases.json, made small: the same layouts over tensors that many ranks in one process
// can hold.
#ifndef RESHARD_TESTS_RUNTIME_NCCL_GOLDEN_CASES_H_
#define RESHARD_TESTS_RUNTIME_NCCL_GOLDEN_CASES_H_

#include <cstdint>
#include <string>
#include <vector>

#include "tests/runtime/cases.h"

namespace reshard::testing {

struct GoldenCase {
  std::string name;
  Case problem;
  int64_t world = 0;  // devices 0 .. world-1 take part
};

// Every case. `most_ranks` > 0 halves the largest axes until no case has more devices. Dimensions are halved as long as
// every shard keeps elements; odd ones stay as they are.
std::vector<GoldenCase> GoldenCases(const std::string& json_path, int64_t most_ranks = 0);

}  // namespace reshard::testing

#endif  // RESHARD_TESTS_RUNTIME_NCCL_GOLDEN_CASES_H_
