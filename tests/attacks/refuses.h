// What every refusal of a checkpoint is held to.
#ifndef RESHARD_TESTS_ATTACKS_REFUSES_H_
#define RESHARD_TESTS_ATTACKS_REFUSES_H_

#include <cstdint>
#include <string>
#include <vector>

#include "tests/attacks/command.h"
#include "tests/sanitized.h"

namespace reshard::testing {

// Bounds on the command's time and memory.
inline constexpr double kQuickSeconds = kAddressSanitized ? 15 : 1;
inline constexpr int64_t kLittleMemory = kAddressSanitized ? int64_t{4} << 30 : int64_t{256} << 20;

// The command refuses: exit code 4, nothing on stdout, one short reason on stderr that contains `part` and cannot
// command a terminal, quickly and in little memory.
void CommandRefuses(const std::vector<std::string>& args, const std::string& part);

}  // namespace reshard::testing

#endif  // RESHARD_TESTS_ATTACKS_REFUSES_H_
