// What every refusal of a checkpoint is held to.
#ifndef RESHARD_TESTS_ATTACKS_REFUSES_H_
#define RESHARD_TESTS_ATTACKS_REFUSES_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/base/config.h"
#include "tests/attacks/command.h"

namespace reshard::testing {

// Bounds on the command's time and memory; sanitizers take more of both.
#if defined(ABSL_HAVE_ADDRESS_SANITIZER)
inline constexpr double kQuickSeconds = 15;
inline constexpr int64_t kLittleMemory = int64_t{4} << 30;
#else
inline constexpr double kQuickSeconds = 1;
inline constexpr int64_t kLittleMemory = int64_t{256} << 20;
#endif

// The command refuses: exit code 4, nothing on stdout, one short reason on stderr that contains `part` and cannot
// command a terminal, quickly and in little memory.
void CommandRefuses(const std::vector<std::string>& args, const std::string& part);

}  // namespace reshard::testing

#endif  // RESHARD_TESTS_ATTACKS_REFUSES_H_
