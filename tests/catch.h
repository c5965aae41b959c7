// The test framework: Catch2, of version 2 (Debian 12) or 3 (Debian 13). No other file includes it.
#ifndef RESHARD_TESTS_CATCH_H_
#define RESHARD_TESTS_CATCH_H_

#if __has_include(<catch2/catch_all.hpp>)
#include <catch2/catch_all.hpp>
#else
#include <catch2/catch.hpp>
#endif
#include <cstdint>

#if __has_include(<catch2/catch_all.hpp>)
// The names that version 2 has in its outer namespaces.
using Catch::Approx;
namespace Catch {
inline auto Contains(const std::string& text) { return Matchers::ContainsSubstring(text); }
using Matchers::Matches;
using Matchers::StartsWith;
}  // namespace Catch
#endif

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
