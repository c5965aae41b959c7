#include <sched.h>

#include <algorithm>
#include <cstdint>
#include <fstream>
#include <string>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "reshard/planner/units.h"
#include "tools/reshard/doctor/examine.h"

namespace reshard::doctor {
namespace {

std::string FirstLine(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

// What follows "KEY:" on a line of /proc; empty if there is none.
std::string ValueOf(const std::string& path, const std::string& key) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    absl::string_view rest = line;
    if (!absl::ConsumePrefix(&rest, key)) continue;
    rest = absl::StripLeadingAsciiWhitespace(rest);
    if (absl::ConsumePrefix(&rest, ":")) return std::string(absl::StripAsciiWhitespace(rest));
  }
  return "";
}

int64_t KibibytesOf(const std::string& key) {
  const std::string text = ValueOf("/proc/meminfo", key);
  int64_t number = 0;
  return absl::SimpleAtoi(text.substr(0, text.find(' ')), &number) ? number * 1024 : 0;
}

// The memory limit of this process's control group, in bytes; 0 if there is none.
int64_t GroupLimit() {
  int64_t bytes = 0;
  for (const char* const path : {"/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"}) {
    if (absl::SimpleAtoi(FirstLine(path), &bytes) && bytes < KibibytesOf("MemTotal")) return bytes;
  }
  return 0;
}

Finding Cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  const int usable = sched_getaffinity(0, sizeof(set), &set) == 0 ? CPU_COUNT(&set) : 0;
  std::string detail = absl::StrCat(usable, " usable");
  const std::string quota = FirstLine("/sys/fs/cgroup/cpu.max");
  int64_t share = 0, period = 0;
  if (const size_t space = quota.find(' '); space != std::string::npos &&
                                            absl::SimpleAtoi(quota.substr(0, space), &share) &&
                                            absl::SimpleAtoi(quota.substr(space + 1), &period) && period > 0) {
    absl::StrAppend(&detail, ", of whose time a limit leaves ",
                    static_cast<double>(share) / static_cast<double>(period));
  }
  return {"cores", State::kFact, detail, ""};
}

Finding Memory() {
  std::string detail =
      absl::StrCat(HumanBytes(KibibytesOf("MemTotal")), ", ", HumanBytes(KibibytesOf("MemAvailable")), " available");
  if (const int64_t limit = GroupLimit(); limit > 0) absl::StrAppend(&detail, ", limited to ", HumanBytes(limit));
  return {"memory", State::kFact, detail, ""};
}

// "always [madvise] never": the chosen one is in brackets.
Finding TransparentHugePages() {
  const std::string line = FirstLine("/sys/kernel/mm/transparent_hugepage/enabled");
  const size_t open = line.find('['), close = line.find(']');
  const std::string chosen = open == std::string::npos || close < open ? "" : line.substr(open + 1, close - open - 1);
  if (chosen == "always" || chosen == "madvise") return {"transparent huge pages", State::kThere, chosen, ""};
  return {"transparent huge pages", State::kMissing, chosen.empty() ? "not known to this kernel" : chosen,
          "large copies in host memory take longer; root can write madvise to "
          "/sys/kernel/mm/transparent_hugepage/enabled"};
}

Finding ReservedHugePages() {
  int64_t pages = 0;
  if (!absl::SimpleAtoi(ValueOf("/proc/meminfo", "HugePages_Total"), &pages)) pages = 0;
  return {"reserved huge pages", State::kFact,
          pages == 0 ? "none" : absl::StrCat(pages, " of ", HumanBytes(KibibytesOf("Hugepagesize"))), ""};
}

}  // namespace

Section ExamineMachine() {
  std::string model = ValueOf("/proc/cpuinfo", "model name");
  if (model.empty()) model = "unknown";
  return {"Machine",
          {{"processor", State::kFact, model, ""}, Cores(), Memory(), TransparentHugePages(), ReservedHugePages()}};
}

}  // namespace reshard::doctor
