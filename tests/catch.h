// The test framework. No other file includes Catch2, so that going from v2 to v3 is a change of this file and of
// catch_main.cc.
#ifndef RESHARD_TESTS_CATCH_H_
#define RESHARD_TESTS_CATCH_H_

#include <catch2/catch.hpp>
#include <cstdint>

namespace reshard::testing {

// The seed of every random choice in the tests: $RESHARD_TEST_SEED, a number or `random`; a fixed one when that is not
// set. Every test process that fails has printed it.
uint64_t Seed();

}  // namespace reshard::testing

// Ends a test case that has nothing to look at here, and says why; CTest then reports it as skipped (see
// discover.cmake). Before it stand at most REQUIREs: what has said this counts as skipped even where a CHECK has
// failed.
#define RESHARD_SKIP(why)            \
  do {                               \
    WARN("test skipped: " << (why)); \
    return;                          \
  } while (false)

#endif  // RESHARD_TESTS_CATCH_H_
