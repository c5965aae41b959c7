#include "reshard/planner/environment.h"

#include <array>
#include <cstdint>
#include <cstdlib>
#include <limits>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace reshard {
namespace {

// A variable takes a number in a range, or one of some words.
struct Variable {
  const char* name;
  const char* words;  // separated by "|"; null: a number
  int64_t least = 0, most = std::numeric_limits<int64_t>::max();
  const char* unit = "";
};

constexpr std::array<Variable, 7> kVariables = {{
    {"RESHARD_TIMEOUT_MS", nullptr, 1, int64_t{1} << 40, "milliseconds"},
    {"RESHARD_HTTPS_TIMEOUT_S", nullptr, 1, 86'400, "seconds"},
    {"RESHARD_POOL_BYTES", nullptr, 0, std::numeric_limits<int64_t>::max(), "bytes"},
    {"RESHARD_SHARED_MEMORY", "0|1"},
    {"RESHARD_AGREEMENT", "every|off"},
    {"RESHARD_CUDA_TRANSPORT", "c10d|nccl"},
    {"RESHARD_LOG", "off|info|debug"},
}};

bool Takes(const Variable& variable, absl::string_view text) {
  if (variable.words == nullptr) {
    int64_t number = 0;
    return absl::SimpleAtoi(text, &number) && number >= variable.least && number <= variable.most;
  }
  for (const absl::string_view word : absl::StrSplit(variable.words, '|')) {
    if (text == word) return true;
  }
  return false;
}

std::string Wanted(const Variable& variable) {
  if (variable.words != nullptr) return variable.words;
  const bool bounded = variable.most != std::numeric_limits<int64_t>::max();
  return absl::StrCat("a number of ", variable.unit, ", ", variable.least,
                      bounded ? absl::StrCat(" to ", variable.most) : " or more");
}

}  // namespace

absl::Status CheckEnvironment() {
  constexpr size_t kShown = 40;
  for (const Variable& variable : kVariables) {
    const char* const text = std::getenv(variable.name);
    if (text == nullptr || *text == '\0' || Takes(variable, text)) continue;
    return absl::InvalidArgumentError(absl::StrCat("the environment variable ", variable.name, " is \"",
                                                   absl::string_view(text).substr(0, kShown), "\"; it takes ",
                                                   Wanted(variable)));
  }
  return absl::OkStatus();
}

}  // namespace reshard
