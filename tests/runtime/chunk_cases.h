// Problems whose plans are cut into chunks on pairs of devices that are near each other.
#ifndef RESHARD_TESTS_RUNTIME_CHUNK_CASES_H_
#define RESHARD_TESTS_RUNTIME_CHUNK_CASES_H_

#include "tests/catch.h"
#include "tests/runtime/cases.h"

namespace reshard::testing {

inline const Case kInChunks[] = {
    {"{n:2,g:2}", "[<n,g>64, 6]", "[64, 6]"},
    {"{n:2,g:2}", "[<n>64, 24]", "[64, <n>24]"},
    {"{n:2,g:2}", "[<n,g>64, <1>24]", "[64, 24]"},
    {"{n:2,g:2,h:2}", "[<n,h>32, 12]", "[32, 12]"},
    {"{n:2,g:2}", "[<n>4, 30, 2]", "[4, 30, <n>2]"},
    {"{n:2,g:2}", "[<2,n>64, 3]", "[64, 3]"},
    {"{n:2,g:2}", "[<2,~n>64, 3]", "[64, 3]"},
    {"{n:2,g:2}@[3,2,1,0]", "[<n>64, 24]", "[64, <n>24]"},
    {"{n:2,g:2}", "[<n>64, 24]", "[64, 24]", "{m:2,k:2}@4"},
    {"{n:2,g:2}", "[64, 24] sum<n,g>", "[<n,g>64, 24]"},
    {"{n:2,g:2}", "[64, 24] avg<n,g>", "[64, 24]"},
    {"{n:2,g:2}", "[64, 24] max<n>", "[64, 24]"},
    {"{n:2,g:2,h:2}", "[64, <g>24] sum<n,h>", "[<h>64, <g>24]"},
    {"{n:2,g:2}@[2,3,0,1]", "[4, 30, 8] prod<n,g>", "[4, 30, <g>8]"},
};

inline Plan PlanInChunks(const Case& c, DType dtype) {
  PlanOptions options;
  options.topology = {"pairs", {{2, 10'000'000'000, 0}, {0, 1'000'000'000, 0}}};
  auto plan = PlanOf(c, dtype, options);
  INFO(plan.status());
  REQUIRE(plan.ok());
  REQUIRE(plan->chunks.count > 1);
  return *plan;
}

}  // namespace reshard::testing

#endif  // RESHARD_TESTS_RUNTIME_CHUNK_CASES_H_
