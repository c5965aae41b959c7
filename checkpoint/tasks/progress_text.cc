#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "reshard/checkpoint/progress.h"
#include "reshard/planner/units.h"

namespace reshard {
namespace {

// As one says it: 40 s, 12 min, 2 h 5 min.
std::string TimeLeft(double seconds) {
  const auto whole = static_cast<int64_t>(std::ceil(std::clamp(seconds, 0.0, 1e9)));
  if (whole < 120) return absl::StrFormat("%d s", whole);
  const int64_t minutes = (whole + 59) / 60;
  return minutes < 120 ? absl::StrFormat("%d min", minutes)
                       : absl::StrFormat("%d h %d min", minutes / 60, minutes % 60);
}

}  // namespace

std::string ToString(const ConvertProgress& progress) {
  const double rate = static_cast<double>(progress.done) / std::max(1e-9, progress.seconds);
  const double left = rate > 0.0 ? static_cast<double>(progress.total - progress.done) / rate : 0.0;
  return absl::StrCat(HumanBytes(progress.done), " of ", HumanBytes(progress.total), ", ",
                      HumanBytes(std::llround(rate)), "/s, ", TimeLeft(left), " left");
}

}  // namespace reshard
