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

#endif  // RESHARD_TESTS_CATCH_H_
