#include "runtime/self_test/available_memory.h"

#include <algorithm>
#include <fstream>
#include <limits>
#include <sstream>
#include <string>

#include "absl/strings/numbers.h"
#include "absl/strings/string_view.h"

namespace reshard::self_test {
namespace {

std::string ReadAll(const char* path) {
  std::ifstream file(path);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

// A file that holds one number, or -1 ("max", no file).
int64_t ReadNumber(const char* path) {
  int64_t value = -1;
  return absl::SimpleAtoi(ReadAll(path), &value) ? value : -1;
}

// What is left below a limit; the largest int64 if there is no limit.
int64_t Left(const char* limit_path, const char* used_path) {
  const int64_t limit = ReadNumber(limit_path);
  const int64_t used = ReadNumber(used_path);
  if (limit < 0 || used < 0) return std::numeric_limits<int64_t>::max();
  return std::max<int64_t>(0, limit - used);
}

}  // namespace

int64_t ParseMemAvailable(std::string_view meminfo) {
  constexpr std::string_view kName = "MemAvailable:";
  const size_t at = meminfo.find(kName);
  if (at == std::string_view::npos) return -1;
  std::string_view rest = meminfo.substr(at + kName.size());
  rest = rest.substr(0, rest.find("kB"));
  int64_t kilobytes = 0;
  if (!absl::SimpleAtoi(absl::string_view(rest.data(), rest.size()), &kilobytes) || kilobytes < 0) return -1;
  return kilobytes > std::numeric_limits<int64_t>::max() / 1024 ? -1 : kilobytes * 1024;
}

int64_t AvailableMemoryBytes() {
  int64_t available = std::numeric_limits<int64_t>::max();
  const int64_t machine = ParseMemAvailable(ReadAll("/proc/meminfo"));
  if (machine >= 0) available = machine;
  available = std::min(available, Left("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory.current"));
  return std::min(available,
                  Left("/sys/fs/cgroup/memory/memory.limit_in_bytes", "/sys/fs/cgroup/memory/memory.usage_in_bytes"));
}

}  // namespace reshard::self_test
