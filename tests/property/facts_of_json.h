// The printed plan in the oracle's words, read without the library.
#ifndef RESHARD_TESTS_PROPERTY_FACTS_OF_JSON_H_
#define RESHARD_TESTS_PROPERTY_FACTS_OF_JSON_H_

#include <cstdint>
#include <string_view>

#include "tests/oracle/plan_check.h"

namespace reshard::testing {

// Of an element, by the number in the type's name: 2 for bf16. Throws for other names.
int64_t ElementBytes(std::string_view dtype);

// One object of schema reshard.plan/1, with or without pieces. Throws where something is missing, or a step does not
// start on the mesh where the one before ended. `ops` and `flat_topology` are left as they are.
oracle::PlanFacts FactsOfJson(std::string_view plan);

}  // namespace reshard::testing

#endif  // RESHARD_TESTS_PROPERTY_FACTS_OF_JSON_H_
