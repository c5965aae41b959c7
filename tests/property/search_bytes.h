// Properties of lists of bytes, from which problems are made (see problems.h), so that shrinking the bytes shrinks the
// problem.
#ifndef RESHARD_TESTS_PROPERTY_SEARCH_BYTES_H_
#define RESHARD_TESTS_PROPERTY_SEARCH_BYTES_H_

#include <cstdint>
#include <sstream>
#include <string>
#include <vector>

#include "tests/property.h"
#include "tests/sanitized.h"

namespace reshard::testing {

// So many lists for a property that plans a few times for each.
inline constexpr int kTries = kSanitized ? 200 : 1500;

// Like rc::prop, over lists of bytes: so many of them unless RC_PARAMS asks for another number.
template <typename Property>
void SearchBytes(const std::string& description, int tries, Property&& property) {
  SECTION(description) {
    rc::detail::TestParams params = rc::detail::configuration().testParams;
    if (params.maxSuccess == rc::detail::TestParams().maxSuccess) params.maxSuccess = tries;
    const auto testable = [&] {
      property(*rc::gen::resize(rc::kNominalSize, rc::gen::arbitrary<std::vector<uint8_t>>()).as("choices"));
    };
    const auto result = rc::detail::checkTestable(testable, rc::detail::TestMetadata(), params);
    std::ostringstream report;
    rc::detail::printResultMessage(result, report);
    INFO(report.str());
    if (result.template is<rc::detail::SuccessResult>()) {
      SUCCEED();
    } else {
      FAIL("falsified; seed " << Seed());
    }
  }
}

}  // namespace reshard::testing

#endif  // RESHARD_TESTS_PROPERTY_SEARCH_BYTES_H_
