// Property tests: rc::prop("name", [](...) { RC_ASSERT(...); }) stands where a SECTION would and fails with the shrunk
// counter-example, the seed, and the text for RC_PARAMS that repeats it. Use RC_ASSERT inside; Catch's REQUIRE would
// end the search before it shrinks.
//
// RC_PARAMS (see RapidCheck) is honoured; where it names no seed it gets Seed().
#ifndef RESHARD_TESTS_PROPERTY_H_
#define RESHARD_TESTS_PROPERTY_H_

#include <rapidcheck.h>

#include <sstream>
#include <string>
#include <utility>

#include "tests/catch.h"

namespace rc {

template <typename Testable>
void prop(const std::string& description, Testable&& testable) {
  SECTION(description) {
    const auto result = detail::checkTestable(std::forward<Testable>(testable));
    std::ostringstream report;
    detail::printResultMessage(result, report);
    INFO(report.str());
    if (result.template is<detail::SuccessResult>()) {
      SUCCEED();
    } else {
      FAIL("falsified; seed " << reshard::testing::Seed());
    }
  }
}

}  // namespace rc

#endif  // RESHARD_TESTS_PROPERTY_H_
