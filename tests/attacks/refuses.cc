#include "tests/attacks/refuses.h"

#include <algorithm>

#include "tests/catch.h"

namespace reshard::testing {

void CommandRefuses(const std::vector<std::string>& args, const std::string& part) {
  const Outcome result = RunReshard(args);
  INFO("reshard " << args[0] << ", stderr: " << result.err.substr(0, 1000));
  CHECK(result.code == 4);
  CHECK(result.out.empty());
  CHECK(result.err.rfind("reshard: ", 0) == 0);
  INFO("wanted: " << part);
  CHECK(result.err.find(part) != std::string::npos);
  CHECK(result.err.size() < 2000);
  const auto harmless = [](char c) { return c == '\n' || (c >= ' ' && c <= '~'); };
  CHECK(std::all_of(result.err.begin(), result.err.end(), harmless));
  CHECK(result.cpu_seconds < kQuickSeconds);
  CHECK(result.peak_bytes < kLittleMemory);
}

}  // namespace reshard::testing
