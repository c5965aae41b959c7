// Counts, byte counts and times in a form for people to read.
#ifndef RESHARD_PLANNER_UNITS_H_
#define RESHARD_PLANNER_UNITS_H_

#include <cstdint>
#include <string>
#include <string_view>

namespace reshard {

// "1 tensor", "3 tensors": `one` is what one of them is called.
std::string Counted(int64_t count, std::string_view one);
// "1.5 MiB", "512 B": binary units, three significant digits.
std::string HumanBytes(int64_t bytes);
// The same with the number itself, for limits that may have to be typed: "4102 bytes (4.01 KiB)", "900 bytes".
std::string ExactBytes(int64_t bytes);
// "5 us", "2.56 ms": three significant digits.
std::string HumanTime(int64_t nanoseconds);

}  // namespace reshard

#endif  // RESHARD_PLANNER_UNITS_H_
