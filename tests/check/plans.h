// Plans of every kind for the judge to look at, as JSON.
#ifndef RESHARD_TESTS_CHECK_PLANS_H_
#define RESHARD_TESTS_CHECK_PLANS_H_

#include <cstdint>
#include <string>
#include <vector>

namespace reshard::testing {

struct Case {
  const char* name;
  const char* mesh;
  const char* from;
  const char* to;
  const char* to_mesh = nullptr;
  bool sequences = false;  // no Exchange
  int64_t memory_limit = 0;
  const char* topology = "flat";
};

const std::vector<Case>& Cases();

// The planner's plan for the case, as JSON.
std::string PlanText(const Case& c, bool with_pieces);

// What is wrong with the plan, as text; "refused: ..." when there is nothing to judge, empty when it agrees.
std::string WrongWith(const std::string& text);

}  // namespace reshard::testing

#endif  // RESHARD_TESTS_CHECK_PLANS_H_
